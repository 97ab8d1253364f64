"""Stand-ins for what the runners use of Faust: an app that notes crashes, a stream that hands out events and notes acks."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterable
from dataclasses import dataclass, field
from typing import Any

from faust.types import TP


@dataclass(eq=False)
class FakeMessage:
    topic: str
    partition: int
    offset: int
    key: bytes | None
    value: bytes | None
    generation_id: int = 1
    headers: Any = None
    timestamp: float = 0.0

    @property
    def tp(self) -> TP:
        return TP(self.topic, self.partition)


@dataclass(eq=False)
class FakeEvent:
    message: FakeMessage


@dataclass
class FakeConsumer:
    commits: int = 0
    _committed_offset: dict[TP, int] = field(default_factory=dict)

    async def commit(self) -> bool:
        self.commits += 1
        return True


class FakeApp:
    def __init__(self) -> None:
        self.consumer = FakeConsumer()
        self.consumer_generation_id = 1
        self.fronts: dict[TP, int] = {}
        self.crashes: list[BaseException] = []
        self.crashed = asyncio.Event()
        self.leaving = asyncio.Event()

    async def crash(self, reason: BaseException) -> None:
        self.crashes.append(reason)
        self.crashed.set()


class FakeStream:
    """Hands out events; `acked` is what was acknowledged, in order."""

    def __init__(self, events: Iterable[FakeEvent] = ()) -> None:
        self.enable_acks = True
        self.acked: list[tuple[int, int]] = []
        self.taken = 0
        self._queue: asyncio.Queue[FakeEvent | None] = asyncio.Queue()
        for event in events:
            self._queue.put_nowait(event)

    def push(self, *events: FakeEvent) -> None:
        for event in events:
            self._queue.put_nowait(event)

    def end(self) -> None:
        self._queue.put_nowait(None)

    async def events(self) -> AsyncIterator[FakeEvent]:
        while (event := await self._queue.get()) is not None:
            self.taken += 1
            yield event

    async def ack(self, event: FakeEvent) -> bool:
        self.acked.append((event.message.partition, event.message.offset))
        return True


def event(offset: int, key: str | None = None, partition: int = 0, generation: int = 1, headers: Any = None) -> FakeEvent:
    """An event; its key is its own unless given, `None` spelt as the empty string means no key."""
    raw = None if key == "" else (key or f"key-{offset}").encode()
    return FakeEvent(FakeMessage("t", partition, offset, raw, str(offset).encode(), generation, headers))


async def settle(turns: int = 50) -> None:
    """Let everything that can run, run."""
    for _ in range(turns):
        await asyncio.sleep(0)
