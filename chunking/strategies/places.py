"""Places: where a stretch of a document stands: heading path, clause, page, kind, by span."""

from __future__ import annotations

from bisect import bisect_right
from dataclasses import dataclass

from chunking.document import BlockKind, Document, Span
from chunking.outline import clauses_of, heading_paths
from chunking.passage import Part
from chunking.quick import quick

_HEADING = BlockKind.HEADING
_NAMES = {kind: str(kind) for kind in BlockKind}


@dataclass(frozen=True, slots=True)
class Place:
    """What a passage says of its place in the document."""

    kind: str
    heading_path: tuple[str, ...]
    clause: str
    page: int | None


_place = quick(Place)


class Places:
    """Looks up the place of spans of one document. Heading paths and clauses are worked out once."""

    def __init__(self, document: Document) -> None:
        self.blocks = document.blocks
        self.starts = [block.span.start for block in document.blocks]
        self.paths = heading_paths(document.blocks)
        self.clauses = clauses_of(document.blocks)
        paths, clauses = self.paths, self.clauses
        self.turns = [i for i in range(1, len(paths)) if paths[i] is not paths[i - 1] or clauses[i] != clauses[i - 1]]

    def of(self, span: Span) -> Place:
        """Return the place of a span that touches at least one block."""
        return self.of_blocks(*self._blocks_of(span))

    def of_blocks(self, first: int, last: int) -> Place:
        """Return the place of blocks[first..last]: the titles that all their text stands under, the clause of the first text."""
        blocks, paths = self.blocks, self.paths
        begin = first
        while begin < last and blocks[begin].kind is _HEADING:
            begin += 1
        if begin > first and blocks[begin].kind is _HEADING:
            begin = first
        path = paths[begin]
        for index in range(begin + 1, last + 1):
            other = paths[index]
            if other is not path and blocks[index].kind is not _HEADING:
                same = 0
                while same < min(len(path), len(other)) and path[same] == other[same]:
                    same += 1
                path = path[:same]
        return _place(_NAMES[blocks[first].kind], path, self.clauses[begin], blocks[first].page)

    def parts_of(self, span: Span) -> tuple[Part, ...]:
        """Return the parts of a span that touches at least one block."""
        return self.parts(span, *self._blocks_of(span))

    def _blocks_of(self, span: Span) -> tuple[int, int]:
        first = max(0, bisect_right(self.starts, span.start) - 1)
        if self.blocks[first].span.end <= span.start and first + 1 < len(self.blocks):
            first += 1
        return first, max(first, bisect_right(self.starts, max(span.start, span.end - 1)) - 1)

    def parts(self, span: Span, first: int, last: int) -> tuple[Part, ...]:
        """Return where the text of blocks[first..last] within `span` comes to stand elsewhere, in order; none if it never does.

        A heading belongs to what stands under it; one with nothing under it, or with another title next, is a part of its own.
        """
        if first == last:
            return ()
        turns = self.turns[bisect_right(self.turns, first) : bisect_right(self.turns, last)]
        if not turns:
            return ()
        blocks, paths, clauses = self.blocks, self.paths, self.clauses
        found: list[Part] = []
        opened: int | None = None  # first of the headings that wait for their text
        for step, index in enumerate((first, *turns)):
            begin = opened if opened is not None else index
            ends_at_once = step < len(turns) and turns[step] == index + 1
            if ends_at_once and blocks[index].kind is _HEADING and paths[index + 1][: len(paths[index])] == paths[index]:
                opened = begin
                continue
            opened = None
            at = max(0, blocks[begin].span.start - span.start)
            if blocks[begin].span.start < span.end and (
                not found or (found[-1].heading_path, found[-1].clause) != (paths[index], clauses[index])
            ):
                found.append(Part(at, paths[index], clauses[index]))
        return tuple(found) if len(found) > 1 else ()
