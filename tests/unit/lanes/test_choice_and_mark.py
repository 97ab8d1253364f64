"""Which lane changes take, and the mark by which a record is known as bulk."""

from __future__ import annotations

from types import SimpleNamespace

import pytest

from streams.errors import UsageError
from streams.faustio.tracing import carried_headers
from streams.lanes.choice import HANDFUL, lane_for, topic_of
from streams.lanes.mark import HEADER, is_mark, mark, number_of
from streams.topics import TopicNames

FEEDER = "0123456789abcdef"


@pytest.mark.parametrize(
    ("changes", "asked", "lane"),
    [(0, "auto", "live"), (HANDFUL, "auto", "live"), (HANDFUL + 1, "auto", "bulk"), (1, "bulk", "bulk"), (10_000, "live", "live")],
)
def test_more_than_a_handful_is_bulk_unless_told_otherwise(changes: int, asked: str, lane: str) -> None:
    assert lane_for(changes, asked) == lane


def test_another_word_is_refused_and_lanes_are_topics() -> None:
    with pytest.raises(UsageError, match="--lane fast"):
        lane_for(1, "fast")
    assert topic_of("bulk", TopicNames("p")) == "p.bulk"
    assert topic_of("live", TopicNames("p")) == "p.documents"


def test_a_mark_is_known_by_its_feeder_alone() -> None:
    value = mark(FEEDER, 41)
    assert is_mark(value)
    assert number_of({HEADER: value}, FEEDER) == 41
    assert number_of({HEADER: value}, "f" * 16) is None
    assert number_of({}, FEEDER) is None


@pytest.mark.parametrize("value", [b"", b"bulk", b"bulk/x/1", b"bulk/0123456789abcdef/", b"live/0123456789abcdef/1", None])
def test_what_is_no_mark_is_neither_read_nor_carried_on(value: bytes | None) -> None:
    assert not is_mark(value)
    event = SimpleNamespace(message=SimpleNamespace(headers={HEADER: value}))
    assert carried_headers(event) == []


def test_a_mark_goes_on_beside_the_trace() -> None:
    headers = {HEADER: mark(FEEDER, 3), "traceparent": b"00-" + b"a" * 32 + b"-" + b"b" * 16 + b"-01", "other": b"x"}
    event = SimpleNamespace(message=SimpleNamespace(headers=headers))
    assert {name for name, _ in carried_headers(event)} == {HEADER, "traceparent"}
