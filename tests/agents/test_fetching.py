"""Only what is read is fetched; and a fetch that goes out beside records in hand is not held for long at the broker."""

from __future__ import annotations

from collections import OrderedDict
from types import SimpleNamespace
from typing import Any

import pytest
from aiokafka import TopicPartition
from aiokafka.consumer.fetcher import Fetcher
from aiokafka.consumer.subscription_state import Assignment
from aiokafka.protocol.fetch import FetchRequest

from streams.faustio.fetching import BESIDE_RECORDS_MS, fetch_promptly, fetch_what_is_read

ALONE_MS = 500


def asked(in_hand: dict[str, bool], wait_ms: int = ALONE_MS) -> int:
    """Return how long a fetch may be held while records of some partitions are in hand. Name to whether it is paused."""
    request = FetchRequest(wait_ms, 1, 1 << 20, 0, [("topic", [(0, 7, 1 << 20)])])
    fetcher: Any = SimpleNamespace(_records=OrderedDict.fromkeys(in_hand))
    fetcher._get_actions_per_node = lambda assignment: ([(0, request)], {}, 0.2, False, [])
    fetch_promptly(fetcher)
    assignment = SimpleNamespace(
        tps=frozenset(name for name in in_hand if name != "given up"),
        state_value=lambda name: SimpleNamespace(paused=in_hand[name]),
    )
    assert fetcher._get_actions_per_node(assignment)[1:] == ({}, 0.2, False, [])
    built: Any = request
    return int(built._max_wait_ms)


@pytest.mark.parametrize(
    ("in_hand", "held"),
    [
        pytest.param({}, ALONE_MS, id="nothing-in-hand"),
        pytest.param({"one": False}, BESIDE_RECORDS_MS, id="records-that-are-being-taken"),
        pytest.param({"changelog": True}, ALONE_MS, id="records-of-a-paused-partition-which-nobody-takes"),
        pytest.param({"changelog": True, "one": False}, BESIDE_RECORDS_MS, id="both"),
        pytest.param({"given up": False}, ALONE_MS, id="records-of-a-partition-that-was-given-up"),
    ],
)
def test_how_long_a_fetch_may_be_held(in_hand: dict[str, bool], held: int) -> None:
    assert asked(in_hand) == held


def test_a_shorter_wait_stays() -> None:
    assert asked({"one": False}, wait_ms=10) == 10


async def test_of_what_nobody_reads_nothing_is_fetched_or_held() -> None:
    events, changelog, gone = TopicPartition("events", 0), TopicPartition("changelog", 0), TopicPartition("changelog", 1)
    assignment = Assignment([events, changelog])
    for partition in assignment.tps:
        assignment.state_value(partition).reset_to(7)
    read = {events, changelog}
    fetcher: Any = Fetcher.__new__(Fetcher)
    vars(fetcher).update(
        _records={},
        _in_flight=set(),
        _fetch_max_wait_ms=ALONE_MS,
        _fetch_min_bytes=1,
        _fetch_max_bytes=1 << 20,
        _max_partition_fetch_bytes=1 << 20,
        _isolation_level=0,
        _client_rack=None,
        _fetcher_timeout=0.2,
        _select_read_replica=lambda partition: 0,
    )
    fetch_what_is_read(fetcher, read.__contains__)

    def fetched() -> set[str]:
        requests = fetcher._get_actions_per_node(assignment)[0]
        return {topic for _, request in requests for topic, _ in request.topics}

    assert fetched() == {"events", "changelog"}
    read.remove(changelog)
    fetcher._records.update({changelog: "rows that nobody took", gone: "of the last generation"})
    assert fetched() == {"events"}
    assert fetched() == {"events"}
    assert changelog not in fetcher._records, "nothing of it is held"
    read.add(changelog)
    assert fetched() == {"events", "changelog"}
    assert assignment.state_value(changelog).position == 7, "what was let go is fetched again"
