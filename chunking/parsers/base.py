"""Parser: what every parser is, and Builder: how it lays blocks into a text. All values can be pickled, for a sandboxed process."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

from chunking.charset import decode
from chunking.document import Block, BlockKind, Span
from chunking.normalize import normalize
from chunking.parsers.odd import refuse_binary
from chunking.quick import quick


class UnsupportedMediaType(ValueError):
    """No parser is known for the media type."""


class UnreadableMarkup(ValueError):
    """The bytes can't be read as what they are said to be. The message says where and what to do."""


@dataclass(frozen=True, slots=True)
class Parsed:
    """What a parser makes of one file: the pieces of a `Document` that come from its content."""

    text: str
    blocks: tuple[Block, ...]
    title: str = ""
    language: str = ""


@dataclass(frozen=True, slots=True)
class Parser:
    """One row of the table.

    `parse(data, declared_charset)` takes bytes, or text that is already decoded; pure and deterministic; raises
    UnreadableMarkup and nothing else. `version` grows with every change of output, since it can move a boundary.
    """

    name: str
    version: int
    parse: Callable[[bytes | str, str | None], Parsed]

    @property
    def versioned_name(self) -> str:
        """``markdown/1``: what is stored with a document."""
        return f"{self.name}/{self.version}"


def text_of(data: bytes | str, declared_charset: str | None) -> str:
    """Return the normalised text of a file. Raises UnreadableMarkup where no charset fits, and where it is no text."""
    try:
        text = data if isinstance(data, str) else decode(data, declared_charset)[0]
        refuse_binary(text)
    except ValueError as error:
        raise UnreadableMarkup(str(error)) from error
    return normalize(text)


_block, _span = quick(Block), quick(Span)


class Builder:
    """Grows a text block by block, so that every block is a slice of it and only blanks lie between."""

    def __init__(self) -> None:
        self._pieces: list[str] = []
        self._length = 0
        self._groups = 0
        self.blocks: list[Block] = []

    def new_group(self) -> int:
        """Return a number above 0 for the items of one list, the rows of one table, the lines of one quote."""
        self._groups += 1
        return self._groups

    def add(
        self,
        kind: BlockKind,
        text: str,
        *,
        gap: str = "\n\n",
        level: int = 0,
        label: str = "",
        group: int = 0,
        cells: tuple[str, ...] = (),
        attributes: Mapping[str, str] | None = None,
    ) -> None:
        """Append one block after `gap` (blanks). Blank text adds nothing."""
        if not text or text.isspace():
            return
        pieces, start = self._pieces, self._length
        if pieces:
            pieces += (gap, text)
            start += len(gap)
        else:
            pieces.append(text)
        self._length = end = start + len(text)
        self.blocks.append(_block(kind, _span(start, end), level, label, "", group, cells, None, attributes or {}))

    def parsed(self, title: str = "", language: str = "") -> Parsed:
        """Return what was built."""
        return Parsed("".join(self._pieces), tuple(self.blocks), title, language)
