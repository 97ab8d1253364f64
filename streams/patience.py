"""Patience: how an operation is tried again while somebody else is away. Backoff with full jitter, `retry_after` honoured."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Awaitable, Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from contextvars import ContextVar
from dataclasses import dataclass, field
from typing import TypeVar

import structlog

from streams import metrics
from streams.errors import Stopping, Unavailable

log = structlog.get_logger(__name__)
Result = TypeVar("Result")
LONGEST_ASKED_SECONDS = 600.0
"""A longer `retry_after` is somebody's mistake, and would look like a worker that hangs."""
LONG_WAIT_SECONDS = 5.0
"""Whoever waits so long lets others go on meanwhile. Not for less: where somebody asks all of us to slow down (429), what waits
for its next try would be outrun by those who should come after it."""

Aside = Callable[[], AbstractContextManager[None]]
_aside: ContextVar[Aside] = ContextVar("docdelta_aside", default=nullcontext)


@contextmanager
def standing_aside(aside: Aside) -> Iterator[None]:
    """Have `aside()` entered for as long as anything that the block calls waits long for somebody who is away.

    For whoever keeps others waiting while the block is at work. Tasks of the block may wait side by side, and outlive it.
    """
    token = _aside.set(aside)
    try:
        yield
    finally:
        _aside.reset(token)


@dataclass(slots=True)
class Patience:
    """Waits between tries. `stopping` ends every wait with `Stopping`, so that a worker in an outage still stops at once.

    first and longest are in seconds. `dice` returns a number in [0, 1) and is passed in, so that tests repeat.
    """

    stopping: asyncio.Event = field(default_factory=asyncio.Event)
    first: float = 0.1
    longest: float = 30.0
    dice: Callable[[], float] = random.random

    async def hold(self, operation: Callable[[], Awaitable[Result]], what: str) -> Result:
        """Return the operation's result, repeating it for as long as it raises Unavailable. Raises Stopping on shutdown."""
        attempt, wait = 0, metrics.Wait(what)
        try:
            while True:
                if self.stopping.is_set():
                    raise Stopping("shutting down", what=what)
                try:
                    return await operation()
                except Unavailable as error:
                    attempt += 1
                    wait.failed(error)
                    seconds = self.delay(attempt, error.retry_after)
                    log.warning("waiting", what=what, attempt=attempt, seconds=round(seconds, 2), reason=str(error))
                await self.pause(seconds, what)
        finally:
            wait.over()

    def delay(self, attempt: int, retry_after: float | None) -> float:
        """Return seconds to wait after try `attempt` (from 1): not less than asked for, up to LONGEST_ASKED_SECONDS."""
        ceiling = min(self.longest, self.first * 2.0 ** min(attempt - 1, 16))
        jittered = ceiling * (0.5 + 0.5 * self.dice())
        return jittered if retry_after is None else min(retry_after, LONGEST_ASKED_SECONDS) + min(jittered, 1.0)

    async def pause(self, seconds: float, what: str) -> None:
        """Wait, or raise Stopping as soon as the worker stops."""
        with _aside.get()() if seconds >= LONG_WAIT_SECONDS else nullcontext():
            try:
                await asyncio.wait_for(self.stopping.wait(), seconds)
            except TimeoutError:
                return
        raise Stopping("shutting down", what=what)
