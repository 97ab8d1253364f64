"""Long campaigns: blocks of seeds through some processes, until the first history fails or all are done."""

from __future__ import annotations

import multiprocessing
import signal
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass

from tests.crash.simulation.kinds import KINDS, kind_of

BLOCK = 250
"""Histories that a process takes at once: some four seconds."""


@dataclass(frozen=True, slots=True)
class Failed:
    """A history that does not come to its oracle: its family and its seed there."""

    kind: str
    seed: int


def fails(kind: str, seed: int) -> bool:
    """Return whether a seed's history does not come to its oracle. Whatever is raised on the way counts as well."""
    family = KINDS[kind]
    try:
        return bool(family.simulation(family.history(seed), False).run())
    except Exception:  # noqa: BLE001 - an error of the agents that got out of the simulator is a finding, and has a seed
        return True


def first_of_block(block: tuple[str, range]) -> Failed | None:
    """Return the first failure of a block: (family, or empty for all in turn; seeds)."""
    only, seeds = block
    return next((Failed(kind, seed) for seed in seeds if fails(kind := only or kind_of(seed), seed)), None)


def campaign(
    first: int, count: int, processes: int, kind: str = "", told: Callable[[int, float], None] = lambda done, seconds: None
) -> Failed | None:
    """Return the failure with the lowest seed among the blocks under way when one was found, or None where all came to theirs.

    `told` hears (histories done, seconds) after each block, in the order of their seeds.
    """
    began, done = time.monotonic(), 0
    with multiprocessing.get_context("fork").Pool(processes, initializer=_left_to_the_parent) as pool:
        blocks = [(kind, range(start, min(start + BLOCK, first + count))) for start in range(first, first + count, BLOCK)]
        found: Iterator[Failed | None] = pool.imap(first_of_block, blocks)
        for (_, seeds), failed in zip(blocks, found, strict=True):
            if failed is not None:
                return failed  # leaving the pool ends the others
            done += len(seeds)
            told(done, time.monotonic() - began)
    return None


def _left_to_the_parent() -> None:
    """Ctrl-C reaches the whole group: the parent alone answers, and ends the others."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
