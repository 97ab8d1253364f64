"""Places: where a stretch of a document stands: heading path, clause, page, kind, by span."""

from __future__ import annotations

from bisect import bisect_right
from dataclasses import dataclass

from chunking.document import BlockKind, Document, Span
from chunking.outline import clauses_of, heading_paths


@dataclass(frozen=True, slots=True)
class Place:
    """What a passage says of its place in the document."""

    kind: str
    heading_path: tuple[str, ...]
    clause: str
    page: int | None


class Places:
    """Looks up the place of spans of one document. Heading paths and clauses are worked out once."""

    def __init__(self, document: Document) -> None:
        self.blocks = document.blocks
        self.starts = [block.span.start for block in document.blocks]
        self.paths = heading_paths(document.blocks)
        self.clauses = clauses_of(document.blocks)

    def of(self, span: Span) -> Place:
        """Return the place of a span that touches at least one block."""
        first = max(0, bisect_right(self.starts, span.start) - 1)
        if self.blocks[first].span.end <= span.start and first + 1 < len(self.blocks):
            first += 1
        return self.of_blocks(first, max(first, bisect_right(self.starts, max(span.start, span.end - 1)) - 1))

    def of_blocks(self, first: int, last: int) -> Place:
        """Return the place of blocks[first..last]: the titles that all their text stands under, the clause of the first text."""
        blocks, paths = self.blocks, self.paths
        begin = first
        while begin < last and blocks[begin].kind is BlockKind.HEADING:
            begin += 1
        if blocks[begin].kind is BlockKind.HEADING:
            begin = first
        path = paths[begin]
        for index in range(begin + 1, last + 1):
            other = paths[index]
            if other is not path and blocks[index].kind is not BlockKind.HEADING:
                same = 0
                while same < min(len(path), len(other)) and path[same] == other[same]:
                    same += 1
                path = path[:same]
        return Place(str(blocks[first].kind), path, self.clauses[begin], blocks[first].page)
