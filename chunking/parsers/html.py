"""HTML and XHTML: what a reader sees, as plain blocks. Furniture, scripts and hidden elements are not in the text at all.

Blocks are parted by a blank line; list items are ``- item``, indented by depth; rows are ``cell | cell`` with merged cells
repeated. Entities are decoded once, by the HTML parser. The tree is walked without recursion.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field

from selectolax.lexbor import LexborHTMLParser, LexborNode

from chunking.document import BlockKind
from chunking.normalize import normalize
from chunking.parsers.base import Builder, Parsed, Parser, UnreadableMarkup, text_of
from chunking.parsers.table import Cell, Row, column_names, header_rows, resolve
from chunking.parsers.tags import (
    BREAKING,
    CELLS,
    CLOSED_BY_PARSER,
    CONTENT,
    FURNITURE_ROLES,
    HEADINGS,
    ITEMS,
    LISTS,
    NEVER_READ,
)

_DEEPEST = 12_000
_BLANKS = re.compile(r"[ \t\n\f\r]+")
_BREAK = "\x00"
_AROUND_BREAK = re.compile(" ?\x00 ?")
_PARAGRAPHS = re.compile("\x00{2,}")
_MAY_HIDE = re.compile(r"hidden|display|role\s{0,9}=|<header|<footer", re.IGNORECASE)
_HIDING_STYLE = re.compile(r"(?:display\s{0,9}:\s{0,9}none|visibility\s{0,9}:\s{0,9}hidden)", re.IGNORECASE)
_LANGUAGE = re.compile(r"(?:^|\s)(?:language-|lang-|brush:\s{0,3}|highlight-source-)([\w+#.-]{1,40})")
_META_CHARSET = re.compile(rb"<meta[^>]{0,200}?charset\s{0,9}=\s{0,9}[\"']?\s{0,9}([\w.:-]{1,40})", re.IGNORECASE)
_XML_CHARSET = re.compile(rb"^\s{0,99}<\?xml[^>]{0,200}?encoding\s{0,9}=\s{0,9}[\"']([\w.:-]{1,40})", re.IGNORECASE)
_XML_DECLARATION = re.compile(r"\s{0,99}<\?xml[^>]{0,400}\?>")
_TAG = re.compile(r"<(/?)([A-Za-z][A-Za-z0-9-]{0,30})[^<>]*>")
_TABLE_PART = re.compile(r"\s*<(?:tr|td|th|tbody|thead|tfoot|caption)[\s>]", re.IGNORECASE)


@dataclass(slots=True)
class _Item:
    """An open list item: its depth, its mark, and whether a block of it is out already."""

    level: int
    mark: str
    has_block: bool = False


@dataclass(slots=True)
class _Table:
    """The table whose cells are being read, and how many tables stand open within it."""

    rows: list[Row] = field(default_factory=list)
    caption: str = ""
    in_head: bool = False
    nested: int = 0
    open_cells: list[Cell] = field(default_factory=list)
    """Those that are being read. One may hold others, and rows, where foreign markup (``<math>``) keeps them from closing it."""


@dataclass(slots=True)
class _Renderer:
    builder: Builder
    layout_tables: frozenset[int] = frozenset()
    may_hide: bool = True
    inline: list[str] = field(default_factory=list)
    lists: list[int | None] = field(default_factory=list)
    """For each open list the number of its next item, None for bullets."""
    items: list[_Item] = field(default_factory=list)
    group: int = 0
    quotes: int = 0
    quote_group: int = 0
    content: int = 0
    heading: int = 0
    captions: int = 0
    pre: int = 0
    language: str = ""
    table: _Table | None = None

    def render(self, root: LexborNode) -> None:
        """Add the blocks below `root`, itself included."""
        node, last = root, root.mem_id
        while True:
            tag = node.tag or ""
            inside = None
            if tag == "-text":
                self.inline.append(node.text_content or "")
            elif tag not in NEVER_READ and self._enter(node, tag):
                inside = node.child
                if inside is None:
                    self._leave(node, tag)
            if inside is not None:
                node = inside
                continue
            while node.mem_id != last and node.next is None:
                parent = node.parent
                if parent is None:
                    break
                node = parent
                self._leave(node, node.tag or "")
            following = node.next
            if node.mem_id == last or following is None:
                break
            node = following
        self._flush()

    def _enter(self, node: LexborNode, tag: str) -> bool:
        """Take note of an opening tag. Return whether to look inside."""
        if tag == "br":
            self.inline.append("\n" if self.pre else _BREAK)
            return False
        if tag == "img":
            self.inline.append(node.attributes.get("alt") or "")
            return False
        if self.may_hide and self._is_hidden(node, tag):
            return False
        if tag not in BREAKING:
            if self.pre and tag == "code":
                self._note_language(node)
            return True
        if self.table is not None:
            self._enter_in_table(node, tag, self.table)
            return True
        if self.pre:
            return True
        self._flush()
        if tag in CONTENT:
            self.content += 1
        if tag in HEADINGS:
            self.heading = int(tag[1])
        elif tag in LISTS:
            self._enter_list(node, tag)
        elif tag in ITEMS:
            self._enter_item(node, tag)
        elif tag == "blockquote":
            if not self.quotes:
                self.quote_group = self.builder.new_group()
            self.quotes += 1
        elif tag in ("figcaption", "caption"):
            self.captions += 1
        elif tag == "pre":
            self.pre, self.language = 1, ""
            self._note_language(node)
        elif tag == "table" and node.mem_id not in self.layout_tables:
            self.table = _Table()
        return True

    def _leave(self, node: LexborNode, tag: str) -> None:
        """Take note of a closing tag."""
        if tag not in BREAKING:
            return
        if self.table is not None:
            self._leave_in_table(tag, self.table)
            return
        if self.pre and tag != "pre":
            return
        self._flush()
        if tag in CONTENT:
            self.content -= 1
        if tag in HEADINGS:
            self.heading = 0
        elif tag in LISTS:
            if self.lists:
                self.lists.pop()
        elif tag in ITEMS:
            if self.items:
                self.items.pop()
        elif tag == "blockquote":
            self.quotes -= 1
        elif tag in ("figcaption", "caption"):
            self.captions -= 1
        elif tag == "pre":
            self.pre = 0

    def _enter_list(self, node: LexborNode, tag: str) -> None:
        if not self.lists and not self.items:
            self.group = self.builder.new_group()
        start = node.attributes.get("start") if tag == "ol" else None
        number = int(start) if start and start.isdecimal() and len(start) < 10 else 1
        self.lists.append(number if tag == "ol" else None)

    def _enter_item(self, node: LexborNode, tag: str) -> None:
        if not self.lists and not self.items:
            self.group = self.builder.new_group()
        mark = "- "
        if self.lists and (number := self.lists[-1]) is not None:
            value = node.attributes.get("value") or ""
            number = int(value) if value.isdecimal() and len(value) < 10 else number
            mark = f"{number}. "
            self.lists[-1] = number + 1
        below = self.items[-1].level if self.items else 0
        self.items.append(_Item(below + (2 if tag == "dd" else 1), mark))

    def _enter_in_table(self, node: LexborNode, tag: str, table: _Table) -> None:
        if tag == "table":
            table.nested += 1
        if table.nested:
            self.inline.append(" ")
        elif tag == "thead":
            table.in_head = True
        elif tag == "tr":
            table.rows.append(Row(in_head=table.in_head))
        elif tag in CELLS:
            if not table.rows:
                table.rows.append(Row())
            attributes = node.attributes
            cell = Cell("", _span(attributes.get("colspan"), 1), _span(attributes.get("rowspan"), 0), is_header=tag == "th")
            table.rows[-1].cells.append(cell)
            if table.open_cells:
                self._read_into(table.open_cells[-1])
            table.open_cells.append(cell)
            self.inline.clear()
        elif tag == "caption":
            self.inline.clear()
        else:
            self.inline.append(" ")

    def _leave_in_table(self, tag: str, table: _Table) -> None:
        if table.nested:
            table.nested -= tag == "table"
            self.inline.append(" ")
        elif tag in CELLS:
            self._read_into(table.open_cells.pop())
        elif tag == "caption":
            table.caption = self._line()
        elif tag == "thead":
            table.in_head = False
        elif tag == "table":
            self.table = None
            self.inline.clear()
            self._add_table(table)
        else:
            self.inline.append(" ")

    def _read_into(self, cell: Cell) -> None:
        """Add what was read since to a cell."""
        line = self._line()
        cell.text = f"{cell.text} {line}".strip() if cell.text else line

    def _add_table(self, table: _Table) -> None:
        group = self.builder.new_group()
        self.builder.add(BlockKind.CAPTION, table.caption, group=group)
        grid = resolve(table.rows)
        head = header_rows(table.rows)
        gap = "\n\n"
        header = [line for line in grid[:head] if any(line)]
        if header:
            text = "\n".join(map(_row_text, header))
            self.builder.add(BlockKind.TABLE_HEADER, text, group=group, cells=column_names(header))
            gap = "\n"
        for line in grid[head:]:
            if any(line):
                self.builder.add(BlockKind.TABLE_ROW, _row_text(line), gap=gap, group=group, cells=line)
                gap = "\n"

    def _line(self) -> str:
        """Return what was read since the last block as one line, and forget it."""
        text = "".join(self.inline).replace(_BREAK, " ")
        self.inline.clear()
        return normalize(_BLANKS.sub(" ", text)).replace("\n", " ").strip()

    def _flush(self) -> None:
        """Add what was read since the last block as the block that the open elements make of it."""
        if not self.inline:
            return
        text = "".join(self.inline)
        self.inline.clear()
        if self.pre:
            text = normalize(text).strip("\n").rstrip()
            self.builder.add(BlockKind.CODE, text, label=self.language, group=self.group if self.items else 0)
            return
        text = _AROUND_BREAK.sub(_BREAK, _BLANKS.sub(" ", text)).strip(" \x00")
        for paragraph in _PARAGRAPHS.split(text):
            self._add_text("\n".join([normalize(line).strip() for line in paragraph.split(_BREAK)]).strip())

    def _add_text(self, text: str) -> None:
        """Add one stretch of running text as a block of the kind that the open elements make of it."""
        if not text:
            return
        if self.heading:
            label = " ".join(text.split())
            self.builder.add(BlockKind.HEADING, label, level=self.heading, label=label)
        elif self.captions:
            self.builder.add(BlockKind.CAPTION, text)
        elif self.items:
            item = self.items[-1]
            indent = "  " * min(item.level - 1, 20)
            is_next = bool(self.builder.blocks) and self.builder.blocks[-1].group == self.group
            self.builder.add(
                BlockKind.LIST_ITEM,
                indent + ("  " if item.has_block else item.mark) + text,
                gap="\n" if is_next else "\n\n",
                level=item.level,
                group=self.group,
                attributes={"continued": "true"} if item.has_block else None,
            )
            item.has_block = True
        elif self.quotes:
            self.builder.add(BlockKind.QUOTE, text, group=self.quote_group)
        else:
            self.builder.add(BlockKind.PARAGRAPH, text)

    def _note_language(self, node: LexborNode) -> None:
        found = _LANGUAGE.search(node.attributes.get("class") or "")
        if found and not self.language:
            self.language = found[1]

    def _is_hidden(self, node: LexborNode, tag: str) -> bool:
        """Return whether an element is furniture of the page or hidden from readers."""
        attributes = node.attributes
        if tag in ("header", "footer") and not self.content:
            return node.css_first("h1") is None
        if not attributes:
            return False
        return (
            "hidden" in attributes
            or attributes.get("aria-hidden") == "true"
            or attributes.get("role") in FURNITURE_ROLES
            or bool(_HIDING_STYLE.search(attributes.get("style") or ""))
        )


def _span(value: str | None, least: int) -> int:
    """Return a colspan or rowspan as a number, 1 where it is none."""
    if value is None or not value.strip().isdecimal():
        return 1
    return max(least, min(int(value.strip()[:7]), 100_000))


def _row_text(cells: tuple[str, ...]) -> str:
    return " | ".join(cells).strip()


def _layout_tables(root: LexborNode) -> frozenset[int]:
    """Return the tables that only arrange a page: those with a heading or another table inside, and those of one cell."""
    layout: set[int] = set()
    cells: dict[int, int] = {}
    open_tables: list[tuple[int, LexborNode]] = []
    node: LexborNode | None = root
    while node is not None:
        tag = node.tag
        if tag == "table":
            if open_tables:
                layout.add(open_tables[-1][0])
            open_tables.append((node.mem_id, node))
            cells[node.mem_id] = 0
        elif open_tables and tag in CELLS:
            cells[open_tables[-1][0]] += 1
        elif open_tables and tag in HEADINGS:
            layout.add(open_tables[-1][0])
        following = node.child
        while following is None and node is not None:
            if open_tables and node.mem_id == open_tables[-1][0]:
                open_tables.pop()
            following = node.next
            if following is None:
                node = node.parent
        node = following
    return frozenset(layout | {table for table, count in cells.items() if count <= 1})


def _check_depth(html: str) -> None:
    """Raise UnreadableMarkup where elements are nested so deep that the tree would take quadratic time."""
    if html.count("<") <= _DEEPEST:
        return
    depth = 0
    for tag in _TAG.finditer(html):
        if tag[2].lower() in CLOSED_BY_PARSER:
            continue
        depth = max(0, depth - 1) if tag[1] else depth + 1
        if depth > _DEEPEST:
            raise UnreadableMarkup(
                f"elements nested more than {_DEEPEST} deep at character {tag.start()}: close them, or send the page as plain text"
            )


def _tree(html: str) -> LexborHTMLParser:
    _check_depth(html)
    return LexborHTMLParser(html)


def add_fragment(builder: Builder, html: str, item_level: int = 0, group: int = 0) -> None:
    """Add the visible text of a piece of HTML to a text that is being built, within a list item if `item_level` is above 0."""
    if "<" in html and "alt" not in html and not _TAG.sub("", html).strip():
        return
    renderer = _Renderer(builder, group=group)
    if item_level:
        renderer.items.append(_Item(item_level, "- ", has_block=True))
    root = _tree(f"<table>{html}</table>" if _TABLE_PART.match(html) else html).root
    if root is not None:
        renderer.layout_tables = _layout_tables(root)
        renderer.render(root)


def _parse(data: bytes | str, declared_charset: str | None = None) -> Parsed:
    if isinstance(data, bytes) and not declared_charset:
        found = _META_CHARSET.search(data[:4096]) or _XML_CHARSET.search(data[:1024])
        declared_charset = found[1].decode("ascii", "replace") if found else None
    html = text_of(data, declared_charset)
    declaration = _XML_DECLARATION.match(html)
    tree = _tree(html[declaration.end() :] if declaration else html)
    builder = Builder()
    root = tree.root
    if root is None:
        return builder.parsed()
    layout = _layout_tables(root) if "<table" in html.lower() else frozenset()
    _Renderer(builder, layout, bool(_MAY_HIDE.search(html))).render(root)
    title = tree.css_first("head > title")
    language = root.attributes.get("lang") or root.attributes.get("xml:lang") or ""
    return builder.parsed(" ".join(normalize(title.text()).split()) if title else "", language)


HTML = Parser("html", 1, _parse)
