"""Handover: what an app does for partitions that come to it, before their first record and again when a grace is over.

Their last owner may not know yet that it lost them, and what it still does lands among what is done here. Per generation:

  ① duties.begin: before any record of a partition that is new here; where it finds nobody before, the place where each begins is
     committed, as a trace: the next owner must not find nobody once records are in hand here
  ② records are let in; where there may be a last owner, nothing is committed (`held`), and what is taken is noted
  ③ when the grace is over: no new records, those in work end, duties.recheck for each such partition
  ④ commits and records flow as usual
       crash or rebalance before ④: nothing was committed, the next owner begins at the same place, with a grace of its own

Partitions that stay here from one generation to the next have no other last owner: no grace, or what was left of theirs. A member
that missed a generation, or left a handler behind when it gave partitions up, takes all of them as new.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Protocol

import structlog

from streams.errors import Stopping
from streams.faustio.runner import CANCEL_SECONDS

log = structlog.get_logger(__name__)

MOST_KEYS = 100_000
"""Keys an app notes during a grace (tens of MB). With more, intake waits until the grace is over."""


@dataclass(slots=True)
class Taken:
    """What was taken of one partition since it was assigned."""

    keys: dict[bytes, None] = field(default_factory=dict)
    """Of all records, in order of their first."""
    spans: dict[str, tuple[int, int]] = field(default_factory=dict)
    """Topic to the first offset and the one after the last."""

    def note(self, topic: str, offset: int, key: bytes | None) -> None:
        """Take note of one record. Offsets of a topic come in order."""
        first, _ = self.spans.get(topic, (offset, offset))
        self.spans[topic] = (first, offset + 1)
        if key is not None:
            self.keys[key] = None


class Duties(Protocol):
    """What an app does at a handover. Errors other than Stopping take the app down."""

    async def begin(self, partitions: frozenset[int]) -> bool:
        """Called once a generation before the first record of partitions that are new here; none is in work. May be repeated.

        Returns True when nobody can have been at work on them before, so that they need no grace.
        """

    async def recheck(self, partition: int, taken: Taken) -> None:
        """Called when the grace of a partition is over; no record of the app is in work. May be repeated by the next owner."""


class Handover:
    """The handover of one app. Made after its runners are attached; SafeApp calls the rest."""

    def __init__(self, app: Any, duties: Duties, grace_seconds: float, most_keys: int = MOST_KEYS) -> None:
        self._app = app
        self._duties = duties
        self._grace = grace_seconds
        self._most_keys = most_keys
        self._generation: int | None = None
        self._owned: frozenset[int] = frozenset()
        self._ready: frozenset[int] = frozenset()
        self._until: dict[int, float] = {}
        self._taken: dict[int, Taken] = {}
        self._keys = 0
        self._task: asyncio.Task[None] | None = None
        self._closing = self._rechecking = False
        self._left_clean = True
        app.handover = self
        for runner in app.runners:
            runner.on_taken = self._note
            runner.hold()  # also in the first generation, whose records come before `reopen` is through

    @property
    def held(self) -> Mapping[int, float]:
        """Partitions of which nothing may be committed, with the loop's time at which their grace ends."""
        return self._until

    @property
    def begun(self) -> frozenset[int]:
        """Partitions that are owned, and whose `begin` is through."""
        return self._ready

    def reopen(self) -> None:
        """Begin a generation: prepare, then let the runners take records."""
        app, now = self._app, asyncio.get_running_loop().time()
        fed = {runner.topic for runner in app.runners}
        owned = frozenset(tp.partition for tp in app.consumer.assignment() if tp.topic in fed)
        generation = app.consumer_generation_id
        stayed = self._generation is not None and generation == self._generation + 1 and self._left_clean
        kept = owned & self._owned if stayed else frozenset()
        left_over = {number: self._until[number] for number in kept & self._until.keys()}
        self._until = left_over | dict.fromkeys(owned - kept, now + self._grace)
        self._ready &= kept
        self._generation, self._owned = generation, owned
        self._taken.clear()
        self._keys = 0
        self._closing = self._rechecking = False
        self._left_clean = True
        self._task = asyncio.get_running_loop().create_task(self._run(owned - self._ready))

    async def _run(self, new: frozenset[int]) -> None:
        try:
            if new and await self._duties.begin(new):
                await self._leave_trace(new)
                self._trust(new)
            self._ready |= new
            if not self._grace:
                self._trust(self._owned)
            self._let_records_in()
            if self._until:
                await self._wait_and_recheck()
        except Stopping:
            return  # partitions are given up: what is left to do is the next owner's
        except Exception as error:  # noqa: BLE001 - a task that died silently would hold its offsets for ever
            await self._app.crash(error)

    async def _wait_and_recheck(self) -> None:
        loop = asyncio.get_running_loop()
        log.info("partitions taken over", app=self._app.conf.id, partitions=sorted(self._until), grace_seconds=self._grace)
        await asyncio.sleep(max(0.0, max(self._until.values()) - loop.time()))
        for runner in self._app.runners:
            runner.hold()
        while any(runner.in_flight for runner in self._app.runners):
            await asyncio.gather(*(runner.finish(None) for runner in self._app.runners))
        self._rechecking = True
        began, partitions, keys = loop.time(), sorted(self._until), self._keys
        for number in partitions:
            if number in self._taken:
                await self._duties.recheck(number, self._taken[number])
        self._until.clear()
        self._taken.clear()
        self._keys = 0
        self._rechecking = False
        seconds = round(loop.time() - began, 3)
        log.info("re-checked after handover", app=self._app.conf.id, partitions=partitions, keys=keys, seconds=seconds)
        self._let_records_in()

    async def _leave_trace(self, partitions: frozenset[int]) -> None:
        app = self._app
        fronts = {tp: offset for tp, offset in app.fronts.items() if tp.partition in partitions}
        if not fronts:
            return
        app.committing_since = time.monotonic()
        try:
            if not await app.consumer._commit(fronts):
                raise Stopping("the group goes on without this member; what follows begins anew")
        finally:
            app.committing_since = None

    def _trust(self, partitions: frozenset[int]) -> None:
        for number in partitions:
            self._until.pop(number, None)

    def _let_records_in(self) -> None:
        if not self._closing:
            for runner in self._app.runners:
                runner.reopen()

    def _note(self, event: Any) -> None:
        message = event.message
        if message.partition not in self._until:
            return
        taken = self._taken.setdefault(message.partition, Taken())
        before = len(taken.keys)
        taken.note(message.topic, message.offset, message.key)
        self._keys += len(taken.keys) - before
        if self._keys >= self._most_keys:
            for runner in self._app.runners:
                runner.hold()

    def close(self) -> None:
        """Begin nothing more: partitions are given up. A recheck under way may end."""
        self._closing = True
        if self._task is not None and not self._rechecking:
            self._task.cancel()

    async def finish(self, seconds: float) -> None:
        """Return when nothing is under way, or after `seconds`."""
        if self._task is not None:
            await asyncio.wait({self._task}, timeout=seconds)

    async def cancel(self) -> None:
        """Cancel what is under way. Ends within CANCEL_SECONDS."""
        if self._task is not None and not self._task.done():
            self._left_clean &= not self._rechecking
            self._task.cancel()
            await self.finish(CANCEL_SECONDS)

    def left_behind(self, handlers: int) -> None:
        """Take note that `handlers` had to be cancelled when partitions were given up: their effects may still land."""
        self._left_clean &= not handlers
