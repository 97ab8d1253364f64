"""Atoms: the smallest stretches of a document that may share or not share a chunk, made from its blocks.

What belongs together is one atom while it fits: a heading with what follows it, a lead-in with its list, a table, a code block, a
quote, a paragraph. What does not fit is cut at the strongest marks that suffice; the pieces of a list repeat its lead-in and the
items they are nested in, the pieces of a table repeat its header rows. Looks at neighbours only; time is linear.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

from chunking.document import Block, BlockKind, Document
from chunking.pieces import GRAPHEME_RANK, Level, Weigh, head_within, is_likely_over, pieces, tail_within
from chunking.sentences import (
    cell_ends,
    comma_ends,
    line_ends,
    paragraph_ends,
    semicolon_ends,
    sentence_ends,
    space_ends,
)
from chunking.strategies.rows import row_sentence
from chunking.tally import Tally

GLUE = -1
"""Rank of a boundary that merges before all others: a heading or lead-in too long to be one atom with its text."""
SPACE, COMMA, SEMICOLON, SENTENCE, ROW, ITEM, BLOCK, CLAUSE = range(GRAPHEME_RANK + 1, GRAPHEME_RANK + 9)

PROSE = (
    Level(SENTENCE, "sentence", sentence_ends),
    Level(SEMICOLON, "semicolon", semicolon_ends),
    Level(COMMA, "comma", comma_ends),
    Level(SPACE, "space", space_ends),
)
PARAGRAPHS = (Level(ITEM, "paragraph", paragraph_ends), *PROSE)
CODE = (Level(ITEM, "blank line", paragraph_ends), Level(ROW, "line", line_ends), *PROSE)
CELLS = (Level(SEMICOLON, "cell", cell_ends), *PROSE)

_HEADING, _PARAGRAPH, _ITEM, _QUOTE = BlockKind.HEADING, BlockKind.PARAGRAPH, BlockKind.LIST_ITEM, BlockKind.QUOTE
_LEAD_IN = re.compile(r"[:：][*_`”’\"')）\s]*\Z")
_MARKER = re.compile(r"^\s*(?:[-*+•]|\d+[.)、．]|[（(]\S{1,4}[）)])\s*")
_TABLE = frozenset((BlockKind.CAPTION, BlockKind.TABLE_HEADER, BlockKind.TABLE_ROW))
_LED = _TABLE | {BlockKind.LIST_ITEM, BlockKind.CODE, BlockKind.QUOTE}
_RUNS = _TABLE | {BlockKind.LIST_ITEM, BlockKind.QUOTE}
_ANCESTORS = 3
_NAMES = {kind: str(kind) for kind in BlockKind}


def heading_rank(level: int) -> int:
    """Return the rank of the boundary before a heading: 14 for level 1, 9 for level 6."""
    return 15 - min(max(level, 1), 6)


_BEFORE_HEADING = {level: (heading_rank(level), f"heading {level}") for level in range(10)}


@dataclass(frozen=True, slots=True)
class Repeat:
    """Text said again before a chunk that begins here, its weight and its overlap kind."""

    text: str
    weight: int
    kind: str


@dataclass(slots=True)
class Atom:
    """text[start:end], up to where the next atom begins; `weight` counts all of it. rank, rule: of the boundary before it.

    block, last: indices of its first and last block. rendering: what the embedder reads instead of the source.
    """

    start: int
    end: int
    weight: int
    rank: int
    rule: str
    block: int
    last: int
    repeat: Repeat | None = None
    rendering: str | None = None


def build_atoms(document: Document, limit: int, weigh: Weigh, tally: Tally, *, rows_as_sentences: bool = False) -> list[Atom]:
    """Return the atoms of a document in order; each weighs at most `limit`, its repeat included. `tally`: of its text."""
    return _Builder(document, limit, weigh, tally, rows_as_sentences).build()


class _Builder:
    def __init__(self, document: Document, limit: int, weigh: Weigh, tally: Tally, rows_as_sentences: bool) -> None:
        self.text = document.text
        self.blocks = document.blocks
        self.limit = limit
        self.weigh = weigh
        self.size, self.sizes = tally.count, tally.counts
        self.rows_as_sentences = rows_as_sentences
        self.edges = _edges(document)
        self.weights = tally.counts(self.edges)  # of each block's part of the text
        self.atoms: list[Atom] = []
        self.head: int | None = None  # first block of the headings and lead-ins that wait for what follows
        self.head_weight = 0
        self.glue = False
        self.introduced: dict[int, int] = {}  # block of the lead-in by list group
        self.leads: dict[int, Repeat | None] = {}  # what it repeats, made when a list proves too long

    def build(self) -> list[Atom]:
        index, count, blocks = 0, len(self.blocks), self.blocks
        while index < count:
            kind = blocks[index].kind
            after = index + 1
            if kind is _PARAGRAPH:
                if after < count and blocks[after].kind in _LED and self._leads_in(index):
                    self._bind(index)
                elif not self._is_plain(index):
                    self._emit(index, after)
            elif kind is _HEADING:
                self._bind(index)
            else:
                if kind in _RUNS:
                    after = self._run_end(index)
                self._emit(index, after)
            index = after
        self._flush(count)
        return self.atoms

    def _is_plain(self, index: int) -> bool:
        """Make an atom of a paragraph that fits and that nothing is bound to, and return True: `_emit` for most of a text."""
        start, end, weight = self.edges[index], self.edges[index + 1], self.weights[index]
        if self.head is not None or self.glue or weight > self.limit or end - start > 2 * self.limit:
            return False
        rank, rule = (CLAUSE, "clause") if self.blocks[index].clause else (BLOCK, "paragraph")
        self.atoms.append(Atom(start, end, weight, rank, rule, index, index))
        return True

    # -- units

    def _run_end(self, index: int) -> int:
        """Return the end of the run of blocks that is one unit: a list, a table, a quote."""
        blocks, count = self.blocks, len(self.blocks)
        kind, group = blocks[index].kind, blocks[index].group
        after = index + 1
        if kind in _TABLE:
            while after < count and blocks[after].group == group and blocks[after].kind in _TABLE:
                after += 1
        else:
            while after < count and blocks[after].kind is kind and blocks[after].group == group:
                after += 1
        return after

    def _leads_in(self, index: int) -> bool:
        """Return whether a paragraph before a list or the like is bound to it: it ends with a colon."""
        span = self.blocks[index].span
        return _LEAD_IN.search(self.text, max(span.start, span.end - 40), span.end) is not None

    def _bind(self, index: int) -> None:
        weight = self.weights[index]
        if self.head_weight + weight > self.limit * 3 // 4:
            self._flush(index)
        if weight > self.limit * 3 // 4:
            self._emit(index, index + 1)
            self.glue = True
            return
        if self.head is None:
            self.head = index
        self.head_weight += weight

    def _flush(self, index: int) -> None:
        """Make an atom of waiting headings that nothing follows."""
        if self.head is None:
            return
        rank, rule = self._boundary(self.head, index)
        if index == len(self.blocks):
            rank, rule = GLUE, "bound to the text before"
        head, weight = self.head, self.head_weight
        self.head, self.head_weight = None, 0
        self.atoms.append(Atom(self.edges[head], self.edges[index], weight, rank, rule, head, index - 1))

    def _boundary(self, index: int, unit: int) -> tuple[int, str]:
        """Return rank and rule of the boundary before blocks[index], which waits for or is the unit at blocks[unit]."""
        if self.glue:
            self.glue = False
            return GLUE, "bound to the text before"
        if index + 1 == unit and self.blocks[index].kind is _HEADING:
            return _BEFORE_HEADING[self.blocks[index].level]
        if index < unit:
            levels = [block.level for block in self.blocks[index:unit] if block.kind is _HEADING]
            if levels:
                return _BEFORE_HEADING[min(levels)]
        block = self.blocks[index]
        if block.clause and block.kind is _PARAGRAPH:
            return CLAUSE, "clause"
        return BLOCK, _NAMES[block.kind]

    # -- atoms

    def _emit(self, index: int, after: int) -> None:
        block = self.blocks[index]
        kind = block.kind
        head = self.head if self.head is not None else index
        room = self.limit - self.head_weight
        rank, rule = self._boundary(head, index)
        repeat = None
        if kind is _ITEM:
            self._note_lead_in(index)
            repeat = self._lead_in(index) if self.head is None else None
        start, end = self.edges[index], self.edges[after]
        weight: int | None = None
        if self.rows_as_sentences and kind in _TABLE:
            parts = self._table(index, after, room)
        else:
            if end - start <= 2 * self.limit or not is_likely_over(self.text, start, end, self.limit):
                weight = self.weights[index] if after == index + 1 else self.size(start, end)
                if weight > room and weight <= room + (gap := end - self.blocks[after - 1].span.end):
                    weight = self.size(start, end - gap)
            if weight is not None and weight + (repeat.weight if repeat else 0) <= room:
                self.atoms.append(Atom(self.edges[head], end, self.head_weight + weight, rank, rule, head, after - 1, repeat))
                self.head, self.head_weight = None, 0
                return
            parts = self._parts(index, after, room, weight)
        if self.head is not None:
            first = parts[0]
            if self.head_weight + first.weight <= self.limit:
                parts[0] = Atom(
                    self.edges[head], first.end, self.head_weight + first.weight, rank, rule, head, first.last, None,
                    None if first.rendering is None else self.text[self.edges[head] : first.start] + first.rendering,
                )  # fmt: skip
            else:
                self._flush(index)
                parts[0].rank, parts[0].rule = GLUE, "bound to the text before"
        else:
            parts[0].rank, parts[0].rule = rank, rule
        self.atoms += parts
        self.head, self.head_weight = None, 0

    def _parts(self, index: int, after: int, room: int, weight: int | None) -> list[Atom]:
        kind = self.blocks[index].kind
        if kind in _TABLE:
            return self._table(index, after, room)
        if kind is BlockKind.LIST_ITEM:
            return self._list(index, after, room, self._lead_in(index))
        return self._cut(index, after, room, CODE if kind is BlockKind.CODE else PARAGRAPHS, weight=weight)

    def _cut(
        self,
        index: int,
        after: int,
        first: int,
        levels: tuple[Level, ...],
        repeat: Repeat | None = None,
        rank: int = BLOCK,
        weight: int | None = None,
    ) -> list[Atom]:
        extra = repeat.weight if repeat else 0
        found = pieces(
            self.text,
            self.edges[index],
            self.edges[after],
            limit=self.limit - extra,
            size=self.size,
            sizes=self.sizes,
            levels=levels,
            rank=rank,
            rule=str(self.blocks[index].kind),
            first=first,
            weight=weight,
        )
        atoms, block = [], index
        for piece in found:
            while block + 1 < after and self.edges[block + 1] <= piece.start:
                block += 1
            last = block
            while last + 1 < after and self.edges[last + 1] < piece.end:
                last += 1
            atoms.append(Atom(piece.start, piece.end, piece.weight, piece.rank, piece.rule, block, last, repeat))
        return atoms

    # -- lists

    def _note_lead_in(self, index: int) -> None:
        """Take note of what leads in the list whose item this is, for all parts of it."""
        block = self.blocks[index]
        if self.head is None or block.group in self.introduced:
            return
        if index and self.blocks[index - 1].kind is not BlockKind.HEADING:
            self.introduced[block.group] = index - 1

    def _lead_in(self, index: int) -> Repeat | None:
        """Return what a chunk that begins inside the list of this item repeats."""
        block = self.blocks[index]
        if block.group not in self.introduced:
            return None
        if block.group not in self.leads:
            self.leads[block.group] = self._repeat_of(self.blocks[self.introduced[block.group]])
        return self.leads[block.group]

    def _repeat_of(self, before: Block) -> Repeat | None:
        """Return a lead-in as a repeat, the last words of it where it is long."""
        sentence = self.text[before.span.start : before.span.end]
        room = self.limit // 3
        if self.weigh(sentence + "\n") > room:
            ends = sentence_ends(sentence, 0, len(sentence))
            sentence = sentence[ends[-2] if len(ends) > 1 else 0 :]
            sentence = tail_within(sentence, room - 1, self.weigh)
        sentence = sentence.strip()
        if not sentence:
            return None
        return Repeat(sentence + "\n", self.weigh(sentence + "\n"), "LEAD_IN")

    def _list(self, index: int, after: int, room: int, lead: Repeat | None) -> list[Atom]:
        atoms: list[Atom] = []
        open_items: list[int] = []  # blocks of the items that the current one is nested in
        made: dict[tuple[int, ...], Repeat | None] = {}
        for item in range(index, after):
            level = self.blocks[item].level
            while open_items and self.blocks[open_items[-1]].level >= level:
                open_items.pop()
            nested = tuple(open_items[-_ANCESTORS:])
            if nested not in made:
                made[nested] = self._with_ancestors(lead, nested)
            repeat = made[nested]
            open_items.append(item)
            extra = repeat.weight if repeat else 0
            limit = min(room, self.limit - extra) if item == index else self.limit - extra
            weight = self.weights[item]
            rank = ROW if open_items[:-1] else ITEM
            if weight <= limit:
                atoms.append(Atom(self.edges[item], self.edges[item + 1], weight, rank, "list item", item, item, repeat))
            else:
                atoms += self._cut(item, item + 1, limit, PARAGRAPHS, repeat, rank, weight)
        return atoms

    def _with_ancestors(self, lead: Repeat | None, nested: tuple[int, ...]) -> Repeat | None:
        """Return the lead-in with the first lines of the items that an item is nested in, within half the limit."""
        if not nested:
            return lead
        said = lead.text if lead else ""
        room = self.limit // 2 - (lead.weight if lead else 0)
        for item in nested:
            span = self.blocks[item].span
            line = self.text[span.start : span.end].split("\n", 1)[0].rstrip()
            if self.weigh(line + "\n") > room:
                line = head_within(_MARKER.sub("", line), max(0, room - 1), self.weigh)
            if line.strip():
                said += line + "\n"
                room -= self.weigh(line + "\n")
        return Repeat(said, self.weigh(said), "LEAD_IN") if said else None

    # -- tables

    def _table(self, index: int, after: int, room: int) -> list[Atom]:
        """Return an atom per row, the first one with caption and header; each repeats the header when a chunk begins with it."""
        top = index
        while top < after and self.blocks[top].kind is not BlockKind.TABLE_ROW:
            top += 1
        headers = [block for block in self.blocks[index:top] if block.kind is BlockKind.TABLE_HEADER]
        if top == after:
            return self._cut(index, after, room, CELLS)
        repeat = None if self.rows_as_sentences else self._header_repeat(headers, top)
        extra = repeat.weight if repeat else 0
        atoms: list[Atom] = []
        above = 0
        if top > index:
            above = self.size(self.edges[index], self.edges[top])
            if above > room:
                atoms = self._cut(index, top, room, CELLS)
                above = 0
        names = headers[-1].cells if headers else ()
        captions = [self.text[b.span.start : b.span.end] for b in self.blocks[index:top] if b.kind is BlockKind.CAPTION]
        for row in range(top, after):
            first_room = room if row == index else self.limit - extra
            begins = row == top and above > 0
            said = row_sentence(names, self.blocks[row]) + "\n" if self.rows_as_sentences else None
            if begins and said is not None:
                said = "\n".join([*captions, said])
            weight = self.weights[row] if said is None else self.weigh(said)
            if said is not None and weight > first_room - (self.head_weight if begins else 0):
                said = None
                weight = self.weights[row]
            if begins and (said is not None or above + weight <= room):
                total = weight if said is not None else above + weight
                atoms.append(Atom(self.edges[index], self.edges[row + 1], total, BLOCK, "table", index, row, None, said))
                continue
            if begins:
                atoms.append(Atom(self.edges[index], self.edges[top], above, BLOCK, "table", index, top - 1))
            if weight <= first_room:
                atoms.append(Atom(self.edges[row], self.edges[row + 1], weight, ROW, "row", row, row, repeat, said))
            else:
                atoms += self._cut(row, row + 1, first_room, CELLS, repeat, ROW, weight)
        return atoms

    def _header_repeat(self, headers: list[Block], top: int) -> Repeat | None:
        if not headers:
            return None
        said = self.text[headers[0].span.start : self.edges[top]].rstrip() + "\n"
        room = self.limit * 3 // 4
        if self.weigh(said) > room:
            said = head_within(said, room, self.weigh)
        return Repeat(said, self.weigh(said), "TABLE_HEADER") if said.strip() else None


def _edges(document: Document) -> list[int]:
    """Return where each block's part of the text begins, and the end: at the line of the block, so that tokens add up."""
    text = document.text
    edges = []
    position = 0
    for block in document.blocks:
        start = block.span.start
        is_line = start > 0 and text[start - 1] == "\n"
        edges.append(start if is_line else max(position, text.rfind("\n", position, start) + 1))
        position = block.span.end
    if edges:
        edges.append(position)
    return edges
