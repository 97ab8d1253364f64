"""BatchRunner: a handler call a group of records: Faust's own `take` loses records."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Collection, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from typing import Any

from streams.faustio.continuity import OffsetContinuity
from streams.faustio.runner import Runner, Slot, record_of
from streams.ports import InRecord

GroupHandler = Callable[[Sequence[InRecord]], Awaitable[None]]


def _nobody(_: InRecord) -> bool:
    return False


@dataclass(eq=False, frozen=True, slots=True)
class Waiting:
    """A record that was admitted and has not begun."""

    record: InRecord
    slot: Slot
    first: bool
    """It goes before those that do not."""


class BatchRunner(Runner):
    """Gathers up to `size` records, or what comes within `seconds` after the first, and runs `handle(records)`. While `at_once`
    groups are in work the next one gathers.

    Records that go first (`goes_first`) wait for no company: they make a group of their own at once, past all that wait and beside
    the `at_once` groups of others, and up to `at_once` such groups are in work.

    Records of one key are handled in offset order: groups at work share no key, a record passes none of its own key, and a group
    holds its records in order of arrival. Acknowledged is in offset order per partition, whatever went first.

    What `handle` may do is as for KeyedRunner, for the group as a whole: all are acknowledged or none.
    """

    def __init__(
        self,
        app: Any,
        name: str,
        handle: GroupHandler,
        size: int = 32,
        seconds: float = 0.05,
        continuity: OffsetContinuity | None = None,
        at_once: int = 1,
        goes_first: Callable[[InRecord], bool] = _nobody,
    ) -> None:
        super().__init__(app, name, continuity)
        self._handle = handle
        self._size = size
        self._seconds = seconds
        self._at_once = at_once
        self._goes_first = goes_first
        self._waiting: list[Waiting] = []
        self._keys_at_work: set[bytes] = set()
        self._groups_at_work = {True: 0, False: 0}
        """Those that went first, and the others."""
        self._due: float | None = None
        """When the next group of others begins, full or not: however many go first meanwhile, it waits no longer for that."""
        self._changed = asyncio.Event()

    async def run(self, stream: Any) -> None:
        """Take the records of a stream until it ends (then finish what is waiting) or this task is cancelled."""
        groups = asyncio.get_running_loop().create_task(self._run_groups())
        try:
            await super().run(stream)
            while self._waiting or self._tasks:
                await self._next_change()
        finally:
            groups.cancel()
            with suppress(asyncio.CancelledError):
                await groups

    async def _admit(self, stream: Any, event: Any) -> None:
        while len(self._waiting) >= self._size:
            await self._next_change()
        if await self._enter(event):
            record = record_of(event)
            self._waiting.append(Waiting(record, self._place(stream, event), self._goes_first(record)))
            self._changed.set()

    async def _next_change(self, seconds: float | None = None) -> None:
        # Several may wait here: whoever is woken looks again, nobody relies on being the only one.
        self._changed.clear()
        with suppress(TimeoutError):
            async with asyncio.timeout(seconds):  # wait_for of 3.11 loses a cancellation in the moment of a change
                await self._changed.wait()

    async def _run_groups(self) -> None:
        try:
            while True:
                await self._begin(await self._gather())
        except Exception as error:  # noqa: BLE001 - a task that died silently would stall its partitions
            await self._fail(error)

    async def _gather(self) -> bool:
        """Return when a group may begin: True for one that goes first."""
        loop = asyncio.get_running_loop()
        while True:
            if self._has_room(first=True) and pick(self._waiting, self._keys_at_work, 1, first_only=True):
                return True
            if not self._has_room(first=False) or not pick(self._waiting, self._keys_at_work, 1):
                self._due = None
                await self._next_change()
                continue
            if self._due is None:
                self._due = loop.time() + self._seconds
            left = self._due - loop.time()
            if len(self._waiting) >= self._size or left <= 0:
                self._due = None
                return False
            await self._next_change(left)

    def _has_room(self, first: bool) -> bool:
        return self._groups_at_work[first] < self._at_once

    async def _begin(self, first: bool) -> None:
        """Begin a group of what waits, unless records are not let in any more."""
        await self._open.wait()
        group = pick(self._waiting, self._keys_at_work, self._size, first_only=first)
        taken = set(group)
        self._waiting = [waiting for waiting in self._waiting if waiting not in taken]
        group = [waiting for waiting in group if self._is_current(waiting.slot.event)]
        self._changed.set()
        if not group:
            return  # a rebalance took it away
        keys = {waiting.record.key for waiting in group if waiting.record.key is not None}
        self._keys_at_work |= keys
        self._groups_at_work[first] += 1
        records = tuple(waiting.record for waiting in group)
        task = self._spawn(self._work([waiting.slot for waiting in group], partial(self._handle, records)))
        task.add_done_callback(lambda _: self._ended(keys, first))

    def _ended(self, keys: set[bytes], first: bool) -> None:
        self._keys_at_work -= keys
        self._groups_at_work[first] -= 1
        self._changed.set()

    def _forget(self) -> None:
        self._waiting.clear()
        self._changed.set()


def pick(waiting: Sequence[Waiting], busy: Collection[bytes], size: int, first_only: bool = False) -> list[Waiting]:
    """Return up to `size` records that may begin, in order of arrival: none whose key is `busy`, and none that would pass one of
    its own key. `first_only`: only records that go first."""
    blocked, picked = set(busy), list[Waiting]()
    for each in waiting:
        if len(picked) == size:
            break
        key = each.record.key
        if key in blocked or (first_only and not each.first):
            if key is not None:
                blocked.add(key)
            continue
        picked.append(each)
    return picked
