"""Packing: which neighbouring atoms share a chunk. By boundary strength (default) or by filling from the left.

By strength: boundaries are taken weakest first, by (rank, hash of the text behind), and the two pieces beside one merge while
the pair fits. There is no scan order, so nothing cascades: an edit changes the chunks near it and no others. O(n log n).
"""

from __future__ import annotations

import itertools
import zlib
from collections.abc import Callable, Sequence

NO_WALL = 99
"""A rank above all ranks."""

_NEAR = 12
_FAR = 200


def merge_order(text: str, starts: Sequence[int], end: int, ranks: Sequence[int], chosen: Sequence[int] | None = None) -> list[int]:
    """Return the boundaries 1..n-1, or those chosen, in the order in which they merge: by rank, then by hash of the text behind.

    The first visible characters of an atom decide, more of them only between equals, so that a change further on leaves the order
    alone, and what stands behind the atom has no say. What is equal in all of them merges from the left. `end`: of the last atom.
    """
    count = len(starts)
    order = range(1, count) if chosen is None else chosen
    seen: dict[str, int] = {}
    near: dict[str, int] = {}
    ends = [*starts[1:], end]
    keys = [0] * count
    for index in order:
        start = starts[index]
        raw = text[start : min(ends[index], start + 4 * _NEAR)]
        key = seen.get(raw)
        if key is None:
            head = "".join(raw.split())[:_NEAR]
            key = near.get(head)
            if key is None:
                key = near[head] = _hash(head)
            seen[raw] = key
        keys[index] = (ranks[index] + 1 << 64) + key
    order = sorted(order, key=keys.__getitem__)
    if len(near) < len(order):
        far: dict[str, int] = {}

        def finer(index: int) -> int:
            raw = text[starts[index] : min(ends[index], starts[index] + _FAR)]
            if raw not in far:
                far[raw] = _hash("".join(raw.split()))
            return far[raw]

        _settle_ties(order, keys, finer)
    return order


def _settle_ties(order: list[int], keys: Sequence[int], finer: Callable[[int], int]) -> None:
    """Sort each run of boundaries with equal keys by a finer key, then from the left."""
    begin = 0
    for after in range(1, len(order) + 1):
        if after == len(order) or keys[order[after]] != keys[order[begin]]:
            if after - begin > 1:
                order[begin:after] = sorted(order[begin:after], key=lambda index: (finer(index), index))
            begin = after


def _hash(text: str) -> int:
    """Return a 64-bit hash that orders well: CRC-32, spread by a multiplication. Only the order of merges depends on it."""
    return zlib.crc32(text.encode("utf-8", "surrogatepass")) * 0x9E3779B97F4A7C15 & 0xFFFFFFFFFFFFFFFF


def in_doubt(
    weights: Sequence[int], extras: Sequence[int], ranks: Sequence[int], limit: int, wall: int
) -> tuple[list[int], list[int]]:
    """Return the boundaries that are walls, and those whose order matters: inside walled sections that are over the limit.

    A section within the limit merges into one whatever the order: when the turn of a boundary comes, all weaker ones have merged.
    """
    walls = [index for index in range(1, len(ranks)) if ranks[index] >= wall]
    doubtful: list[int] = []
    for first, after in itertools.pairwise([0, *walls, len(ranks)]):
        if after - first > 1 and sum(weights[first:after]) + max(extras[first:after]) > limit:
            doubtful += range(first + 1, after)
    return walls, doubtful


def pack_by_strength(
    weights: Sequence[int],
    extras: Sequence[int],
    ranks: Sequence[int],
    order: Sequence[int],
    limit: int,
    wall: int,
    slacks: Sequence[int] = (),
    whole: int = NO_WALL,
) -> list[int]:
    """Return the indices of the atoms that begin a chunk, from 0.

    order: from `merge_order`. extras: what a chunk weighs more when it begins at that atom (a repeated header). slacks: what it
    weighs less when it ends with that atom (trailing blanks). Boundaries of rank `wall` or above never merge. A pair fits when the
    extra of its first atom and all weights together, less the slack of its last, are within `limit`. Over boundaries of rank
    `whole` or above only whole stretches merge: the pair must begin and end at boundaries at least as strong.
    """
    count = len(weights)
    if count == 0:
        return []
    left = list(range(count))
    right = list(range(count))
    sums = list(weights)
    cuts = [0]
    for index in order:
        first, last, rank = left[index - 1], right[index], ranks[index]
        slack = slacks[last] if slacks else 0
        fits = rank < wall and extras[first] + sums[first] + sums[index] - slack <= limit
        if fits and rank >= whole:
            fits = (first == 0 or ranks[first] >= rank) and (last + 1 == count or ranks[last + 1] >= rank)
        if fits:
            sums[first] += sums[index]
            left[last], right[first] = first, last
        else:
            cuts.append(index)
    cuts.sort()
    return cuts


def pack_greedily(
    weights: Sequence[int], extras: Sequence[int], ranks: Sequence[int], limit: int, wall: int, slacks: Sequence[int] = ()
) -> list[int]:
    """Return the indices of the atoms that begin a chunk: filled from the left, cut at the strongest boundary of the last half.

    Among boundaries past half the limit the one of the highest rank is taken, the last of equals.
    """
    cuts = [0] if weights else []
    begin, total = 0, 0
    index = 0
    while index < len(weights):
        if index > begin and ranks[index] >= wall:
            cuts.append(index)
            begin, total = index, 0
        slack = slacks[index] if slacks else 0
        if index > begin and extras[begin] + total + weights[index] - slack > limit:
            cut = _best_cut(weights, ranks, begin, index, total)
            cuts.append(cut)
            begin = index = cut
            total = 0
        total += weights[index]
        index += 1
    return cuts


def _best_cut(weights: Sequence[int], ranks: Sequence[int], begin: int, index: int, total: int) -> int:
    """Return the boundary to cut at among begin+1..index, whose last overflows: strongest of those past half of `total`."""
    best, candidate, half = index, index, total / 2
    while candidate - 1 > begin:
        candidate -= 1
        total -= weights[candidate]
        if total < half:
            break
        if ranks[candidate] > ranks[best]:
            best = candidate
    return best
