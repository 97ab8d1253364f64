"""FlatText: windows over the running text, without regard to blocks: sizes, overlaps, and spans for the flat strategies.

A passage's span runs to the end of the blanks on its last line (a separator stays with what it ends), but never over a line feed.
Those hanging blanks do not count as size in characters. An overlap is the text right before the span, said again.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from pydantic import Field, model_validator

from chunking.document import Document, Span
from chunking.graphemes import cut_after
from chunking.packing import NO_WALL, merge_order, pack_by_strength, pack_greedily
from chunking.passage import Overlap, Passage
from chunking.pieces import Level, Piece, Weigh, first_within, pieces, tail_within
from chunking.strategies.base import Budget, Options
from chunking.strategies.places import Places
from chunking.strategies.visible import is_blank, is_worthless

_HANGING = 4
"""Blanks at the end of a line that a passage keeps; a longer run is left out."""
_CHARACTERS_A_TOKEN = 8


class Windows(Options):
    """Options that windows share. size, overlap: in `unit`; the overlap is part of the size and below it."""

    size: int = Field(ge=1)
    overlap: int = Field(ge=0)
    unit: Literal["characters", "tokens"] = "characters"

    @model_validator(mode="after")
    def _advances(self) -> Windows:
        if self.overlap >= self.size:
            raise ValueError(f"overlap {self.overlap} must be below size {self.size}, or the window never advances")
        return self


@dataclass(frozen=True, slots=True)
class Sizes:
    """size, overlap: in units of `weigh`; the overlap is part of the size, and only a single grapheme cluster may be larger.

    hard_limit: nothing is above it by `hard_weigh`. whole_parts: an overlap begins at a boundary of the first level, or
    there is none.
    """

    size: int
    overlap: int
    weigh: Weigh
    hard_limit: int
    hard_weigh: Weigh
    whole_parts: bool = False


def sizes_of(size: int, overlap: int, unit: str, hard_limit: int, budget: Budget) -> Sizes:
    """Return sizes in ``characters`` or ``tokens`` under a hard limit in tokens; sizes in tokens never exceed it."""
    count = budget.counter.count
    if unit == "characters":
        return Sizes(size, overlap, len, hard_limit, count)
    size = min(size, hard_limit)
    return Sizes(size, min(overlap, size - 1), count, hard_limit, count)


class FlatText:
    """Cuts the running text of one document into passages of one strategy."""

    def __init__(self, document: Document, strategy: str, sizes: Sizes, levels: Sequence[Level], overlap_kind: str) -> None:
        self.text = document.text
        self.strategy = strategy
        self.sizes = sizes
        self.levels = levels
        self.overlap_kind = overlap_kind
        self.places = Places(document)
        self.start = document.blocks[0].span.start if document.blocks else 0
        self.end = document.blocks[-1].span.end if document.blocks else 0

    def pieces(self, body: int | None = None) -> list[Piece]:
        """Return the running text in pieces of at most `body`, the first of at most the size (both where `body` is not given).

        Hanging blanks are left out of account.
        """
        return self.pieces_of(self.start, self.end, NO_WALL - 1, "start", body)

    def pieces_of(self, start: int, end: int, rank: int, rule: str, body: int | None = None) -> list[Piece]:
        """Return text[start:end] in pieces, as `pieces` does for all of the text. rank, rule: of the boundary before the first."""
        weigh = self.sizes.weigh
        if start == end:
            return []
        if weigh is len and end - start <= (body or self.sizes.size):
            return [Piece(start, end, len(self.text[start:end].rstrip()), rank, rule)]
        return pieces(
            self.text,
            start,
            end,
            limit=body or self.sizes.size,
            first=self.sizes.size,
            size=lambda begin, stop: weigh(self.text[begin:stop].rstrip()),
            levels=self.levels,
            rank=rank,
            rule=rule,
            whole_clusters=True,
            guess=not self.sizes.whole_parts,
        )

    def pack(self, found: Sequence[Piece], *, greedy: bool) -> list[list[Piece]]:
        """Return the pieces in groups that fit the size with their overlap."""
        if not found:
            return []
        weigh, size = self.sizes.weigh, self.sizes.size
        weights = [weigh(self.text[piece.start : piece.end]) for piece in found]
        slacks = [max(0, weight - piece.weight) for weight, piece in zip(weights, found, strict=True)]
        extras = [0, *(max(0, min(self.sizes.overlap, size - piece.weight)) for piece in found[1:])]
        ranks = [piece.rank for piece in found]
        if greedy:
            cuts = pack_greedily(weights, extras, ranks, size, NO_WALL, slacks)
        else:
            order = merge_order(self.text, [piece.start for piece in found], found[-1].end, ranks)
            cuts = pack_by_strength(weights, extras, ranks, order, size, NO_WALL, slacks)
        return [list(found[first:after]) for first, after in zip(cuts, [*cuts[1:], len(found)], strict=True)]

    def passages(self, groups: Sequence[Sequence[Piece]]) -> list[Passage]:
        """Return a passage for each group that shows something. What is above the hard limit is cut again."""
        made: list[Passage] = []
        queue = [list(group) for group in groups][::-1]
        while queue:
            group = queue.pop()
            span = self._span(group[0].start, group[-1].end)
            body = span.of(self.text)
            if is_blank(body) or (len(body) <= 400 and is_worthless(body)):
                continue
            before = made[-1].span if made else None
            repeat = self._overlap(before, span)
            if self._too_heavy(body):
                queue += self._smaller(group)
                continue
            if repeat and self._too_heavy(repeat + body):
                repeat = ""
            place = self.places.of(span)
            made.append(
                Passage(
                    span=span,
                    kind=place.kind,
                    strategy=self.strategy,
                    heading_path=place.heading_path,
                    clause=place.clause,
                    parts=self.places.parts_of(span),
                    repeat=repeat,
                    overlap=Overlap(self.overlap_kind) if repeat else None,
                    page=place.page,
                    boundary=f"{group[0].rank}:{group[0].rule}",
                )
            )
        return made

    def _span(self, start: int, end: int) -> Span:
        body = self.text[start:end]
        tail = len(body.rstrip())
        hanging = body[tail:]
        if "\n" not in hanging and len(hanging) <= _HANGING:
            tail = len(body)
        lead = len(body) - len(body.lstrip())
        lead = min(body.rfind("\n", 0, lead) + 1, tail)
        return Span(start + lead, start + max(lead, tail))

    def _too_heavy(self, text: str) -> bool:
        # A token is a byte at least, so short text needs no count.
        return 4 * len(text) > self.sizes.hard_limit and self.sizes.hard_weigh(text) > self.sizes.hard_limit

    def _smaller(self, group: list[Piece]) -> list[list[Piece]]:
        """Return a group over the hard limit as smaller ones, the first one last."""
        if len(group) > 1:
            cut = max(range(1, len(group)), key=lambda i: (group[i].rank, -abs(2 * i - len(group)), i))
            return [group[cut:], group[:cut]]
        piece = group[0]
        found = pieces(
            self.text,
            piece.start,
            piece.end,
            limit=max(1, self.sizes.hard_limit * 3 // 4),
            size=lambda begin, stop: self.sizes.hard_weigh(self.text[begin:stop]),
            levels=self.levels,
            rank=piece.rank,
            rule=piece.rule,
        )
        if len(found) == 1:
            middle = cut_after(self.text, (piece.start + piece.end + 1) // 2, piece.start)
            if not piece.start < middle < piece.end:
                middle = (piece.start + piece.end + 1) // 2
            found = [
                Piece(piece.start, middle, piece.weight, piece.rank, piece.rule),
                Piece(middle, piece.end, piece.weight, 0, "grapheme"),
            ]
        return [[one] for one in found[::-1]]

    def _overlap(self, before: Span | None, span: Span) -> str:
        """Return the text right before `span`, at most the overlap and not beyond the passage before; begins at a separator."""
        if before is None or self.sizes.overlap <= 0:
            return ""
        weigh = self.sizes.weigh
        room = min(self.sizes.overlap, self.sizes.size - weigh(span.of(self.text).rstrip()))
        if room <= 0:
            return ""
        end = span.start
        if end - before.start <= room * _CHARACTERS_A_TOKEN and weigh(self.text[before.start : end]) <= room:
            return self.text[before.start : end]
        window = max(before.start, end - room * (1 if weigh is len else _CHARACTERS_A_TOKEN))
        window = cut_after(self.text, window, before.start)
        for level in self.levels:
            ends = level.ends(self.text, window, end)[:-1]
            stop = first_within(ends, end, room, lambda begin, stop: weigh(self.text[begin:stop]))
            if stop is not None and (self.sizes.whole_parts or 3 * weigh(self.text[stop:end]) >= room):
                return self._shown(self.text[stop:end])
            if self.sizes.whole_parts:
                return ""
        return self._shown(tail_within(self.text[window:end], room, weigh))

    @staticmethod
    def _shown(text: str) -> str:
        return "" if is_blank(text) else text
