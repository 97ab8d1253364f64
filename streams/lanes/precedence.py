"""Who goes first in a worker: live work, then bulk, then builds.

Live work waits for what the event loop has just begun, one slice of texts and one small group of writes at most. Bulk and builds
begin their next piece when no live work is in hand: a build waits for seconds, since nobody reads it yet; bulk for a moment, since
people wait for it as well, if not as much, and live work that goes on all day must not stop it.

What waits for seconds for somebody who is away (`Patience`) is not in hand meanwhile: a page whose host is down would slow all
others for as long as that takes.
"""

from __future__ import annotations

import asyncio
import math
from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from contextlib import AbstractContextManager, asynccontextmanager, contextmanager, nullcontext, suppress
from contextvars import ContextVar
from dataclasses import dataclass, field

from streams.errors import Stopping
from streams.lanes.mark import HEADER
from streams.patience import standing_aside
from streams.ports import Embedder, InRecord, Vector

SLICE_TEXTS = 8
"""Texts of a build or of bulk that are embedded at once: what live work may have to wait for."""
GROUP_DOCUMENTS = 8
"""Documents of a build or of bulk that are indexed at once: their writes stand before a live one."""
BULK_AT_ONCE = 4
"""Bulk records that a stage has at work: enough to be busy while the broker confirms, few enough to be out of the way soon."""
BULK_BESIDE_LIVE = 2
"""As many while there was live work lately: the processor that they take is what a live record waits for."""
LATELY_SECONDS = 10.0
BULK_YIELDS_SECONDS = 0.1
"""How long live work may keep a piece of bulk waiting: a live record needs a moment a stage, or waits for something itself."""
STARVED_SECONDS = 5.0
"""How long it may keep a piece of a build waiting: a batch that never ends helps nobody."""

_yields: ContextVar[float | None] = ContextVar("docdelta_yields", default=None)
"""How long the work in hand lets live work keep it waiting, in seconds; None: it is live work."""
_in_hand: ContextVar[_InHand | None] = ContextVar("docdelta_in_hand", default=None)
"""The live work in hand."""


def came_live(record: InRecord) -> bool:
    """Return whether a record did not come through [bulk]."""
    return HEADER not in record.headers


@dataclass(slots=True)
class Lanes:
    """What live work is in hand in a worker, in all its apps: other work begins its next piece when there is none.

    Work that yields says how long it lets live work keep it waiting (`yielding`), and everything it calls knows.
    """

    live: int = 0
    clock: Callable[[], float] = lambda: asyncio.get_running_loop().time()
    _quiet: asyncio.Event = field(default_factory=asyncio.Event)
    _last: float = -math.inf

    def __post_init__(self) -> None:
        self._quiet.set()

    @contextmanager
    def busy(self) -> Iterator[None]:
        """Mark live work for as long as the block takes, and waits for nobody who is away."""
        work = _InHand(self)
        self.count(1)
        token = _in_hand.set(work)
        try:
            with standing_aside(work.aside):
                yield
        finally:
            _in_hand.reset(token)
            work.end()

    def count(self, more: int) -> None:
        """Take note of one piece of live work more or less."""
        self.live += more
        self._last = self.clock()
        if self.live:
            self._quiet.clear()
        else:
            self._quiet.set()

    @property
    def lately(self) -> bool:
        """True when live work is in hand, or was a few seconds ago: more of it is to be expected."""
        return bool(self.live) or self.clock() - self._last < LATELY_SECONDS

    @asynccontextmanager
    async def yielding(self, seconds: float) -> AsyncIterator[None]:
        """Let live work go first, here and before each piece of what the block does, by at most so many seconds each time."""
        await self.quiet(seconds)
        token = _yields.set(seconds)
        try:
            yield
        finally:
            _yields.reset(token)

    async def quiet(self, seconds: float = STARVED_SECONDS) -> None:
        """Return when no live work is in hand, at the latest after so many seconds."""
        if self._quiet.is_set():
            await asyncio.sleep(0)  # what came meanwhile is seen before the next piece
        if not self._quiet.is_set():
            with suppress(TimeoutError):
                async with asyncio.timeout(seconds):  # wait_for of 3.11 loses a cancellation in the moment of a change
                    await self._quiet.wait()


