"""The figures by hand-worked values, and the laws they keep."""

from __future__ import annotations

from math import log2

import pytest
from hypothesis import given
from hypothesis import strategies as st

from streams.evaluation.metrics import WINDOW, duplicate_share, ndcg, quantile, recall, reciprocal_rank, token_precision

GAINS = [0, 1, 0, 0, 1]
"""Of three expectations, one is met at rank 2, one at rank 5, one nowhere."""


@pytest.mark.parametrize(("k", "value"), [(1, 0), (2, 1 / 3), (4, 1 / 3), (5, 2 / 3), (10, 2 / 3)])
def test_recall(k: int, value: float) -> None:
    assert recall(GAINS, 3, k) == pytest.approx(value)


@pytest.mark.parametrize(("k", "value"), [(1, 0), (2, 0.5), (10, 0.5)])
def test_reciprocal_rank(k: int, value: float) -> None:
    assert reciprocal_rank(GAINS, k) == value


@pytest.mark.parametrize(
    ("gains", "expected", "k", "value"),
    [
        pytest.param([1], 1, 1, 1.0, id="at-once"),
        pytest.param([0, 1], 1, 1, 0.0, id="behind-the-cut"),
        pytest.param([0, 1], 1, 2, 1 / log2(3), id="second-of-one"),
        pytest.param([0, 0, 1], 1, 5, 0.5, id="third-of-one"),
        pytest.param(GAINS, 3, 5, (1 / log2(3) + 1 / log2(6)) / (1 + 1 / log2(3) + 0.5), id="two-of-three"),
        pytest.param([1, 0, 1], 2, 3, 1.5 / (1 + 1 / log2(3)), id="first-and-third-of-two"),
        pytest.param([2], 2, 3, 1.0, id="one-chunk-that-answers-both-is-no-better-than-ideal"),
        pytest.param([], 1, 3, 0.0, id="nothing-found"),
    ],
)
def test_ndcg(gains: list[int], expected: int, k: int, value: float) -> None:
    assert ndcg(gains, expected, k) == pytest.approx(value)


def test_token_precision_is_wanted_over_given() -> None:
    assert token_precision([0, 12, 0], [30, 40, 50], 1) == 0
    assert token_precision([0, 12, 0], [30, 40, 50], 2) == pytest.approx(12 / 70)
    assert token_precision([0, 12, 0], [30, 40, 50], 10) == pytest.approx(12 / 120)
    assert token_precision([], [], 5) == 0


def test_duplicate_share_counts_windows_seen_before() -> None:
    text = "abcdefghijklmnopqrstuvwxyz"  # 26 characters: 7 windows of 20
    assert WINDOW == 20
    assert duplicate_share([text], 5) == 0
    assert duplicate_share([text, text], 2) == pytest.approx(7 / 14)
    assert duplicate_share([text, text], 1) == 0
    assert duplicate_share([text, "abcdefghijklm nopqrst\nuvw"], 2) == pytest.approx(4 / 11)  # 23 characters: 4 windows, all seen
    assert duplicate_share(["short", "short", ""], 3) == pytest.approx(1 / 2)
    assert duplicate_share([], 3) == 0


def test_quantile_is_the_smallest_value_that_the_share_does_not_exceed() -> None:
    values = [10, 20, 30, 40]
    assert [quantile(values, share) for share in (0.0, 0.25, 0.5, 0.51, 0.95, 1.0)] == [10, 10, 20, 30, 40, 40]
    with pytest.raises(ValueError, match="no values"):
        quantile([], 0.5)


@given(st.lists(st.integers(0, 2), max_size=12), st.integers(1, 12))
def test_figures_stay_between_0_and_1_and_never_fall_with_k(gains: list[int], k: int) -> None:
    expected = max(1, sum(gains))
    assert 0 <= recall(gains, expected, k) <= recall(gains, expected, k + 1) <= 1
    assert 0 <= reciprocal_rank(gains, k) <= reciprocal_rank(gains, k + 1) <= 1
    assert 0 <= ndcg(gains, expected, k) <= 1


@given(st.lists(st.text("ab ", max_size=60), max_size=6))
def test_texts_said_twice_are_half_duplicate_at_least(texts: list[str]) -> None:
    bare = [text for text in texts if text.strip()]
    assert duplicate_share(bare * 2, 2 * len(bare)) >= (0.5 if bare else 0)
