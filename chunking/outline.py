"""outline(): the structure that a text carries in its words, the same for Markdown, HTML and plain text.

Lines that begin a chapter become headings, lines that begin a clause begin a block, enumerated lines become list items. Real
headings stay as they are; headings found in the text are ranked below the real ones around them. Contents pages are left alone.
"""

from __future__ import annotations

from bisect import bisect_right
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

from chunking.clauses import LONGEST_LINE, Mark, Marks, Rules, is_contents_line, rule_set
from chunking.document import Block, BlockKind, Document, Span
from chunking.quick import quick

DEFAULT = rule_set()
_DEEPEST_HEADING = 6
_UNRANKED = -1
_block, _span = quick(Block), quick(Span)
_HEADING, _ITEM, _PARAGRAPH = BlockKind.HEADING, BlockKind.LIST_ITEM, BlockKind.PARAGRAPH


@dataclass(slots=True)
class _Line:
    """A line of a paragraph that begins something; `is_title` where it becomes a heading, `is_dropped` where it is only text."""

    block: int
    start: int
    end: int
    mark: Mark
    is_title: bool
    is_dropped: bool = False


@dataclass(slots=True)
class _Title:
    """A title among others: a line of text, or a block that is one already. An unnumbered heading stands above all numbers."""

    start: int
    end: int
    label: str
    rank: int
    is_chapter: bool
    line: _Line | None = None


def outline(document: Document, rules: Rules = DEFAULT) -> Document:
    """Return the document with chapters, clauses and enumerations found in its paragraphs as blocks of their own.

    The text is the same. New headings have a level and a label, blocks that begin a clause have `clause`; both and list items
    carry the attributes `rule` and `rank` (smaller stands higher). Applying it twice changes nothing more.
    """
    lines = _marked_lines(document, rules)
    marks = {
        index: rules.match(block.label) if block.label else None
        for index, block in enumerate(document.blocks)
        if block.kind is _HEADING
    }
    if not lines and not any(marks.values()):
        return document
    _leave_out_contents(document, lines, marks)
    by_block: dict[int, list[_Line]] = {}
    for line in lines:
        if not line.is_dropped:
            by_block.setdefault(line.block, []).append(line)
    levels = _Levels()
    groups = max((block.group for block in document.blocks), default=0)
    items: list[int] = []
    blocks: list[Block] = []
    for index, block in enumerate(document.blocks):
        if block.kind is _HEADING:
            blocks.append(levels.real(block, marks[index]))
            items.clear()
            continue
        marked = by_block.get(index)
        if marked is None:
            blocks.append(block)
            items.clear()
            continue
        for span, mark, is_title in _pieces(document.text, block, marked):
            if mark is None:
                blocks.append(_block(block.kind, span, page=block.page, attributes=block.attributes))
                items.clear()
            elif is_title:
                level = levels.found(mark)
                blocks.append(_marked(block, span, mark, _HEADING, level=level, label=mark.label))
                items.clear()
            elif mark.rule.marks is Marks.ITEM or mark.rule.name in ("head", "roman"):
                if not items:
                    groups += 1
                while items and items[-1] >= mark.rank:
                    items.pop()
                items.append(mark.rank)
                blocks.append(_marked(block, span, mark, _ITEM, level=len(items), group=groups))
            else:
                blocks.append(_marked(block, span, mark, block.kind))
                items.clear()
    return replace(document, blocks=tuple(blocks))


def heading_paths(blocks: Iterable[Block]) -> list[tuple[str, ...]]:
    """Return for every block the titles above it, outermost first. A heading stands in its own path; empty titles are left out."""
    paths: list[tuple[str, ...]] = []
    stack: list[tuple[int, str]] = []
    path: tuple[str, ...] = ()
    for block in blocks:
        if block.kind is _HEADING:
            level = block.level
            while stack and stack[-1][0] >= level:
                stack.pop()
            stack.append((level, block.label))
            path = tuple([label for _, label in stack if label])
        paths.append(path)
    return paths


def clauses_of(blocks: Iterable[Block]) -> list[str]:
    """Return for every block the number of the clause it stands in, an item's behind its clause's (第十条（一）).

    A heading without a number ends the clause before it.
    """
    clauses: list[str] = []
    current = ""
    for block in blocks:
        if block.kind is _ITEM:
            clauses.append(current + block.clause)
            continue
        if block.clause or block.kind is _HEADING:
            current = block.clause
        clauses.append(current)
    return clauses


class _Levels:
    """Levels of headings: real ones keep theirs, found ones are ranked below the real ones that are open."""

    def __init__(self) -> None:
        self._open: list[tuple[int, int]] = []

    def real(self, block: Block, mark: Mark | None) -> Block:
        """Take note of a real heading. Return it, with its clause where its title begins with a number."""
        while self._open and self._open[-1][1] >= block.level:
            self._open.pop()
        rank = mark.rank if mark is not None and mark.rule.marks is not Marks.ITEM else _UNRANKED
        self._open.append((rank, block.level))
        if mark is None or rank == _UNRANKED:
            return block
        return _marked(block, block.span, mark, block.kind, level=block.level, label=block.label)

    def found(self, mark: Mark) -> int:
        """Return the level of a line of text as a heading."""
        level = 0
        while self._open and self._open[-1][0] >= mark.rank:
            rank, open_level = self._open.pop()
            level = open_level if rank == mark.rank else 0
        level = level or min(_DEEPEST_HEADING, (self._open[-1][1] if self._open else 0) + 1)
        self._open.append((mark.rank, level))
        return level


