"""The figures of one ranked list. Pure; each is checked by hand-worked values in the tests.

`gains` are, for each rank, how many expectations are met there for the first time: a passage found twice counts once.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import log2

WINDOW = 20
"""Characters of the window by which repeated evidence is found."""


def recall(gains: Sequence[int], expected: int, k: int) -> float:
    """Return the share of the expectations that the first k hits meet."""
    return sum(gains[:k]) / expected


def reciprocal_rank(gains: Sequence[int], k: int) -> float:
    """Return 1/rank of the first hit that meets an expectation; 0 where none of the first k does."""
    return next((1 / rank for rank, gain in enumerate(gains[:k], start=1) if gain), 0.0)


def ndcg(gains: Sequence[int], expected: int, k: int) -> float:
    """Return the gain of the first k hits, discounted by log2(rank + 1), over that of an ideal list of one expectation a hit.

    At most 1: a large chunk that meets two at once is not better than ideal.
    """
    found = sum(gain / log2(rank + 1) for rank, gain in enumerate(gains[:k], start=1))
    ideal = sum(1 / log2(rank + 1) for rank in range(1, min(expected, k) + 1))
    return min(1.0, found / ideal)


def token_precision(wanted: Sequence[int], given: Sequence[int], k: int) -> float:
    """Return which share of the tokens in the first k hits are those asked for. 0 for no hits.

    wanted: per rank, the tokens of the fragments met there first. given: per rank, the tokens a reader gets.
    """
    total = sum(given[:k])
    return sum(wanted[:k]) / total if total else 0.0


def duplicate_share(texts: Sequence[str], k: int) -> float:
    """Return which share of the first k texts stands in an earlier one of them already, whitespace aside. 0 for no text.

    Counted by windows of WINDOW characters, so overlaps, shared parents and equal pages are all seen.
    """
    seen: set[str] = set()
    total = repeated = 0
    for text in texts[:k]:
        bare = "".join(text.split())
        windows = [bare[start : start + WINDOW] for start in range(max(1, len(bare) - WINDOW + 1))] if bare else []
        total += len(windows)
        repeated += sum(window in seen for window in windows)
        seen.update(windows)
    return repeated / total if total else 0.0


def quantile(ascending: Sequence[int], share: float) -> int:
    """Return the smallest value that at least `share` of the values do not exceed. Raises ValueError on none."""
    if not ascending:
        raise ValueError("no values")
    return ascending[max(0, -int(-share * len(ascending) // 1) - 1)]
