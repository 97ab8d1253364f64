"""One record is read without waiting for others: a late event in front of it holds its partition up meanwhile."""

from __future__ import annotations

from typing import Any

import pytest
from confluent_kafka import KafkaError

from streams.errors import NotReachable
from streams.kafka import read
from streams.kafka.client import Reports
from streams.settings import KafkaSettings

SETTINGS = KafkaSettings(bootstrap_servers="nobody:1")


class Told:
    """What a broker sends: a record, or the end of its partition."""

    def __init__(self, offset: int, fault: KafkaError | None = None) -> None:
        self._offset, self._fault = offset, fault

    def error(self) -> KafkaError | None:
        return self._fault

    def offset(self) -> int:
        return self._offset

    def topic(self) -> str:
        return "t"

    def partition(self) -> int:
        return 0

    def key(self) -> bytes:
        return b"key"

    def value(self) -> bytes:
        return b"%d" % self._offset

    def headers(self) -> None:
        return None

    def timestamp(self) -> tuple[int, int]:
        return 0, 0


class Reader:
    """A consumer that has these to give, one at a time; it has no `consume`, which waits for as many as are asked for."""

    def __init__(self, *told: Told | None) -> None:
        self.told, self.polls, self.closed = list(told), 0, False
        self.reports, self.settings = Reports(), SETTINGS

    def assign(self, places: Any) -> None:
        pass

    def poll(self, timeout: float) -> Told | None:
        self.polls += 1
        return self.told.pop(0) if self.told else None

    def close(self) -> None:
        self.closed = True


END = KafkaError(KafkaError._PARTITION_EOF)
CASES = [
    pytest.param([Told(7)], b"7", 1, id="it-stands-there"),
    pytest.param([None, Told(0, KafkaError(KafkaError._TRANSPORT)), Told(7), Told(8)], b"7", 3, id="the-broker-was-away"),
    pytest.param([Told(9), Told(10)], None, 1, id="compaction-took-it"),
    pytest.param([Told(0, END)], None, 1, id="nothing-is-left-behind-it"),
]


@pytest.mark.parametrize(("told", "value", "polls"), CASES)
def test_one_record_takes_no_more_than_it_needs(
    told: list[Told | None], value: bytes | None, polls: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    reader = Reader(*told)
    monkeypatch.setattr(read, "make_consumer", lambda settings, **options: reader)
    found = read.record_at(SETTINGS, "t", 0, 7)
    assert (found.value if found else None, reader.polls, reader.closed) == (value, polls, True)


def test_a_broker_that_sends_nothing_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    reader = Reader()
    monkeypatch.setattr(read, "make_consumer", lambda settings, **options: reader)
    monkeypatch.setattr(read, "_STALLED_SECONDS", 0.01)
    with pytest.raises(NotReachable, match="sends nothing"):
        read.record_at(SETTINGS, "t", 0, 7)
    assert reader.closed
