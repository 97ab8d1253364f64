"""The plain part of Markdown at the speed of a line scan; everything else goes to markdown-it.

At top level, behind a blank line, most of a page is plain: paragraphs, ``#`` headings, fences, rules, lists of one-line items,
pipe tables. Such lines are taken directly. Whatever could be anything else goes, up to the next line that surely begins
something new at top level, to the full parser. Both ways give the same blocks (a property test holds them together).
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from markdown_it.common.html_blocks import block_names
from markdown_it.rules_block.table import escapedSplit
from markdown_it.token import Token

from chunking.parsers.markdown_walk import Walk

_SPECIAL = frozenset("#>-+*=_`~<|: \t0123456789")
_INDENTED = re.compile(r" {4}| {0,3}\t")
_ORDERED = re.compile(r"\d{1,9}[.)](?:[ \t]|\Z)")
_HEADING = re.compile(r"(#{1,6})(?=[ \t]|\Z)")
_FENCE = re.compile(r"(?:(`{3,})([^`]*)|(~{3,})(.*))\Z")
_INTERRUPTS = re.compile(r" {0,3}(?:>|[-+*][ \t]+[^ \t]|1[.)][ \t]+[^ \t])")
_RULE = re.compile(r"(?:(?:\*[ \t]*){3,}|(?:-[ \t]*){3,}|(?:_[ \t]*){3,})\Z")
_ITEM = re.compile(r"( *)([-+*]|\d{1,9}[.)]) (?=[^ \t])")
_DELIMITERS = re.compile(r"\|?(?:[ \t]*:?-+:?[ \t]*\|)*[ \t]*:?-+:?[ \t]*\|?[ \t]*\Z")
_RAW_START = re.compile(r"<(?:!--|\?|![A-Za-z]|!\[CDATA\[|(?:script|pre|style|textarea)(?=[\s>]|$))", re.IGNORECASE | re.MULTILINE)
_HTML_START = re.compile(rf"{_RAW_START.pattern}|</?(?:{'|'.join(block_names)})(?=[\s/>]|$)", re.IGNORECASE | re.MULTILINE)
_MOST_RETRIES = 8
_DEEPEST_LIST = 8

Parse = Callable[[str], list[Token]]


def scan(walk: Walk, lines: Sequence[str], parse: Parse) -> None:
    """Add the blocks of all lines to `walk`. `parse` gives the block tokens of a stretch of source."""
    line, count = 0, len(lines)
    while line < count:
        text = lines[line]
        if not text or not text.strip(" \t"):
            line += 1
            continue
        after = -1 if walk.hidden_until else _plain_block(walk, lines, line, text)
        line = after if after > line else _other_block(walk, lines, line, parse)


def _plain_block(walk: Walk, lines: Sequence[str], line: int, text: str) -> int:
    """Add the block that begins on this line and return the line behind it, or -1 where it is not plain."""
    first = text[0]
    if first not in _SPECIAL or (_INDENTED.match(text) is None and _is_inert(text)):
        end = _paragraph_end(lines, line + 1)
        if end < 0:
            return -1
        walk.paragraph(line, end)
        return end
    if first == "#":
        heading = _HEADING.match(text)
        if heading is None:
            return -1
        walk.heading(line, line + 1, len(heading[1]), _heading_content(text[heading.end() :]))
        return line + 1
    if first in "`~":
        return _fence(walk, lines, line, text)
    if first == "|":
        return _table(walk, lines, line)
    if text.startswith("<!--"):
        return _comment(walk, lines, line)
    if first in "-*_" and _RULE.match(text):
        walk.rule(line, line + 1)
        return line + 1
    if first in "-+*0123456789":
        return _list(walk, lines, line)
    return -1


def _is_inert(text: str) -> bool:
    """Return whether a line that is not blank can't begin, end or underline anything: it can only be text of a paragraph."""
    first = text[0]
    if first not in _SPECIAL:
        return True
    if first in " \t":
        return _is_inert(text.lstrip(" \t"))
    if first.isdigit():
        return _ORDERED.match(text) is None
    if first == "#":
        return _HEADING.match(text) is None
    if first in "`~":
        return not text.startswith(("```", "~~~"))
    if first in "*_+":
        return text[1:2] not in ("", " ", "\t") and text.strip("*_ \t") != ""
    if first == "-":
        return text[1:2] not in ("", " ", "\t") and text.strip("-:| \t") != ""
    if first == "=":
        return text.strip("= \t") != ""
    if first == "<":
        return text.rstrip(" \t")[-1] != ">" and _HTML_START.match(text) is None
    return first == ":" and ("-" not in text or text.strip("-:| \t") != "")


