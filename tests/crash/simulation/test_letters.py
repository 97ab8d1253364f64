"""Whatever was refused, mended, replayed, dropped and forgotten on the way: nothing is lost, and nothing comes back."""

from __future__ import annotations

import os

from tests.crash.simulation.campaign import first_failure
from tests.crash.simulation.histories import UNEMBEDDABLE_YET, UNREADABLE_YET, Command, Event, History
from tests.crash.simulation.letter_mutations import often
from tests.crash.simulation.letters import LetterSimulation, letter_history
from tests.crash.simulation.shrinking import shrunk

HISTORIES = int(os.environ.get("SIMULATED_HISTORIES", "5000")) // 10


def told(failing: History) -> str:
    return str(shrunk(failing, run=lambda history, tracing: LetterSimulation(history, tracing=tracing)))


def test_every_history_with_dead_letters_comes_to_its_oracle() -> None:
    failing = first_failure(range(HISTORIES), histories=letter_history, simulation=LetterSimulation)
    assert failing is None, f"history {failing.seed} fails; the shortest that still does:\n{told(failing)}"


def test_what_was_refused_goes_by_a_replay_though_a_newer_revision_says_the_same() -> None:
    """Found at seed 11: the newer one said nothing new, never came to the batch, and made the letter stale for a replay."""
    words = ("hazel", "date", UNEMBEDDABLE_YET)
    events = (Event("upsert", "a", "y", 2, words, event_id="e0"), Event("upsert", "a", "y", 3, words, event_id="e1"))
    for seed in range(40):
        assert LetterSimulation(History(events, seed=seed)).run() == []


def test_letters_forgotten_while_a_worker_keeps_their_index_stay_closed() -> None:
    """Found at seed 245: the worker wrote an entry between the two null values of `gc`, which took the closing away behind it."""
    assert LetterSimulation(often(245, "forget", ("crash",))).run() == []
    words = ("hazel", UNREADABLE_YET)
    events = (Event("upsert", "a", "x", 5, words, event_id="e0"), Event("upsert", "a", "x", 8, ("ash",), event_id="e1"))
    commands = (*(Command("keep", 2) for _ in range(3)), *(Command("forget", 2) for _ in range(2)))
    for seed in range(100):
        assert LetterSimulation(History(events, frozenset({"kill_command"}), 2, 0.05, commands=commands, seed=seed)).run() == []


def test_the_histories_hold_every_command() -> None:
    histories = [letter_history(seed) for seed in range(300)]
    commands = {command.name for history in histories for command in history.commands}
    assert {"replay", "drop", "forget", "keep", "mend", "retire", "rollout"} <= commands
    assert any(event.is_curable for history in histories for event in history.events if event.bulk)
    assert {fault for history in histories for fault in history.faults} >= {"kill_command", "lose_answer", "crash", "zombie"}
