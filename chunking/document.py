"""Document, Block, Span, heading paths: what a parser makes and a strategy reads. Frozen and self-checking.

`Document.text` is the *normalised source*. Every block is a slice of it, in order and without overlap; what lies between two
blocks is blank. Nothing visible is outside a block, so a strategy that covers all blocks loses nothing.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum


class BlockKind(StrEnum):
    """Kinds of structural units. A list is its items, a table its rows: `Block.group` ties them together."""

    HEADING = "heading"
    PARAGRAPH = "paragraph"
    LIST_ITEM = "list_item"
    TABLE_HEADER = "table_header"
    TABLE_ROW = "table_row"
    CAPTION = "caption"
    CODE = "code"
    QUOTE = "quote"
    FOOTNOTE = "footnote"


@dataclass(frozen=True, slots=True, order=True)
class Span:
    """Half-open range of characters (code points) in `Document.text`."""

    start: int
    end: int

    def __post_init__(self) -> None:
        if not 0 <= self.start <= self.end:
            raise ValueError(f"span {self.start}..{self.end} is not a range")

    def __len__(self) -> int:
        return self.end - self.start

    def __reduce__(self) -> tuple[type[Span], tuple[object, ...]]:
        """Pickle as a call: what dataclasses do by themselves takes five times as long, and parsers' replies are full of these."""
        return Span, (self.start, self.end)

    def of(self, text: str) -> str:
        """Return the slice of `text` that this span covers."""
        return text[self.start : self.end]


@dataclass(frozen=True, slots=True)
class Block:
    """One structural unit of a document.

    level: heading 1-6; depth of a list item, 1 for the outermost; otherwise 0.
    label: a heading's title without its marks; a code block's language; otherwise empty.
    clause: number of the clause that begins here (第十条, 3.2.1), set by the outline pass, otherwise empty.
    group: items of one list, rows and caption of one table, lines of one quote share a number above 0.
    cells: cell texts of a table row, merged cells repeated in every row and column they cover.
    page: page number from 1 where the format has pages.
    """

    kind: BlockKind
    span: Span
    level: int = 0
    label: str = ""
    clause: str = ""
    group: int = 0
    cells: tuple[str, ...] = ()
    page: int | None = None
    attributes: Mapping[str, str] = field(default_factory=dict)

    def __reduce__(self) -> tuple[type[Block], tuple[object, ...]]:
        """Pickle as a call, as spans do."""
        return Block, tuple(getattr(self, each) for each in self.__slots__)


@dataclass(frozen=True, slots=True)
class Document:
    """The normalised source of one revision and its blocks, with the metadata that policy rules may look at."""

    text: str
    blocks: tuple[Block, ...]
    title: str = ""
    media_type: str = ""
    language: str = ""
    kind: str = ""
    labels: frozenset[str] = field(default_factory=frozenset)
    parser: str = ""

    def __post_init__(self) -> None:
        position = 0
        for block in self.blocks:
            if block.span.start < position or block.span.end > len(self.text):
                raise ValueError(f"block {block.kind} at {block.span} overlaps its neighbour or ends outside the text")
            if self.text[position : block.span.start].strip():
                raise ValueError(f"visible text before {block.span.start} belongs to no block")
            position = block.span.end
        if self.text[position:].strip():
            raise ValueError(f"visible text after {position} belongs to no block")

    def text_of(self, block: Block) -> str:
        """Return the source text of a block."""
        return block.span.of(self.text)


@dataclass(frozen=True, slots=True)
class DocumentKey:
    """Who a document belongs to and what it is called there. All identity is scoped by it."""

    tenant: str
    document: str

    def __str__(self) -> str:
        return f"{self.tenant}/{self.document}"
