"""The pace of a build: how fast its documents are taken."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field

from streams.errors import Stopping


@dataclass(slots=True)
class Pace:
    """Lets documents through at `rate` a second (None: at once). The rate may be changed at any time.

    `leaving` ends a wait with Stopping: the record comes again to whoever owns its partition then.
    """

    rate: float | None = None
    _free_at: float = 0.0
    _changed: asyncio.Event = field(default_factory=asyncio.Event)

    def set(self, rate: float | None) -> None:
        """Change the rate, for those that wait as well."""
        if rate != self.rate:
            self.rate = rate
            self._free_at = 0.0
            self._changed.set()
            self._changed = asyncio.Event()

    async def turn(self, leaving: asyncio.Event) -> None:
        """Return when the next document may be taken. Raises Stopping when the app gives up its partitions meanwhile."""
        loop = asyncio.get_running_loop()
        while self.rate is not None:
            changed, now = self._changed, loop.time()
            mine = max(self._free_at, now)
            self._free_at = mine + 1.0 / self.rate
            if mine <= now or not await _first_of(leaving, changed, mine - now):
                break
            if leaving.is_set():
                raise Stopping("shutting down", what="keeping a build's pace")


async def _first_of(leaving: asyncio.Event, changed: asyncio.Event, seconds: float) -> bool:
    """Return True when one of the events is set within the time."""
    waits = [asyncio.ensure_future(event.wait()) for event in (leaving, changed)]
    try:
        done, _ = await asyncio.wait(waits, timeout=seconds, return_when=asyncio.FIRST_COMPLETED)
        return bool(done)
    finally:
        for wait in waits:
            wait.cancel()
