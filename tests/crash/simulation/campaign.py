"""Many histories, one after the other, until one fails."""

from __future__ import annotations

from collections.abc import Callable

from tests.crash.simulation.histories import History, history_of
from tests.crash.simulation.member import Parts
from tests.crash.simulation.scheduler import Simulation

Bend = Callable[[History], History | None]
"""Returns a history as it is to be tried, or None to leave it out."""


def first_failure(
    seeds: range,
    parts: Parts | None = None,
    bend: Bend | None = None,
    histories: Callable[[int], History] = history_of,
    simulation: type[Simulation] = Simulation,
) -> History | None:
    """Return the first history of `seeds` that does not come to its oracle, or None."""
    for seed in seeds:
        history: History | None = histories(seed)
        if bend is not None and history is not None:
            history = bend(history)
        if history is not None and simulation(history, parts or Parts()).run():
            return history
    return None