def _marked(block: Block, span: Span, mark: Mark, kind: BlockKind, *, level: int = 0, label: str = "", group: int = 0) -> Block:
    """Return the part of a block that a mark begins."""
    attributes = {**block.attributes, "rule": mark.rule.name, "rank": str(mark.rank)}
    return _block(kind, span, level, label, mark.clause, group, block.cells, block.page, attributes)


def _marked_lines(document: Document, rules: Rules) -> list[_Line]:
    """Return the lines of paragraphs that begin something, in order."""
    text, blocks = document.text, document.blocks
    starts = [block.span.start for block in blocks]
    lines: list[_Line] = []
    for begin, visible in rules.lines(text):
        index = bisect_right(starts, visible) - 1
        if index < 0:
            continue
        block = blocks[index]
        if block.kind is not _PARAGRAPH or visible >= block.span.end:
            continue
        start = max(begin, block.span.start)
        if "\n" in text[start:visible]:
            continue
        end = text.find("\n", visible, block.span.end)
        end = block.span.end if end < 0 else end
        mark = rules.match(text[start : min(end, start + LONGEST_LINE + 1)])
        if mark is None or (_goes_on(text, block, start, lines) and mark.rule.marks in (Marks.ITEM, Marks.TITLE)):
            continue
        start = visible - 2 if text[start:visible].endswith(("**", "__")) else visible
        is_short = end - start <= LONGEST_LINE
        lines.append(_Line(index, start, end, mark, mark.is_title and is_short))
    return lines


def _goes_on(text: str, block: Block, start: int, lines: Sequence[_Line]) -> bool:
    """Return whether the line before it in its paragraph is unfinished: it ends in a letter and begins nothing itself."""
    if start <= block.span.start or (lines and lines[-1].end == start - 1):
        return False
    return text[start - 2 : start - 1].isalnum() if start >= 2 else False


def _leave_out_contents(document: Document, lines: Sequence[_Line], marks: Mapping[int, Mark | None]) -> None:
    """Decide which lines are no titles: entries of a contents page, and numbered lines with no text of their own."""
    if not any(line.is_title for line in lines):
        return
    titles = [_Title(line.start, line.end, line.mark.label, line.mark.rank, _is_chapter(line.mark), line) for line in lines]
    for index, block in enumerate(document.blocks):
        if index in marks:
            mark = marks[index]
            rank = mark.rank if mark is not None else _UNRANKED
            titles.append(_Title(block.span.start, block.span.end, block.label, rank, mark is None or _is_chapter(mark)))
        elif "rank" in block.attributes and block.kind is _ITEM:
            titles.append(_Title(block.span.start, block.span.end, "", int(block.attributes["rank"]), False))
    titles.sort(key=lambda title: title.start)
    said = Counter(title.label for title in titles if title.is_chapter)
    run: list[_Title] = []
    for title, following in zip(titles, [*titles[1:], None], strict=True):
        is_bare = following is not None and not document.text[title.end : following.start].strip()
        if not title.is_chapter:
            if is_bare and following is not None and following.rank <= title.rank and title.line is not None:
                _drop(title.line)
            continue
        run.append(title)
        if not is_bare or following is None or not following.is_chapter:
            _settle(run, said)
            run = []


def _is_chapter(mark: Mark) -> bool:
    return mark.rule.marks is Marks.HEADING


def _settle(run: Sequence[_Title], said: Counter[str]) -> None:
    """Drop the contents entries of one run of chapters and take the run out of `said`, which counts the titles still ahead.

    A chapter followed at once by one of its rank or higher has no text of its own; two such make a contents page.
    """
    said.subtract(title.label for title in run)
    bare = [place for place in range(len(run) - 1) if run[place + 1].rank <= run[place].rank]
    for place, title in enumerate(run):
        if title.line is None:
            continue
        if is_contents_line(title.line.mark.rest) or (len(bare) >= 2 and (place <= bare[-1] or said[title.label] > 0)):
            _drop(title.line)


def _drop(line: _Line) -> None:
    """Take a line for no title: a clause stays a clause, a chapter's line is only text."""
    line.is_title = False
    line.is_dropped = line.mark.rule.marks is Marks.HEADING


def _pieces(text: str, block: Block, lines: Sequence[_Line]) -> Iterable[tuple[Span, Mark | None, bool]]:
    """Yield the parts of a paragraph: what stands before its first marked line, then a part for each of them."""
    cuts: list[tuple[int, Mark | None, bool]] = []
    if lines[0].start > block.span.start:
        cuts.append((block.span.start, None, False))
    for line in lines:
        cuts.append((line.start, line.mark, line.is_title))
        if line.is_title and line.end < block.span.end:
            cuts.append((line.end, None, False))
    for place, (start, mark, is_title) in enumerate(cuts):
        end = cuts[place + 1][0] if place + 1 < len(cuts) else block.span.end
        piece = text[start:end]
        start += len(piece) - len(piece.lstrip())
        end -= len(piece) - len(piece.rstrip())
        if start < end:
            yield _span(start, end), mark, is_title
