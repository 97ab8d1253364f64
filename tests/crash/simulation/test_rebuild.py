"""[documents], compacted to the last record of each key, is the whole truth: all that is built from it alone equals the oracle."""

from __future__ import annotations

from dataclasses import replace

from tests.crash.simulation.histories import UNEMBEDDABLE, Event, History, history_of
from tests.crash.simulation.oracle import Expected, document_complaints, event_of, judge
from tests.crash.simulation.scheduler import Simulation
from tests.crash.simulation.world import BLUE, NAMES, World

HISTORIES = 800


def last_records(world: World) -> tuple[Event, ...]:
    """Return what compaction, done as far as it ever can be, leaves of [documents]."""
    last = {record.key: record for record in world.records(NAMES.documents)}
    return tuple(event_of(key, record.value) for key, record in sorted(last.items(), key=lambda item: item[0] or b""))


def is_rebuilt(expected: Expected) -> bool:
    """Whether a rebuild can have it: of a newest revision that can't be used, only [parsed] knows the last good one."""
    return not expected.failed and not (expected.good is not None and UNEMBEDDABLE in expected.good[0])


def test_a_rebuild_from_the_compacted_log_equals_the_oracle() -> None:
    looked_at = 0
    for seed in range(HISTORIES):
        history = history_of(seed)
        if history.repaired or "lose_seen" in history.faults:
            continue
        simulation = Simulation(history)
        assert simulation.run() == []
        rebuild = Simulation(History(last_records(simulation.world), partitions=history.partitions, seed=seed))
        assert rebuild.run() == [], seed
        for key, expected in judge(simulation.events).documents.items():
            if is_rebuilt(expected):
                found = document_complaints(rebuild.world, BLUE, key, replace(expected, revision=max(expected.revision, 0)))
                assert found == [], (seed, found)
                looked_at += expected.revision >= 0
    assert looked_at > HISTORIES
