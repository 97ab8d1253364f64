"""How a build yields to live work: a pace for its documents, and lanes before model and index.

Live work waits for one slice of a build's texts and one small group of its writes at most; a build begins its next piece when no
live work is in hand.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field

from streams.errors import Stopping
from streams.ports import Embedder, Vector

SLICE_TEXTS = 8
"""Texts of a build that are embedded at once: what live work may have to wait for."""
GROUP_DOCUMENTS = 8
"""Documents of a build that are indexed at once: their writes stand before a live one."""
STARVED_SECONDS = 5.0
"""A build that live work has kept waiting so long embeds one slice all the same: a batch that never ends helps nobody."""


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


@dataclass(slots=True)
class Lanes:
    """What live work of all batches of a worker is in hand: builds begin their next piece when there is none."""

    live: int = 0
    _quiet: asyncio.Event = field(default_factory=asyncio.Event)

    def __post_init__(self) -> None:
        self._quiet.set()

    def enter(self) -> None:
        """Say that live work begins."""
        self.live += 1
        self._quiet.clear()

    def leave(self) -> None:
        """Say that live work ends."""
        self.live -= 1
        if not self.live:
            self._quiet.set()

    @contextmanager
    def busy(self) -> Iterator[None]:
        """Mark live work for as long as the block takes."""
        self.enter()
        try:
            yield
        finally:
            self.leave()

    async def quiet(self) -> None:
        """Return when no live work is in hand, at the latest after STARVED_SECONDS."""
        try:
            await asyncio.wait_for(self._quiet.wait(), STARVED_SECONDS)
        except TimeoutError:
            return


@dataclass(frozen=True, slots=True)
class LaneEmbedder:
    """An `Embedder` that lets live work go first. `is_live` tells in which lane this batch's texts are now."""

    inner: Embedder
    lanes: Lanes
    is_live: Callable[[], bool]

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
        if self.is_live():
            with self.lanes.busy():
                return await self.inner.embed(texts)
        vectors: list[Vector] = []
        for start in range(0, len(texts), SLICE_TEXTS):
            await self.lanes.quiet()
            vectors += await self.inner.embed(texts[start : start + SLICE_TEXTS])
        return vectors
