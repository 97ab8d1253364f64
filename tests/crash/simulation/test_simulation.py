"""Whatever happens on the way, a drained log leaves exactly what a clean rebuild would make."""

from __future__ import annotations

import os

from tests.crash.simulation.campaign import first_failure, only
from tests.crash.simulation.histories import FAULTS, history_of
from tests.crash.simulation.scheduler import Simulation
from tests.crash.simulation.shrinking import shrunk

HISTORIES = int(os.environ.get("SIMULATED_HISTORIES", "5000"))


def test_every_history_comes_to_its_oracle() -> None:
    failing = first_failure(range(HISTORIES))
    assert failing is None, f"history {failing.seed} fails; the shortest that still does:\n{shrunk(failing)}"


def test_in_11_two_owners_at_once_end_with_the_newest_revision() -> None:
    failing = first_failure(range(10_000, 10_300), bend=only("zombie"))
    assert failing is None, f"the shortest history that fails:\n{shrunk(failing)}"


def test_a_seed_names_one_run() -> None:
    for seed in range(40):
        runs = [Simulation(history_of(seed), tracing=True) for _ in range(2)]
        assert runs[0].run() == runs[1].run()
        assert runs[0].timeline == runs[1].timeline


def test_the_histories_hold_every_kind_of_event_and_fault() -> None:
    histories = [history_of(seed) for seed in range(300)]
    assert {event.kind for history in histories for event in history.events} == {"upsert", "delete", "null", "garbage"}
    assert {fault for history in histories for fault in history.faults} == set(FAULTS)
    assert {event.tenant for history in histories for event in history.events} == {"a", "b"}
    assert any(event.reindex for history in histories for event in history.events)
    assert any(not event.paragraphs for history in histories for event in history.events if event.kind == "upsert")
