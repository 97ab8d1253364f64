"""Places: where a stretch of a document stands: heading path, clause, page, kind, by span."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Sequence
from dataclasses import dataclass

from chunking.document import Block, BlockKind, Document, Span


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
        self.paths = heading_paths_of(document.blocks)
        self.clauses = clauses_of(document.blocks)

    def of(self, span: Span) -> Place:
        """Return the place of a span that touches at least one block."""
        first = max(0, bisect_right(self.starts, span.start) - 1)
        if self.blocks[first].span.end <= span.start and first + 1 < len(self.blocks):
            first += 1
        return self.of_blocks(first, max(first, bisect_right(self.starts, max(span.start, span.end - 1)) - 1))

    def of_blocks(self, first: int, last: int) -> Place:
        """Return the place of blocks[first..last]: the titles that all their text stands under, the clause of the first text."""
        blocks = self.blocks
        texts = [i for i in range(first, last + 1) if blocks[i].kind is not BlockKind.HEADING] or [first]
        path = self.paths[texts[0]]
        for index in texts[1:]:
            other = self.paths[index]
            if other is not path:
                same = 0
                while same < min(len(path), len(other)) and path[same] == other[same]:
                    same += 1
                path = path[:same]
        return Place(str(blocks[first].kind), path, self.clauses[texts[0]], blocks[first].page)


def heading_paths_of(blocks: Sequence[Block]) -> list[tuple[str, ...]]:
    """Return for each block the titles above it, a heading's own title included. A heading closes its equals and those below."""
    paths: list[tuple[str, ...]] = []
    open_headings: list[tuple[int, str]] = []
    path: tuple[str, ...] = ()
    for block in blocks:
        if block.kind is BlockKind.HEADING:
            while open_headings and open_headings[-1][0] >= block.level:
                open_headings.pop()
            open_headings.append((block.level, block.label))
            path = tuple(title for _, title in open_headings if title)
        paths.append(path)
    return paths


def clauses_of(blocks: Sequence[Block]) -> list[str]:
    """Return for each block the clause it stands in. A numbered item （一） is named with its article: 第十条（一）."""
    clauses: list[str] = []
    article = clause = ""
    for block in blocks:
        if block.clause:
            is_item = block.clause.startswith(("（", "("))
            clause = article + block.clause if is_item else block.clause
            article = article if is_item else block.clause
        elif block.kind is BlockKind.HEADING:
            article = clause = ""
        clauses.append(clause)
    return clauses
