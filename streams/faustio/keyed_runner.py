"""KeyedRunner: a handler call a record, many keys at once, one at a time per key."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from functools import partial
from typing import Any

from streams.errors import Stopping
from streams.faustio.continuity import OffsetContinuity
from streams.faustio.runner import Runner, Slot, record_of
from streams.ports import InRecord

Handler = Callable[[InRecord], Awaitable[None]]


class KeyedRunner(Runner):
    """Runs `handle(record)` for up to `in_flight` records at once. Records of one key run in offset order, one after the other;
    records without a key have no order among themselves. A key with many records waiting takes up room of the others.

    What `handle` may do: return (done: acknowledge) · raise Stopping, or be cancelled (not done, comes again) · raise anything else
    (broken invariant: the app crashes, nothing later of that partition is committed). Waiting out an outage and dead-lettering
    happen inside of it; while it waits it watches `app.leaving`.
    """

    def __init__(
        self, app: Any, name: str, handle: Handler, in_flight: int = 32, continuity: OffsetContinuity | None = None
    ) -> None:
        super().__init__(app, name, continuity)
        self._handle = handle
        self._room = asyncio.Semaphore(in_flight)
        self._tails: dict[bytes, tuple[Slot, asyncio.Task[None]]] = {}

    async def _admit(self, stream: Any, event: Any) -> None:
        await self._room.acquire()
        try:
            if not await self._enter(event):
                self._room.release()
                return
        except BaseException:
            self._room.release()
            raise
        slot = self._place(stream, event)
        key = event.message.key
        before = self._tails.get(key) if key is not None else None
        task = self._spawn(self._work([slot], partial(self._in_turn, slot, before)))
        task.add_done_callback(lambda _: self._room.release())
        if key is not None:
            self._tails[key] = (slot, task)
            task.add_done_callback(lambda done: self._untail(key, done))

    async def _in_turn(self, slot: Slot, before: tuple[Slot, asyncio.Task[None]] | None) -> None:
        if before is not None:
            earlier, task = before
            await asyncio.wait([task])
            same_generation = earlier.event.message.generation_id == slot.event.message.generation_id
            if same_generation and not earlier.done:
                raise Stopping("an earlier record of this key was not handled", key=slot.event.message.key)
        if self._app.leaving.is_set():
            raise Stopping("not begun before the partition is given up")
        await self._handle(record_of(slot.event))

    def _forget(self) -> None:
        pass  # what was admitted is a task already, and ends with the others

    def _untail(self, key: bytes, done: asyncio.Task[None]) -> None:
        tail = self._tails.get(key)
        if tail is not None and tail[1] is done:
            del self._tails[key]