def _paragraph_end(lines: Sequence[str], line: int) -> int:
    """Return the line behind a paragraph's plain lines, or -1 where one of them might be something else."""
    count = len(lines)
    while line < count:
        text = lines[line]
        if not text:
            return line
        first = text[0]
        if first in _SPECIAL:
            if not text.strip(" \t") or (first == "#" and _HEADING.match(text)):
                return line
            if not _is_inert(text):
                return line if _INTERRUPTS.match(text) or (first in "`~" and _FENCE.match(text)) else -1
        line += 1
    return line


def _heading_content(text: str) -> str:
    text = text.strip(" \t")
    bare = text.rstrip("#")
    if bare != text and (not bare or bare[-1] in " \t"):
        return bare.rstrip(" \t")
    return text


def _fence(walk: Walk, lines: Sequence[str], line: int, text: str) -> int:
    fence = _FENCE.match(text)
    if fence is None:
        return -1
    mark = fence[1] or fence[3]
    end = line + 1
    while end < len(lines):
        closing = lines[end]
        if mark in closing:
            bare = closing.strip(" \t")
            indent = closing[: len(closing) - len(closing.lstrip(" \t"))]
            if bare.strip(mark[0]) == "" and len(indent) <= 3 and "\t" not in indent:
                walk.code(line, end + 1, fence[2] or fence[4] or "")
                return end + 1
        end += 1
    walk.code(line, end, fence[2] or fence[4] or "")
    return end


def _comment(walk: Walk, lines: Sequence[str], line: int) -> int:
    """Leave a comment out that stands alone on its lines."""
    for end in range(line, len(lines)):
        _, closer, rest = lines[end].partition("-->")
        if closer:
            if rest.strip(" \t"):
                return -1
            walk.rule(line, end + 1)
            return end + 1
    return -1


def _table(walk: Walk, lines: Sequence[str], line: int) -> int:
    """Add a table whose every line begins with a bar."""
    if line + 1 >= len(lines) or lines[line + 1][:1] != "|" or not _DELIMITERS.match(lines[line + 1]):
        return -1
    header = _cells(lines[line])
    columns = [piece.strip(" \t") for piece in lines[line + 1].split("|")]
    if not header or len(header) != len([piece for piece in columns if piece]):
        return -1
    end = line + 2
    while end < len(lines) and lines[end][:1] == "|":
        end += 1
    if end < len(lines) and lines[end].strip(" \t"):
        return -1
    rows = [_cells(lines[row]) for row in range(line + 2, end)]
    if sum(max(0, len(header) - len(row)) for row in rows) > 1_000:
        return -1
    walk.table(line, header, [(row[: len(header)] + [""] * (len(header) - len(row))) for row in rows])
    return end


def _cells(text: str) -> list[str]:
    cells = escapedSplit(text.strip(" \t"))
    if cells and cells[0] == "":
        cells.pop(0)
    if cells and cells[-1] == "":
        cells.pop()
    return [cell.strip(" \t") for cell in cells]


@dataclass(slots=True)
class _Piece:
    """Lines of a list: text of an item of this level, or code within it (`info` is what its fence says)."""

    start: int
    end: int
    level: int
    info: str | None = None
    continued: bool = False


def _list(walk: Walk, lines: Sequence[str], line: int) -> int:
    """Add a list whose items are plain paragraphs and fences, each indented as an item of its level."""
    pieces: list[_Piece] = []
    open_items: list[tuple[int, int, str]] = []
    at, count, after_blank = line, len(lines), False
    while at < count:
        text = lines[at]
        if not text or not text.strip(" \t"):
            after_blank = True
            at += 1
            continue
        item = _ITEM.match(text)
        if item is not None:
            if not _opens(item, text, open_items, is_first=not pieces):
                return -1
            pieces.append(_Piece(at, at + 1, len(open_items)))
            at += 1
        elif _HEADING.match(text) or (after_blank and text[0] not in " \t" and not _ITEM_START.match(text)):
            break
        else:
            at = _more_of_item(lines, at, after_blank, open_items, pieces)
            if at < 0:
                return -1
        after_blank = False
    group = walk.builder.new_group()
    for piece in pieces:
        if piece.info is None:
            walk.item(piece.start, piece.end, piece.level, group, continued=piece.continued)
        else:
            walk.code(piece.start, piece.end, piece.info, group)
    return pieces[-1].end


