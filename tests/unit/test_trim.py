"""What may be trimmed of [changes]: nothing that is not applied, nothing of the margin, and not one record at a time."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from streams.kafka.offsets import PartitionLag
from streams.trim import STEP_SHARE, plan_trim

OFFSETS = st.integers(0, 5000)


def _place(begin: int, committed: int | None, end: int, partition: int = 0) -> PartitionLag:
    return PartitionLag("changes", partition, begin, committed, end)


def test_what_lies_further_behind_than_the_margin_goes() -> None:
    places = [_place(0, 5000, 5100), _place(0, 1200, 5100, 1), _place(4000, 5001, 5001, 2), _place(0, None, 900, 3)]
    assert plan_trim(places, 1000) == {("changes", 0): 4000}


def test_no_margin_still_leaves_a_record_to_tell_that_the_topic_was_used() -> None:
    assert plan_trim([_place(0, 10, 10)], 0) == plan_trim([_place(0, 10, 10)], 1) == {("changes", 0): 9}


@given(OFFSETS, st.none() | OFFSETS, OFFSETS, st.integers(0, 2000))
def test_the_front_moves_forward_only_and_never_into_the_margin(begin: int, committed: int | None, end: int, kept: int) -> None:
    for front in plan_trim([_place(begin, committed, end)], kept).values():
        assert committed is not None
        assert begin < front < committed
        assert committed - front >= kept
        assert front - begin >= kept * STEP_SHARE
