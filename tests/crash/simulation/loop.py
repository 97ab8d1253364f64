"""SimulatedLoop: an asyncio loop without a clock, sockets or threads. Whoever owns it decides when anything happens.

Callbacks that are ready run in the order they became ready. Everything else (answers of ports, timers) waits until it is told to
happen, so one seed gives one run.
"""

from __future__ import annotations

import asyncio
import heapq
import itertools
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any


class SimulatedLoop(asyncio.AbstractEventLoop):
    """What tasks, futures, locks, events, gather and wait_for need of a loop, and nothing else."""

    def __init__(self) -> None:
        self._ready: deque[asyncio.Handle] = deque()
        self._timers: list[tuple[float, int, asyncio.TimerHandle]] = []
        self._numbers = itertools.count()
        self._now = 0.0
        self.complaints: list[str] = []
        """What asyncio itself reported: exceptions of tasks that nobody awaited."""
        self.executor: Callable[[Callable[[], Any]], asyncio.Future[Any]] | None = None
        """Who does what is handed to a thread."""

    @contextmanager
    def running(self) -> Iterator[None]:
        """Be the running loop of this thread."""
        before = asyncio._get_running_loop()
        asyncio._set_running_loop(self)
        try:
            yield
        finally:
            asyncio._set_running_loop(before)

    def run_ready(self) -> None:
        """Run callbacks until none is ready."""
        while self._ready:
            handle = self._ready.popleft()
            if not handle.cancelled():
                handle._run()

    @property
    def has_timer(self) -> bool:
        """True when somebody waits for time to pass."""
        while self._timers and self._timers[0][2].cancelled():
            heapq.heappop(self._timers)
        return bool(self._timers)

    def fire_timer(self) -> None:
        """Let time pass until the next timer."""
        assert self.has_timer
        when, _, timer = heapq.heappop(self._timers)
        self._now = max(self._now, when)
        self._ready.append(timer)

    def time(self) -> float:
        return self._now

    def get_debug(self) -> bool:
        return False

    def is_running(self) -> bool:
        return True

    def is_closed(self) -> bool:
        return False

    def call_soon(self, callback: Callable[..., Any], *args: Any, context: Any = None) -> asyncio.Handle:
        handle = asyncio.Handle(callback, args, self, context)
        self._ready.append(handle)
        return handle

    def call_at(self, when: float, callback: Callable[..., Any], *args: Any, context: Any = None) -> asyncio.TimerHandle:
        timer = asyncio.TimerHandle(when, callback, args, self, context)
        heapq.heappush(self._timers, (when, next(self._numbers), timer))
        return timer

    def call_later(self, delay: float, callback: Callable[..., Any], *args: Any, context: Any = None) -> asyncio.TimerHandle:
        return self.call_at(self._now + delay, callback, *args, context=context)

    def _timer_handle_cancelled(self, handle: asyncio.TimerHandle) -> None:
        """Nothing to do: cancelled timers are skipped."""

    def run_in_executor(self, executor: Any, func: Callable[..., Any], *args: Any) -> asyncio.Future[Any]:
        assert self.executor is not None, "no threads here"
        return self.executor(lambda: func(*args))

    def create_future(self) -> asyncio.Future[Any]:
        return asyncio.Future(loop=self)

    def create_task(self, coro: Any, *, name: str | None = None, context: Any = None) -> asyncio.Task[Any]:
        return asyncio.Task(coro, loop=self, name=name, context=context)

    def call_exception_handler(self, context: dict[str, Any]) -> None:
        self.complaints.append(f"{context.get('message')}: {context.get('exception')!r} {context.get('task')!r}")