@dataclass(eq=False, slots=True)
class _InHand:
    """One piece of live work. Several of its tasks may wait for somebody at once, also beyond its end."""

    lanes: Lanes
    waits: int = 0
    over: bool = False

    @contextmanager
    def aside(self) -> Iterator[None]:
        self._wait(1)
        try:
            yield
        finally:
            self._wait(-1)

    def end(self) -> None:
        if not self.waits:
            self.lanes.count(-1)
        self.over = True

    def _wait(self, more: int) -> None:
        before, self.waits = self.waits, self.waits + more
        if not self.over and bool(before) != bool(self.waits):
            self.lanes.count(1 if before else -1)


def elsewhere() -> AbstractContextManager[None]:
    """Return a block in which live work waits for another machine, and is not in hand here. Bulk keeps its room."""
    work = _in_hand.get()
    return work.aside() if work is not None else nullcontext()


@dataclass(eq=False, slots=True)
class _Seat:
    """Room of one bulk record, given up at its end or when it first waits for somebody: it is not taken a second time."""

    rooms: list[asyncio.Semaphore] = field(default_factory=list)

    async def take(self, room: asyncio.Semaphore) -> None:
        await room.acquire()
        self.rooms.append(room)

    @contextmanager
    def aside(self) -> Iterator[None]:
        self.leave()
        yield

    def leave(self) -> None:
        while self.rooms:
            self.rooms.pop().release()


@dataclass(slots=True)
class Precedence:
    """How one stage takes live records before bulk ones. So many bulk records may be at work at once: `room`, and `beside_live`
    while there was live work lately."""

    lanes: Lanes
    room: asyncio.Semaphore = field(default_factory=lambda: asyncio.Semaphore(BULK_AT_ONCE))
    beside_live: asyncio.Semaphore = field(default_factory=lambda: asyncio.Semaphore(BULK_BESIDE_LIVE))

    @asynccontextmanager
    async def turn(self, record: InRecord, leaving: asyncio.Event) -> AsyncIterator[None]:
        """Return when a record may be handled: a live one at once, one that came through [bulk] after live ones.

        Raises Stopping when the app gives up its partitions meanwhile.
        """
        if came_live(record):
            with self.lanes.busy():
                yield
            return
        seat = _Seat()
        try:
            await seat.take(self.room)
            if self.lanes.lately:
                await seat.take(self.beside_live)
            with standing_aside(seat.aside):
                async with self.lanes.yielding(BULK_YIELDS_SECONDS):
                    if leaving.is_set():
                        raise Stopping("not begun before the partition is given up")
                    yield
        finally:
            seat.leave()


@dataclass(frozen=True, slots=True)
class LaneEmbedder:
    """An `Embedder` that lets live work go first: work that yields (`Lanes.yielding`) has its texts embedded in slices."""

    inner: Embedder
    lanes: Lanes

    @property
    def model(self) -> str:
        """Name as policies write it."""
        return self.inner.model

    @property
    def dimensions(self) -> int:
        """Length of every vector."""
        return self.inner.dimensions

    @property
    def max_tokens(self) -> int | None:
        """The model's own input limit."""
        return self.inner.max_tokens

    def count_tokens(self, text: str) -> int:
        """Return the number of the model's own tokens of a text."""
        return self.inner.count_tokens(text)

    async def embed(self, texts: Sequence[str]) -> list[Vector]:
        """Return one vector a text, in order. Errors of the inner embedder."""
        seconds = _yields.get()
        if seconds is None:
            with self.lanes.busy():
                return await self.inner.embed(texts)
        vectors: list[Vector] = []
        for start in range(0, len(texts), SLICE_TEXTS):
            await self.lanes.quiet(seconds)
            vectors += await self.inner.embed(texts[start : start + SLICE_TEXTS])
        return vectors
