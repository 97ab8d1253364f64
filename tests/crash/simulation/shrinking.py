"""From a failing history to the shortest one that still fails, and the timeline of what happened in it."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from functools import partial

from tests.crash.simulation.histories import History
from tests.crash.simulation.member import Parts
from tests.crash.simulation.scheduler import Simulation

Run = Callable[[History, bool], Simulation]
"""(history, tracing) to its simulation, not run yet."""
DICE_TRIES = 40
"""Dice that a smaller history is tried with: leaving out an event changes every throw after it."""


LEGEND = "g1, g2: lives of an app; topic@partition, from..to; apply: +written ~payloads =stamped -removed"


@dataclass(frozen=True, slots=True)
class Finding:
    """A failing history and what is wrong with its end."""

    history: History
    complaints: tuple[str, ...]
    timeline: tuple[tuple[str, str], ...] = ()

    def __str__(self) -> str:
        width = max((len(who) for who, _ in self.timeline), default=0)
        happened = "\n".join(f"  {who:<{width}}  {what[:200]}" for who, what in self.timeline)
        wrong = "\n".join(f"  {complaint}" for complaint in self.complaints)
        return f"{self.history}\n\nwhat happened ({LEGEND}):\n{happened}\n\nwhat is wrong:\n{wrong}"


def shrunk(history: History, parts: Parts | None = None, run: Run | None = None) -> Finding:
    """Return the shortest failing history that dropping faults and events one by one leads to. `history` must fail.

    run: what runs a history where it is not a plain `Simulation` of these parts.
    """
    made = run or partial(_plainly, parts or Parts())
    smaller: History | None = history
    while smaller is not None:
        history = smaller
        smaller = next((found for candidate in _candidates(history) if (found := _failing(candidate, made)) is not None), None)
    return traced(history, made)


def traced(history: History, run: Run) -> Finding:
    """Return a history as it is, what is wrong with its end, and what happened."""
    simulation = run(history, True)
    complaints = simulation.run()
    return Finding(history, tuple(complaints), tuple(simulation.timeline))


def _plainly(parts: Parts, history: History, tracing: bool) -> Simulation:
    return Simulation(history, parts, tracing)


def _candidates(history: History) -> Iterator[History]:
    """Give smaller histories, the boldest first."""
    count = len(history.events)
    for size in (count // 2, count // 4, 1):
        if size:
            for start in range(0, count, size):
                yield replace(history, events=history.events[:start] + history.events[start + size :])
    for fewer in (0, history.fault_limit // 2, history.fault_limit - 1):
        if 0 <= fewer < history.fault_limit:
            yield replace(history, fault_limit=fewer)
    for fault in sorted(history.faults):
        yield replace(history, faults=history.faults - {fault}, fault_limit=history.fault_limit if len(history.faults) > 1 else 0)
    for number in range(len(history.commands)):
        yield replace(history, commands=history.commands[:number] + history.commands[number + 1 :])
    if history.partitions > 1:
        yield replace(history, partitions=1)
    for option in ("eager_store", "small_parts", "compaction", "repaired"):
        if getattr(history, option):
            yield replace(history, **{option: False})


def _failing(history: History, run: Run) -> History | None:
    """Return the history with dice that make it fail, or None."""
    for offset in range(DICE_TRIES):
        candidate = replace(history, seed=history.seed + offset)
        if run(candidate, False).run():
            return candidate
    return None
