"""BatchRunner: a handler call a group of records: Faust's own `take` loses records."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable, Sequence
from contextlib import suppress
from functools import partial
from typing import Any

from streams.faustio.continuity import OffsetContinuity
from streams.faustio.runner import Runner, record_of
from streams.ports import InRecord

GroupHandler = Callable[[Sequence[InRecord]], Awaitable[None]]


class BatchRunner(Runner):
    """Gathers up to `size` records, or what comes within `seconds` after the first, and runs `handle(records)`: in order
    of arrival, which is offset order per partition and so the order per key. While `at_once` groups are in work the next one
    gathers. Groups at work together share no key, which keeps the order per key: a group ends before a record whose key is in work.

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
    ) -> None:
        super().__init__(app, name, continuity)
        self._handle = handle
        self._at_once = at_once
        self._keys_at_work: set[bytes] = set()
        self._size = size
        self._seconds = seconds
        self._waiting: deque[tuple[Any, Any]] = deque()
        self._changed = asyncio.Event()

    @property
    def records_in_hand(self) -> int:
        """Number of records taken and not acknowledged."""
        return super().records_in_hand + len(self._waiting)

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
            self._waiting.append((stream, event))
            self._changed.set()

    async def _next_change(self) -> None:
        # Several may wait here: whoever is woken looks again, nobody relies on being the only one.
        self._changed.clear()
        await self._changed.wait()

    async def _run_groups(self) -> None:
        try:
            await self._group_after_group()
        except Exception as error:  # noqa: BLE001 - a task that died silently would stall its partitions
            await self._fail(error)

    async def _group_after_group(self) -> None:
        at_work: set[asyncio.Task[None]] = set()
        while True:
            if len(at_work) >= self._at_once:
                _, at_work = await asyncio.wait(at_work, return_when=asyncio.FIRST_COMPLETED)
                continue
            group = await self._gather()
            if not group:
                continue
            slots = [self._place(stream, event) for stream, event in group]
            records = tuple(record_of(slot.event) for slot in slots)
            keys = {record.key for record in records if record.key is not None}
            self._keys_at_work |= keys
            task = self._spawn(self._work(slots, partial(self._handle, records)))
            task.add_done_callback(lambda _, keys=keys: self._ended(keys))  # type: ignore[misc]
            at_work.add(task)

    def _ended(self, keys: set[bytes]) -> None:
        self._keys_at_work -= keys
        self._changed.set()

    def _may_begin(self) -> bool:
        return bool(self._waiting) and self._waiting[0][1].message.key not in self._keys_at_work

    async def _gather(self) -> list[tuple[Any, Any]]:
        """Return the next group; empty when a rebalance took it away."""
        while not self._may_begin():
            await self._next_change()
        loop = asyncio.get_running_loop()
        until = loop.time() + self._seconds
        while len(self._waiting) < self._size and (left := until - loop.time()) > 0:
            with suppress(TimeoutError):
                await asyncio.wait_for(self._next_change(), left)
        await self._open.wait()
        group: list[tuple[Any, Any]] = []
        while len(group) < self._size and self._may_begin():
            group.append(self._waiting.popleft())
        self._changed.set()
        return [(stream, event) for stream, event in group if self._is_current(event)]

    def _forget(self) -> None:
        self._waiting.clear()
        self._changed.set()
