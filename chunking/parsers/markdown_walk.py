"""Walk: from block tokens, or from lines already understood, to blocks whose text is the source as it was written."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import islice

from markdown_it.token import Token

from chunking.document import BlockKind
from chunking.parsers.base import Builder
from chunking.parsers.html import add_fragment
from chunking.parsers.inline import plain_inline, without_hidden

_HEADING, _PARAGRAPH, _FOOTNOTE, _QUOTE = BlockKind.HEADING, BlockKind.PARAGRAPH, BlockKind.FOOTNOTE, BlockKind.QUOTE
_LIST_ITEM, _CODE = BlockKind.LIST_ITEM, BlockKind.CODE
_TABLE_HEADER, _TABLE_ROW = BlockKind.TABLE_HEADER, BlockKind.TABLE_ROW
_ONLY_MARKS = re.compile(r"[\s>*+-]*+(?:\d{1,9}[.)])?+[\s>*+-]*+\Z")
_LANGUAGE = re.compile(r"[\w+#.-]{1,40}")
_NOTE = re.compile(r"\[\^[^\]\s]{1,80}\]:")
_NOTE_LINES = re.compile(r"\n(?=\[\^[^\]\s]{1,80}\]:)")
_HIDING = re.compile(
    r"<!--.*?(?:-->|\Z)|<(?P<close>/?)(?P<tag>template|noscript|svg|script|style)(?=[\s/>])", re.IGNORECASE | re.DOTALL
)
_INDENTED = frozenset({_LIST_ITEM, _CODE})


@dataclass(slots=True)
class _Item:
    """A list item while its own lines are gathered."""

    level: int
    group: int
    has_block: bool = False
    lines: tuple[int, int] | None = None


@dataclass(slots=True)
class Walk:
    """Lays the source lines of one block after the other into a Builder. Line numbers are those of the whole source."""

    lines: Sequence[str]
    builder: Builder = field(default_factory=Builder)
    done: int = 0
    """Lines before this one are in the text or were left out on purpose."""
    is_verbatim: bool = True
    """Whether only blank lines were passed since the last block."""
    containers: list[_Item | int] = field(default_factory=list)
    """Open containers: list items, and the group number of each quote."""
    lists: int = 0
    quotes: int = 0
    group: int = 0
    hidden_until: str = ""
    """Closing tag of an element that hides what stands before it."""
    never_closed: set[str] = field(default_factory=set)
    text_end: int = 0
    """The line behind the last block."""

    def walk(self, tokens: Sequence[Token], first: int, end: int) -> None:
        """Add the blocks of all tokens of the lines `first` to `end`; lines that no token covers are kept as paragraphs."""
        for index, token in enumerate(tokens):
            match token.type:
                case "bullet_list_open" | "ordered_list_open":
                    self._flush()
                    if not self.containers:
                        self.group = self.builder.new_group()
                    self.lists += 1
                case "bullet_list_close" | "ordered_list_close":
                    self.lists -= 1
                case "list_item_open":
                    self.containers.append(_Item(self.lists, self.group))
                case "blockquote_open":
                    if not self.containers:
                        self.group = self.builder.new_group()
                    self.quotes += 1
                    self.containers.append(self.group)
                case "list_item_close" | "blockquote_close":
                    self._flush()
                    self.quotes -= token.type == "blockquote_close"
                    self.containers.pop()
                case "paragraph_open" | "heading_open" | "fence" | "code_block" | "html_block" | "hr" | "table_open":
                    if token.map is not None:
                        self._leaf(token, first + token.map[0], first + token.map[1], tokens, index)
        self._pass_to(end)

    def paragraph(self, start: int, end: int) -> None:
        """Add the lines as a top-level paragraph."""
        text = "\n".join(self.lines[start:end])
        if self.hidden_until:
            self._pass_to(start)
            text = self._after_hidden(text)
        if text[:2] == "[^" and _NOTE.match(text):
            for note in _NOTE_LINES.split(text):
                count = note.count("\n") + 1
                self._add(_FOOTNOTE, start, start + count, note)
                start += count
        else:
            self._add(_PARAGRAPH, start, end, text)

    def heading(self, start: int, end: int, level: int, content: str) -> None:
        """Add the lines as a heading with this title, still in Markdown."""
        label = plain_inline(without_hidden(content))
        self._add(_HEADING, start, end, "\n".join(self.lines[start:end]), level=level, label=label)

    def code(self, start: int, end: int, info: str, group: int = 0) -> None:
        """Add the lines as code, with the language that the fence names."""
        language = _LANGUAGE.search(info)
        text = "\n".join(self.lines[start:end])
        self._add(_CODE, start, end, text, label=language.group() if language else "", group=group)

    def table(self, start: int, header: Sequence[str], rows: Sequence[Sequence[str]]) -> None:
        """Add header, delimiter line and rows, one line each, with these cells, still in Markdown."""
        group = self.builder.new_group()
        head = "\n".join(self.lines[start : start + 2])
        self._add(_TABLE_HEADER, start, start + 2, head, group=group, cells=_plain_cells(header))
        for number, row in enumerate(rows, start + 2):
            self._add(_TABLE_ROW, number, number + 1, self.lines[number], group=group, cells=_plain_cells(row))

    def item(self, start: int, end: int, level: int, group: int, *, continued: bool = False) -> None:
        """Add the lines as the text of one list item, or as more of the text of an item that has a block already."""
        text = "\n".join(self.lines[start:end])
        attributes = {"continued": "true"} if continued else None
        self._add(_LIST_ITEM, start, end, text, level=level, group=group, attributes=attributes)

    def rule(self, start: int, end: int) -> None:
        """Leave a thematic break out."""
        self._drop(start, end)

    def _leaf(self, token: Token, start: int, end: int, tokens: Sequence[Token], index: int) -> None:
        kind = token.type
        item = self._item()
        if kind == "html_block":
            self._html(token.content, start, end)
        elif kind == "hr" or self._is_still_hidden(kind, start, end):
            self._drop(start, end)
        elif kind in ("fence", "code_block"):
            self._flush()
            self.code(start, end, token.info, self._group())
        elif kind == "table_open":
            self._flush()
            header, *rows = _rows(tokens, index)
            self.table(start, header, rows)
        elif item is not None:
            item.lines = (item.lines[0] if item.lines else start, end)
        elif self.quotes:
            self._add(_QUOTE, start, end, "\n".join(self.lines[start:end]), group=self.group)
        elif kind == "heading_open":
            self.heading(start, end, int(token.tag[1]), tokens[index + 1].content)
        else:
            self.paragraph(start, end)

    def _is_still_hidden(self, kind: str, start: int, end: int) -> bool:
        """Return whether a block stands inside a hidden element. The block that holds the closing tag is shown."""
        if not self.hidden_until:
            return False
        if not any(self.hidden_until in line.lower() for line in self.lines[start:end]):
            return True
        if kind != "paragraph_open":
            self.hidden_until = ""
        return False

    def _item(self) -> _Item | None:
        """Return the innermost open list item."""
        return next((holder for holder in reversed(self.containers) if isinstance(holder, _Item)), None) if self.lists else None

    def _group(self) -> int:
        return self.group if self.containers else 0

    def _flush(self) -> None:
        """Add the gathered lines of the innermost item as one block."""
        item = self._item()
        if item is None or item.lines is None:
            return
        (start, end), item.lines = item.lines, None
        self.item(start, end, item.level, item.group, continued=item.has_block)
        item.has_block = True

    def _html(self, content: str, start: int, end: int) -> None:
        """Add the visible text of an HTML block; an element that hides its content may be closed by a later block."""
        self._flush()
        self._pass_to(start)
        if self.hidden_until:
            content = self._after_hidden(content)
        opener = _left_open(content)
        if opener is not None and self._is_closed_after(end, closer := f"</{opener[1]}"):
            content, self.hidden_until = content[: opener[0]], closer
        item = self._item()
        add_fragment(self.builder, content, item.level if item else 0, self._group())
        self.done, self.is_verbatim = max(self.done, end), False

    def _is_closed_after(self, line: int, closer: str) -> bool:
        if closer not in self.never_closed and not any(closer in text.lower() for text in islice(self.lines, line, None)):
            self.never_closed.add(closer)
        return closer not in self.never_closed

    def _after_hidden(self, text: str) -> str:
        """Return what follows the closing tag that is waited for; blank where it does not come here."""
        place = text.lower().find(self.hidden_until)
        if place < 0:
            return ""
        self.hidden_until = ""
        return text[text.find(">", place) + 1 :] if ">" in text[place:] else ""

    def _drop(self, start: int, end: int) -> None:
        self._flush()
        self._pass_to(start)
        self.done, self.is_verbatim = max(self.done, end), False

    def _pass_to(self, line: int) -> None:
        """Pass the lines up to `line`: blank ones and bare container marks are nothing to read, all others become paragraphs."""
        for number in range(self.done, line):
            text = self.lines[number]
            if not text or text.isspace():
                continue
            if _ONLY_MARKS.match(text) or self.hidden_until:
                self.is_verbatim = False
                continue
            self.done = number
            self._add(_PARAGRAPH, number, number + 1, text)
        self.done = max(self.done, line)

    def _add(
        self,
        kind: BlockKind,
        start: int,
        end: int,
        text: str,
        level: int = 0,
        label: str = "",
        group: int = 0,
        cells: tuple[str, ...] = (),
        attributes: dict[str, str] | None = None,
    ) -> None:
        """Lay the text of the lines into the builder, behind the blank lines of the source where nothing was left out."""
        lines, done = self.lines, self.done
        if done < start and (done + 1 < start or lines[done]):  # one empty line is passed here
            self._pass_to(start)
        if kind is not _CODE and "<" in text:
            text = without_hidden(text)
        text = text.rstrip()
        if not text:
            self.done, self.is_verbatim = end, False
            return
        gap = "\n\n"
        if self.is_verbatim:
            gap = "\n" if self.text_end == start else "\n".join(["", *lines[self.text_end : start], ""])
        if kind not in _INDENTED and text[0].isspace():
            body = text.lstrip()
            gap += text[: len(text) - len(body)]
            text = body
        self.builder.add(kind, text, gap=gap, level=level, label=label, group=group, cells=cells, attributes=attributes)
        self.text_end = start + text.count("\n") + 1 if kind is _CODE else end
        self.done, self.is_verbatim = end, True


def _rows(tokens: Sequence[Token], index: int) -> list[list[str]]:
    """Return the cells of each row of the table that opens at `index`."""
    rows: list[list[str]] = []
    for token in islice(tokens, index, None):
        if token.type == "table_close":
            break
        if token.type == "tr_open":
            rows.append([])
        elif token.type == "inline":
            rows[-1].append(token.content)
    return rows


def _plain_cells(cells: Sequence[str]) -> tuple[str, ...]:
    return tuple([plain_inline(without_hidden(cell)) for cell in cells])


def _left_open(content: str) -> tuple[int, str] | None:
    """Return offset and name of an element that hides its content and is not closed in this HTML block."""
    opened: tuple[int, str] | None = None
    for tag in _HIDING.finditer(content):
        if tag["tag"] is None:
            continue
        name = tag["tag"].lower()
        if opened is None and not tag["close"]:
            opened = (tag.start(), name)
        elif opened is not None and tag["close"] and opened[1] == name:
            opened = None
    return opened