def _opens(item: re.Match[str], text: str, open_items: list[tuple[int, int, str]], *, is_first: bool) -> bool:
    """Open the item of this line among those open (indent, offset of the content, kind). Return False where it is not plain."""
    content = text[item.end() :]
    if content[0] == "|" or not _is_inert(content):
        return False
    indent, kind = len(item[1]), item[2][-1]
    while open_items and indent < open_items[-1][0]:
        open_items.pop()
    if not open_items:
        if not is_first or indent:
            return False
    elif indent == open_items[-1][0]:
        if open_items[-1][2] != kind:
            return False
        open_items.pop()
    elif not open_items[-1][1] <= indent <= open_items[-1][1] + 3 or (kind in ".)" and item[2][:-1] != "1"):
        return False
    open_items.append((indent, item.end(), kind))
    return len(open_items) <= _DEEPEST_LIST


def _more_of_item(
    lines: Sequence[str], at: int, after_blank: bool, open_items: list[tuple[int, int, str]], pieces: list[_Piece]
) -> int:
    """Add a further line of an item, or a fence within it, to `pieces`. Return the line behind it, or -1 where it is not plain."""
    text = lines[at]
    bare = text.lstrip(" ")
    indent = len(text) - len(bare)
    if bare[0] == "\t":
        return -1
    if bare.startswith(("```", "~~~")):
        fence = _FENCE.match(bare)
        content = open_items[-1][1]
        if fence is None or not content <= indent <= content + 3:
            return -1
        end = _fence_end(lines, at, fence[1] or fence[3], content)
        if end >= 0:
            pieces.append(_Piece(at, end, len(open_items), fence[2] or fence[4] or ""))
        return end
    if not _is_inert(bare):
        return -1
    if not after_blank:
        if pieces[-1].info is not None:
            return -1
        pieces[-1].end = at + 1
        return at + 1
    was_open = len(open_items)
    while open_items and indent < open_items[-1][1]:
        open_items.pop()
    if not open_items or indent > open_items[-1][1] + 3 or bare[0] == "|":
        return -1
    if len(open_items) == was_open and pieces[-1].info is None:
        pieces[-1].end = at + 1
    else:
        pieces.append(_Piece(at, at + 1, len(open_items), continued=True))
    return at + 1


def _fence_end(lines: Sequence[str], at: int, mark: str, content: int) -> int:
    """Return the line behind the closing line of a fence within an item, or -1 where it has none in the item."""
    for end in range(at + 1, len(lines)):
        text = lines[end]
        bare = text.lstrip(" ")
        if not bare.strip("\t"):
            continue
        indent = len(text) - len(bare)
        if bare[0] == "\t" or indent < content:
            return -1
        if bare.startswith(mark) and not bare.strip(" \t").strip(mark[0]) and indent <= content + 3:
            return end + 1
    return -1


def _other_block(walk: Walk, lines: Sequence[str], line: int, parse: Parse) -> int:
    """Add everything up to the next sure beginning by the full parser. Return the line behind it."""
    end = len(lines) if walk.hidden_until else _sure_beginning(lines, line)
    for attempt in range(_MOST_RETRIES + 1):
        tokens = parse("\n".join(lines[line:end]))
        if end >= len(lines) or not _is_left_open(tokens, end - line):
            break
        end = _sure_beginning(lines, end) if attempt < _MOST_RETRIES - 1 else len(lines)
    walk.walk(tokens, line, end)
    return end


def _sure_beginning(lines: Sequence[str], line: int) -> int:
    """Return the next line that begins a block at top level whatever stood before it, open fences and raw HTML excepted."""
    for at in range(line + 1, len(lines)):
        if lines[at - 1].strip(" \t"):
            continue
        text = lines[at]
        if text and text[0] not in " \t>" and text.strip(" \t") and not _ITEM_START.match(text):
            return at
    return len(lines)


_ITEM_START = re.compile(r"(?:[-+*]|\d{1,9}[.)])(?:[ \t]|\Z)")


def _is_left_open(tokens: Sequence[Token], count: int) -> bool:
    """Return whether the last block at top level might go on behind the stretch: an unclosed fence or raw HTML."""
    last = next((token for token in reversed(tokens) if token.level == 0 and token.map is not None), None)
    if last is None or last.map is None:
        return False
    if last.type == "fence":
        return True
    return last.type == "html_block" and _RAW_START.match(last.content.lstrip(" ")) is not None
