"""Whatever happens on the way, a drained log leaves exactly what a clean rebuild would make."""

from __future__ import annotations

import os

from tests.crash.simulation.campaign import first_failure
from tests.crash.simulation.histories import FAULTS, UNEMBEDDABLE, Command, Event, History, history_of, only
from tests.crash.simulation.kinds import two_owners
from tests.crash.simulation.scheduler import Simulation
from tests.crash.simulation.shrinking import shrunk

HISTORIES = int(os.environ.get("SIMULATED_HISTORIES", "5000"))


def test_every_history_comes_to_its_oracle() -> None:
    failing = first_failure(range(HISTORIES - HISTORIES // 10))  # the rest of them is in test_letters.py
    assert failing is None, f"history {failing.seed} fails; the shortest that still does:\n{shrunk(failing)}"


def test_rollouts_end_with_both_batches_right_and_readers_where_the_ledger_says() -> None:
    def rollouts(history: History) -> History | None:
        return history if history.commands else None

    failing = first_failure(range(20_000, 22_500), bend=rollouts)
    assert failing is None, f"the shortest history that fails:\n{shrunk(failing)}"


def test_in_11_two_owners_at_once_end_with_the_newest_revision() -> None:
    failing = first_failure(range(10_000, 10_300), bend=only("zombie"))
    assert failing is None, f"the shortest history that fails:\n{shrunk(failing)}"


def test_two_owners_over_compacted_logs_leave_nothing_that_their_successor_does_not_know() -> None:
    """Found at seed 34095: the first owner of a build had left no trace, and its successor asked the index nothing. And at
    731500379: it had planned a revision and not remembered it, and compaction took that before its successor met it."""
    seeds = (*range(34_000, 34_100), 731_500_379)
    failing = next((seed for seed in seeds if Simulation(two_owners(seed)).run()), None)
    assert failing is None, f"python -m tests.crash.simulation --kind two-owners --seed {failing} --histories 1"


def test_removals_of_a_refused_delta_are_owed_by_the_one_that_overtakes_it() -> None:
    """Found by a rollout's history: what the refused delta was to remove stayed: nobody had looked for it."""
    words = ("cedar", "gum", "cedar")
    events = (
        Event("upsert", "b", "x", 2, words, event_id="e0"),
        Event("upsert", "b", "x", 4, (*words, UNEMBEDDABLE), event_id="e1"),
        Event("upsert", "b", "x", 6, (*words, "ash"), event_id="e2"),
    )
    histories = (History(events, commands=(Command("rollout"),), seed=seed) for seed in range(300))
    failing = next((history for history in histories if Simulation(history).run()), None)
    assert failing is None, f"the shortest history that fails:\n{shrunk(failing)}"


def test_the_end_of_an_empty_document_clears_what_it_overtakes() -> None:
    """Found by a longer campaign: an end that changed no chunk was not passed on, though what it overtook counted on it."""
    events = (
        Event("upsert", "a", "x", 9, ("date", "hazel", "gum"), event_id="e0"),
        Event("upsert", "a", "x", 12, ("cedar",), event_id="e1"),
        Event("upsert", "a", "x", 19, ("ash",), event_id="e2"),
        Event("upsert", "a", "x", 21, (), event_id="e3"),
        Event("null", "a", "x", event_id="e4"),
    )
    histories = (History(events, frozenset({"outage"}), 1, 0.1, seed=seed) for seed in range(400))
    failing = next((history for history in histories if Simulation(history).run()), None)
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
    assert {command.name for history in histories for command in history.commands} == {
        "rollout",
        "rollback",
        "switch",
        "switch_back",
    }
    assert any(history.repaired and history.commands for history in histories)
    assert any(history.compaction for history in histories)
    assert {event.kind for history in histories for event in history.events if event.bulk} == {"upsert", "delete", "garbage"}
    assert any(event.reindex for history in histories for event in history.events)
    assert any(not event.paragraphs for history in histories for event in history.events if event.kind == "upsert")
