"""pieces(): a stretch of text over its limit becomes pieces within it, cut at the strongest marks that suffice.

Each level of marks is tried only on what the level above left too long; the last resort is a cut between grapheme clusters.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from chunking.graphemes import cut_after, cut_before
from chunking.sentences import Ends

Weigh = Callable[[str], int]
"""What a string weighs."""
Size = Callable[[int, int], int]
"""What text[start:end] weighs, of the text at hand."""
Sizes = Callable[[Sequence[int]], list[int]]
"""What each stretch from one of the ascending offsets to the next weighs, of the text at hand."""

GRAPHEME_RANK = 0
_NEVER_FIRST = frozenset("，。！？；：、”’）》】」』…,.!?;:)]}")


class Level(NamedTuple):
    """One kind of cut. rank: strength of its boundaries, 1 upwards; rule: its name for explain."""

    rank: int
    rule: str
    ends: Ends


@dataclass(slots=True)
class Piece:
    """text[start:end] and its weight; rank and rule of the boundary before it (those given for the first)."""

    start: int
    end: int
    weight: int
    rank: int
    rule: str


def pieces(
    text: str,
    start: int,
    end: int,
    *,
    limit: int,
    size: Size,
    sizes: Sizes | None = None,
    levels: Sequence[Level],
    rank: int,
    rule: str,
    first: int | None = None,
    weight: int | None = None,
    whole_clusters: bool = False,
    guess: bool = True,
) -> list[Piece]:
    """Return pieces that tile text[start:end], each within `limit` (the first within `first`, where given, be it more or less).

    sizes: says of many stretches what `size` says of each. weight: of the whole, where it is known. A grapheme cluster heavier
    than the limit is parted, since the limit is what the embedder can read; with `whole_clusters` it is left whole and over the
    limit. guess: spare counting what is likely over; off where `size` counts neither tokens nor characters.
    """
    found: list[Piece] = []
    _cut(_Job(text, limit, size, sizes, levels, first, whole_clusters, guess, found), start, end, 0, rank, rule, weight)
    return found


@dataclass(slots=True)
class _Job:
    text: str
    limit: int
    size: Size
    sizes: Sizes | None
    levels: Sequence[Level]
    first: int | None
    whole_clusters: bool
    guess: bool
    found: list[Piece]

    @property
    def room(self) -> int:
        return self.limit if self.found or self.first is None else max(1, self.first)


def _cut(job: _Job, start: int, end: int, depth: int, rank: int, rule: str, weight: int | None) -> None:
    guessed = job.guess and weight is None and depth < len(job.levels) and is_likely_over(job.text, start, end, job.limit)
    if weight is None and not guessed:
        weight = job.size(start, end)
    room, first = job.room, len(job.found)
    if weight is not None and weight <= room:
        job.found.append(Piece(start, end, weight, rank, rule))
        return
    while depth < len(job.levels):
        level = job.levels[depth]
        ends = level.ends(job.text, start, end)
        depth += 1
        if len(ends) > 1:
            own_rank, own_rule = rank, rule
            for begin, stop, own in zip([start, *ends], ends, _weights(job, start, ends), strict=False):
                if own is not None and own <= job.room:
                    job.found.append(Piece(begin, stop, own, own_rank, own_rule))
                else:
                    _cut(job, begin, stop, depth, own_rank, own_rule, own)
                own_rank, own_rule = level.rank, level.rule
            if guessed and sum(piece.weight for piece in job.found[first:]) <= room:
                weight = job.size(start, end)
                if weight <= room:
                    job.found[first:] = [Piece(start, end, weight, rank, rule)]
            return
    _force(job, start, end, rank, rule, job.size(start, end) if weight is None else weight)


def _weights(job: _Job, start: int, ends: Sequence[int]) -> Iterable[int | None]:
    """Return the weight of each stretch, or None for one so long that it is better cut before it is counted."""
    stretches = list(itertools.pairwise([start, *ends]))
    if job.sizes is not None and max([stop - begin for begin, stop in stretches]) <= 2 * job.limit:
        return job.sizes([start, *ends])
    return (None if stop - begin > 2 * job.limit else job.size(begin, stop) for begin, stop in stretches)


def is_likely_over(text: str, start: int, end: int, limit: int) -> bool:
    """Return whether a stretch is so long that it is over the limit unless its text is odd: a guess, to spare a count.

    Most text has under 5 characters a token in Latin script and under 2 in Han.
    """
    length = end - start
    return length > 2 * limit and length > (6 if text[start : start + 2 * limit].isascii() else 2) * limit


def _force(job: _Job, start: int, end: int, rank: int, rule: str, weight: int) -> None:
    """Cut between grapheme clusters. Guesses a cut from the mean weight of a character and corrects it by counting."""
    characters_each = (end - start) / max(1, weight)
    fill = 1.0 if weight == end - start else 0.95
    while start < end:
        room = job.room
        reach = max(1, int(characters_each * room * fill))
        stop = _border(job.text, start, min(end, start + reach), end)
        measured = job.size(start, stop)
        while measured > room and stop - start > 1:
            target = start + max(1, min(stop - start - 1, (stop - start) * room // measured))
            smaller = cut_before(job.text, target, start)
            if smaller <= start:
                smaller = _lone_cluster(job, start, stop, target, room)
            if smaller == stop:
                break
            stop = smaller
            measured = job.size(start, stop)
        if stop < end and measured < room * 0.9 and measured > 0:
            larger = cut_before(job.text, min(end, start + int((stop - start) * room / measured * fill)), stop)
            if larger > stop and (again := job.size(start, larger)) <= room:
                stop, measured = larger, again
        better = _without_orphans(job.text, start, stop, end)
        if better != stop and (again := job.size(start, better)) <= room:
            stop, measured = better, again
        job.found.append(Piece(start, stop, measured, rank, rule))
        characters_each = (stop - start) / max(1, measured)
        start, rank, rule = stop, GRAPHEME_RANK, "grapheme"


def _without_orphans(text: str, start: int, stop: int, end: int) -> int:
    """Return a cut near `stop` before which few blanks are kept and behind which no closing mark begins, where there is one."""
    if stop >= end:
        return stop
    after = stop
    while after < min(end, stop + 4) and text[after] in " \t\u3000":
        after += 1
    if after > stop:
        return cut_before(text, after, stop)
    back = stop
    while text[back] in _NEVER_FIRST and back - 1 > start and stop - back < 4:
        back -= 1
    if back == stop or text[back] in _NEVER_FIRST:
        return stop
    earlier = cut_before(text, back, start)
    return earlier if earlier > start else stop  # within the first cluster there is no cut


def _border(text: str, start: int, position: int, end: int) -> int:
    border = cut_before(text, position, start)
    return border if border > start else min(end, cut_after(text, position, start))


def _lone_cluster(job: _Job, start: int, stop: int, target: int, room: int) -> int:
    """Return the end of the first cluster if it fits or has to stay whole; otherwise part it at `target`."""
    whole = cut_after(job.text, start + 1, start)
    if job.whole_clusters or (whole < stop and job.size(start, whole) <= room):
        return min(whole, stop)
    return target


def first_within(starts: Sequence[int], end: int, limit: int, size: Size) -> int | None:
    """Return the first of ascending `starts` from which text[start:end] is within `limit`, or None. Counts a few of them only."""
    low, high = 0, len(starts)
    while low < high:
        middle = (low + high) // 2
        if size(starts[middle], end) <= limit:
            high = middle
        else:
            low = middle + 1
    return starts[low] if low < len(starts) else None


def head_within(text: str, limit: int, weigh: Weigh) -> str:
    """Return the longest start of `text` found within `limit`, cut between grapheme clusters; blank when nothing fits."""
    if weigh(text) <= limit:
        return text
    stop = len(text)
    while stop > 0 and (measured := weigh(text[:stop])) > limit:
        stop = cut_before(text, min(stop - 1, stop * max(limit, 0) // measured), 0)
    return text[:stop]


def tail_within(text: str, limit: int, weigh: Weigh) -> str:
    """Return a long end of `text` within `limit`, cut between grapheme clusters; blank when nothing fits."""
    if weigh(text) <= limit:
        return text
    start = 0
    while start < len(text) and (measured := weigh(text[start:])) > limit:
        start = cut_after(text, max(start + 1, len(text) - (len(text) - start) * max(limit, 0) // measured), 0)
    return text[start:]
