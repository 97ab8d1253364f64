"""Packing: which neighbouring atoms share a chunk. By boundary strength (default) or by filling from the left.

By strength: boundaries are taken weakest first, by (rank, hash of the text behind), and the two pieces beside one merge while
the pair fits. There is no scan order, so nothing cascades: an edit changes the chunks near it and no others. O(n log n).
"""

from __future__ import annotations

import itertools
import zlib
from collections.abc import Sequence

import numpy as np

NO_WALL = 99
"""A rank above all ranks."""

_SPREAD = np.uint64(0x9E3779B97F4A7C15)
"""An odd factor: it spreads neighbouring checksums over 64 bits, and leaves unlike ones unlike."""
_NEAR = 12
_FAR = 200


def merge_order(text: str, starts: Sequence[int], end: int, ranks: Sequence[int], chosen: Sequence[int] | None = None) -> list[int]:
    """Return the boundaries 1..n-1, or those chosen, in the order in which they merge: by rank, then by hash of the text behind.

    The first visible characters of an atom decide, more of them only between equals, so that a change further on leaves the order
    alone, and what stands behind the atom has no say. What is equal in all of them merges from the left. `end`: of the last atom.
    """
    order = list(range(1, len(starts)) if chosen is None else chosen)
    if len(order) < 2:
        return order
    ends = [*starts[1:], end]

    def finer(index: int) -> int:
        return _hash("".join(text[starts[index] : min(ends[index], starts[index] + _FAR)].split()))

    heads = []
    for index in order:
        start, stop = starts[index], ends[index]
        head = "".join(text[start : min(stop, start + 2 * _NEAR)].split())
        if len(head) < _NEAR and stop - start > 2 * _NEAR:
            head = "".join(text[start : min(stop, start + 4 * _NEAR)].split())
        heads.append(head[:_NEAR])
    # Encoded all at once: a head holds no line feed.
    hashes = list(map(zlib.crc32, "\n".join(heads).encode("utf-8", "surrogatepass").split(b"\n")))
    keys = np.array(hashes, np.uint64) * _SPREAD
    own_ranks = np.array([ranks[index] for index in order])
    places = np.lexsort((keys, own_ranks))
    keys, own_ranks = keys[places], own_ranks[places]
    order = [order[place] for place in places.tolist()]
    if len(set(heads)) == len(heads):
        return order  # heads whose hashes happen to be equal merge from the left
    equals = np.flatnonzero((keys[1:] == keys[:-1]) & (own_ranks[1:] == own_ranks[:-1])).tolist()
    position = 0
    while position < len(equals):
        begin = equals[position]  # the first of a run of equals; order[at] and order[at + 1] are equal for each `at` in `equals`
        while position + 1 < len(equals) and equals[position + 1] == equals[position] + 1:
            position += 1
        after = equals[position] + 2
        order[begin:after] = sorted(order[begin:after], key=lambda index: (finer(index), index))
        position += 1
    return order


def _hash(text: str) -> int:
    """Return a 64-bit hash that orders well: CRC-32, spread by a multiplication. Only the order of merges depends on it."""
    return zlib.crc32(text.encode("utf-8", "surrogatepass")) * int(_SPREAD) & 0xFFFFFFFFFFFFFFFF


def in_doubt(
    weights: Sequence[int], extras: Sequence[int], ranks: Sequence[int], limit: int, wall: int, whole: int = NO_WALL
) -> tuple[list[int], list[int]]:
    """Return the boundaries that never merge, and those whose order matters; over the rest everything merges.

    Never: walls, and those whose two atoms alone are over the limit. Between them a section within the limit merges into one
    whatever the order: when the turn of a boundary comes, all weaker ones have merged. Not so where one inside is of rank `whole`
    or above and stronger than an end of the section.
    """
    count = len(ranks)
    pairs = zip(itertools.count(1), weights, weights[1:], ranks[1:], strict=False)
    never = [index for index, before, behind, rank in pairs if rank >= wall or before + behind > limit]
    doubtful: list[int] = []
    for first, after in itertools.pairwise([0, *never, count]):
        if after - first < 2:
            continue
        if sum(weights[first:after]) + max(extras[first:after]) <= limit:
            strongest = max(ranks[first + 1 : after])
            if strongest < whole or ((first == 0 or ranks[first] >= strongest) and (after == count or ranks[after] >= strongest)):
                continue
        doubtful += range(first + 1, after)
    return never, doubtful


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
