"""A fetch that goes out beside records in hand is not held for long at the broker, so that these partitions are fetched in time."""

from __future__ import annotations

from collections import OrderedDict
from types import SimpleNamespace
from typing import Any

import pytest
from aiokafka.protocol.fetch import FetchRequest

from streams.faustio.fetching import BESIDE_RECORDS_MS, fetch_promptly

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
