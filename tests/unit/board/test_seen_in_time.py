"""Every red state that a fault makes is on the page within a minute: the sum of a threshold and of the pauses between looks.

Asserted from the constants, not by a clock. What is not in these sums is what an answer takes that does come (a reading of lag, a
gate, a page's own second), and for drift what the audit's rate asks for.
"""

from __future__ import annotations

import inspect
from collections.abc import Mapping

import pytest

from streams import vitals
from streams.audit import compare, watch
from streams.board import feeds, scrape, server, troubles
from streams.board.troubles import KINDS
from streams.kafka import read
from streams.settings import AuditSettings, KafkaSettings

MINUTE = 60.0
POINTS = 1_000
"""Of a worker's partitions in one batch: an index whose drift is seen within a minute."""


def by_a_worker(lasts: float) -> float:
    """What a worker tells and what is red once it has lasted so long."""
    return lasts + vitals.TICK_SECONDS + feeds.WORKERS_SECONDS + scrape.PATIENCE_SECONDS + server.TICK_SECONDS


BY_THE_LOG = read._POLL_SECONDS + server.TICK_SECONDS
BY_LAG = feeds.LAG_SECONDS + server.TICK_SECONDS
BY_THE_INDEX = feeds.INDEX_SECONDS + feeds.INDEX_PATIENCE + server.TICK_SECONDS
AUDIT = AuditSettings()
SEEN_WITHIN: Mapping[str, float] = {
    "broker_away": troubles.READING_SECONDS + server.TICK_SECONDS,  # as lag_unknown at the latest, where no answer comes at all
    "lag_unknown": troubles.READING_SECONDS + server.TICK_SECONDS,
    "index_away": BY_THE_INDEX,
    "alias_missing": BY_THE_INDEX,
    "alias_differs": BY_THE_INDEX,
    "no_batch": BY_THE_LOG,
    "topic_missing": feeds.AGAIN_SECONDS + server.TICK_SECONDS,
    "nobody_works": KafkaSettings().session_timeout_seconds + BY_LAG,
    "dead_letters": BY_THE_LOG,
    "held": BY_THE_LOG,
    "breaker_open": BY_THE_LOG,
    "paused": BY_THE_LOG,
    "build_refused": BY_LAG + BY_THE_LOG,
    "gate_fails": BY_LAG + feeds.GATE_SECONDS + feeds.AGAIN_SECONDS,
    "worker_away": by_a_worker(0),
    "worker_waits": by_a_worker(0),
    "commits_stall": by_a_worker(troubles.STALL_SECONDS),
    "commits_refused": by_a_worker(troubles.STALL_SECONDS),
    "recovering": by_a_worker(troubles.RECOVERY_SECONDS),
    "not_ready": by_a_worker(troubles.RECOVERY_SECONDS),
    "embedder_slow": by_a_worker(troubles.CALL_SECONDS),
    "embedder_fails": by_a_worker(0),
    "disk_full": by_a_worker(0),
    "drift": by_a_worker(AUDIT.every_seconds + POINTS / AUDIT.points_per_second + watch.LOOK_AGAIN_SECONDS),
    "drift of any number of points": by_a_worker(
        AUDIT.every_seconds
        + watch.COUNT_AGAIN_SECONDS
        + watch.LOOK_AGAIN_SECONDS
        + 2 * compare.GROUP_CHUNKS / AUDIT.points_per_second  # a group stands between two looks
    ),
}
CONSEQUENCES: Mapping[str, str] = {
    "group_stands": "offsets may stand for the grace after a handover; whose fault it is, a state above says before",
    "build_stands": "as group_stands",
    "bulk_stands": "as group_stands",
    "documents_wait": "what an event waits for is a state above",
    "canary_old": "what the canary waits for is a state above",
}
"""What follows from a fault that another state has named by then."""


@pytest.mark.parametrize("kind", SEEN_WITHIN)
def test_a_fault_is_on_the_page_within_a_minute(kind: str) -> None:
    assert 0 < SEEN_WITHIN[kind] <= MINUTE


def test_a_round_that_needs_no_count_is_one_that_is_quick() -> None:
    assert watch.QUICK_SECONDS * AUDIT.points_per_second <= POINTS


def test_every_state_is_seen_in_time_or_follows_from_one_that_is() -> None:
    assert SEEN_WITHIN.keys() - {"drift of any number of points"} | CONSEQUENCES.keys() == KINDS.keys()
    assert not SEEN_WITHIN.keys() & CONSEQUENCES.keys()


def test_no_pause_is_hidden_in_the_code() -> None:
    """The page's feeds pause by the constants that are summed up above, and by nothing else."""
    source = inspect.getsource(feeds.Feeds)
    slept = {line.split("asyncio.sleep(")[1].rstrip(")").strip() for line in source.splitlines() if "asyncio.sleep(" in line}
    every = {line.split("self._every(")[1].split(",")[0] for line in source.splitlines() if "self._every(" in line}
    assert slept == {"0", "AGAIN_SECONDS", "seconds"}
    assert every == {"LAG_SECONDS", "WORKERS_SECONDS", "INDEX_SECONDS", "AGAIN_SECONDS"}
