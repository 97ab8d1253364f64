"""Lives of a worker: each is told where to die, works until it does, and the next one takes up what it left.

One restart a life: the next life, armed with its own order, first settles what the last one left (or dies at that), then the index
is held against the oracle, then a new wave of events leads it to its own death. Several installations live side by side, since most
of a life is waiting for the broker to give up the dead member.
"""

from __future__ import annotations

import asyncio
import traceback
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from streams.crash_points import STEPS
from streams.settings import KafkaSettings
from tests.contracts.qdrant_shim import Fault
from tests.crash.stack.installation import Installation, installation

WAVES = 6
"""Waves within which a step must have been reached often enough."""


@dataclass(frozen=True, slots=True)
class Death:
    """Where a worker dies: the `time`-th time at a step, or (`operations` given) when the index has carried out so many of the
    operations of the `time`-th write from now and nobody has been told."""

    step: str
    time: int = 1
    operations: int | None = None

    @property
    def order(self) -> str:
        """Return the value of the environment variable; nothing for a death that the index brings."""
        return f"{self.step}:{self.time}" if self.operations is None else ""

    def __str__(self) -> str:
        return f"{self.step}-{self.time}" if self.operations is None else f"{self.step}-{self.time}-after-{self.operations}"


LATER = {
    "parser.published": (7,),
    "chunker.published": (4, 8),
    "chunker.saved": (6,),
    "table.confirmed": (5, 13),
    "index.confirmed": (4,),
    "indexer.written": (5,),
    "indexer.settled": (6,),
    "offset.passed": (5, 17),
    "indexer.suspect": (2,),
}
"""The later times at which each step kills; 3 where nothing is said."""
HOLDING = ("breaker.tripped", "parser.held", "parser.told", "parser.released")
"""Reached only where a breaker trips: tests/crash/stack/test_holding_steps.py."""
DEATHS = [
    *(Death(step, time) for step in STEPS if step not in HOLDING for time in (1, *LATER.get(step, (3,)))),
    *(Death("index.half-done", time, operations) for time, operations in ((1, 0), (1, 1), (2, 1), (1, 2), (2, 2), (1, 3), (2, 99))),
]


async def live_through(deaths: Sequence[Death], kafka: KafkaSettings, folder: Path, prefix: str) -> dict[Death, str]:
    """Live all lives in one installation; return what was wrong after each death, nothing where all was right.

    After a failure the rest is lived in a new installation.
    """
    verdicts: dict[Death, str] = {}
    left = list(deaths)
    while left:
        place = f"{prefix}-{len(deaths) - len(left)}"
        async with installation(kafka, folder / place, place, seed=len(left)) as own:
            try:
                while left:
                    await _live(own, left[0])
                    verdicts[left.pop(0)] = ""
                await _last_life(own)
            except Exception:  # noqa: BLE001 - becomes the verdict of the test of this death
                blamed = left.pop(0) if left else deaths[-1]
                verdicts[blamed] = traceback.format_exc() + own.rig.log()[-4000:]
    return verdicts


async def _live(own: Installation, death: Death) -> None:
    worker = own.start(order=death.order)
    if not (await own.settle(dying="one") and await _mend(own)):
        return  # died at its step already, while it took up what the last one left
    await own.check()
    _set_trap(own, death, worker.kill)
    for _ in range(WAVES):
        await own.send(own.site.wave())
        if not await own.settle(dying="one"):
            own.rig.shim.faults.clear()
            return
    raise AssertionError(f"{death} was not reached within {WAVES} waves")


def _set_trap(own: Installation, death: Death, kill: object) -> None:
    faults = own.rig.shim.faults
    faults.clear()
    if death.operations is not None:
        assert callable(kill)
        faults.append(Fault(skip=death.time - 1, killed_after=death.operations, and_then=kill))
    elif death.step == "indexer.suspect":
        own.forgiving = True
        faults += [Fault(status=400, words="refused by script") for _ in range(death.time)]


async def _mend(own: Installation) -> bool:
    """After refusals by the index: the documents' next events make everything right again. False: the worker died meanwhile."""
    if own.forgiving:
        await own.send(own.site.refreshed())
        if not await own.settle(dying="one"):
            return False
        own.forgiving = False
    return True


async def _last_life(own: Installation) -> None:
    own.start()
    assert await own.settle()
    assert await _mend(own)
    await own.check()
    code = await own.rig.stop()
    assert code == 0, own.rig.log()[-4000:]


async def all_lives(kafka: KafkaSettings, folder: Path, prefix: str, side_by_side: int) -> dict[Death, str]:
    """Live all DEATHS in some installations side by side; return the verdict of each."""
    lanes = [DEATHS[number::side_by_side] for number in range(side_by_side)]
    found = await asyncio.gather(*(live_through(lane, kafka, folder, f"{prefix}-{number}") for number, lane in enumerate(lanes)))
    return {death: verdict for lane in found for death, verdict in lane.items()}
