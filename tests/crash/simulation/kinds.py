"""Kinds: the families of histories that a long campaign goes through in turn, each with the simulation that runs it."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from functools import partial

from tests.crash.simulation.doors import DoorSimulation, door_history, doors, rejecting_history
from tests.crash.simulation.histories import History, history_of, only
from tests.crash.simulation.letters import LetterSimulation, letter_history
from tests.crash.simulation.scheduler import Simulation
from tests.crash.simulation.shrinking import Run


@dataclass(frozen=True, slots=True)
class Kind:
    """What a seed stands for in this family, and how it is run."""

    history: Callable[[int], History]
    simulation: Run


def _plainly(history: History, tracing: bool) -> Simulation:
    return Simulation(history, tracing=tracing)


def _with_letters(history: History, tracing: bool) -> Simulation:
    return LetterSimulation(history, tracing=tracing)


def _with_a_door(history: History, tracing: bool, rejects: bool) -> Simulation:
    return DoorSimulation(history, doors(), tracing, rejects=rejects)


def two_owners(seed: int) -> History:
    """Return a history in which two believe that they own a partition, at least three times, over logs that are compacted."""
    return replace(only("zombie")(history_of(seed)), compaction=True, repaired=False)


KINDS: Mapping[str, Kind] = {
    "any": Kind(history_of, _plainly),
    "two-owners": Kind(two_owners, _plainly),
    "held": Kind(door_history, partial(_with_a_door, rejects=False)),
    "held-or-rejected": Kind(rejecting_history, partial(_with_a_door, rejects=True)),
    "letters": Kind(letter_history, _with_letters),
}
"""Name to family."""
TURNS = ("any", "letters", "any", "two-owners", "any", "letters", "held", "held-or-rejected")
"""A seed's family, by its last three bits."""


def kind_of(seed: int) -> str:
    """Return the family of a seed in a campaign through all of them."""
    return TURNS[seed % len(TURNS)]
