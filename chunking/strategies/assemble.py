"""Groups of atoms become passages: spans trimmed, sizes proved, place, repeat and rendering set."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from operator import attrgetter

from chunking.document import Document
from chunking.passage import Overlap, Passage
from chunking.pieces import Weigh, pieces
from chunking.quick import quick
from chunking.strategies.atoms import PROSE, Atom
from chunking.strategies.places import Places
from chunking.strategies.visible import is_blank, is_worthless, trimmed
from chunking.tally import Tally

_passage = quick(Passage)
_rendering = attrgetter("rendering")


class Assembler:
    """Makes the passages of one document, each within `limit` by `weigh`, repeats included. `tally`: the same, of its text."""

    def __init__(self, document: Document, strategy: str, limit: int, weigh: Weigh, tally: Tally) -> None:
        self.text = document.text
        self.blocks = document.blocks
        self.strategy = strategy
        self.limit = limit
        self.weigh = weigh
        self.tally = tally
        self.places = Places(document)

    def passages(self, atoms: list[Atom], cuts: Sequence[int]) -> list[Passage]:
        """Return a passage for each group of atoms; groups begin at `cuts`. Blanks and rules join a neighbour or go."""
        groups = [atoms[first:after] for first, after in itertools.pairwise([*cuts, len(atoms)])]
        found: list[Passage] = []
        for whole in self._without_worthless(groups):
            queue = [whole]
            while queue:
                group = queue.pop()
                passage = self.passage(group, measured=True)
                if passage is None:
                    continue
                if passage.tokens is None or passage.tokens <= self.limit:
                    found.append(passage)
                else:
                    queue += self._halves(group)
        return found

    def _without_worthless(self, groups: list[list[Atom]]) -> list[list[Atom]]:
        """Join groups that hold nothing but a rule to a neighbour they fit, the one before first; drop those that fit none."""
        kept: list[list[Atom]] = []
        waiting: list[Atom] = []
        for group in groups:
            first, last = group[0].start, group[-1].end
            if last - first <= 400 and not self.text[first].isalnum() and is_worthless(self.text[first:last]):
                if kept and kept[-1][-1].end == first and _weight(kept[-1]) + _weight(group) <= self.limit:
                    kept[-1] += group
                else:
                    waiting = group
                continue
            if waiting and waiting[-1].end == first and _weight(waiting) + _weight(group) <= self.limit:
                group = waiting + group
            waiting = []
            kept.append(group)
        return kept

    def _halves(self, group: list[Atom]) -> list[list[Atom]]:
        """Return a group that proved too heavy as smaller ones, the first one last, cut at its strongest boundary."""
        if len(group) == 1:
            return [[atom] for atom in self._smaller(group[0])[::-1]]
        cut = max(range(1, len(group)), key=lambda i: (group[i].rank, -abs(2 * i - len(group)), i))
        return [group[cut:], group[:cut]]

    def _smaller(self, atom: Atom) -> list[Atom]:
        repeat = atom.repeat
        found = pieces(
            self.text, atom.start, atom.end, limit=max(1, (self.limit - (repeat.weight if repeat else 0)) * 3 // 4),
            size=self.tally.count, levels=PROSE, rank=atom.rank, rule=atom.rule,
        )  # fmt: skip
        return [Atom(p.start, p.end, p.weight, p.rank, p.rule, atom.block, atom.last, repeat) for p in found]

    def passage(self, group: Sequence[Atom], *, measured: bool = False) -> Passage | None:
        """Return the passage of one group, whatever its size, or None when nothing in it can be seen. measured: with its tokens."""
        text, first, last = self.text, group[0], group[-1]
        begin = min(max(first.start, self.blocks[first.block].span.start), last.end)
        span = trimmed(text, begin, last.end)
        if is_blank(text, span.start, span.end):
            return None
        place = self.places.of_blocks(first.block, last.last)
        rendering = None
        if any(map(_rendering, group)):
            said = [text[atom.start : atom.end] if atom.rendering is None else atom.rendering for atom in group]
            rendering = "".join(said).strip()
        repeat = first.repeat.text if first.repeat else ""
        tokens = None
        if measured and rendering is not None:
            tokens = self.weigh(repeat + rendering)
        elif measured:
            tokens = self.tally.count_after(repeat, span.start, span.end)
        return _passage(
            span=span,
            kind=place.kind,
            strategy=self.strategy,
            heading_path=place.heading_path,
            clause=place.clause,
            parts=self.places.parts(span, first.block, last.last),
            repeat=repeat,
            overlap=Overlap(first.repeat.kind) if first.repeat else None,
            rendering=rendering,
            page=place.page,
            boundary=f"{first.rank}:{first.rule}",
            tokens=tokens,
        )


def _weight(group: Sequence[Atom]) -> int:
    repeat = group[0].repeat
    return (repeat.weight if repeat else 0) + sum(atom.weight for atom in group)
