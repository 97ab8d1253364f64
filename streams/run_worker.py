"""A worker as a process of its own: told to leave by a signal, gone within a limit, with an exit code that says how it ended."""

from __future__ import annotations

import asyncio
import signal
import sys
from typing import NoReturn

import structlog

from streams import telemetry
from streams.errors import Unavailable, UsageError
from streams.last_exit import THREAD_SECONDS, leave, leave_hanging_threads, limit_leaving, use_own_executor
from streams.settings import Settings
from streams.worker import Worker

log = structlog.get_logger(__name__)
CLOSE_SECONDS = 10.0
"""For index, parser processes and followers to close, after the apps had their time to drain."""


async def run_worker(settings: Settings, only: str | None = None) -> NoReturn:
    """Run a worker until SIGTERM or SIGINT (the process ends with 0) or until something takes it down (1).

    Raises UsageError at start, and where what took the worker down is one.
    """
    worker = Worker(settings, only)
    drain = settings.worker.drain_seconds
    limit = drain + CLOSE_SECONDS + max(THREAD_SECONDS, drain)
    loop = asyncio.get_running_loop()
    executor = use_own_executor()

    def told(*_: object) -> None:
        for number in (signal.SIGTERM, signal.SIGINT):
            signal.signal(number, signal.SIG_IGN)  # to be told again gives no more time
        limit_leaving(limit)
        loop.call_soon_threadsafe(worker.leave)

    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, told)  # not the loop's own: it must count where the loop hangs too
    log.info("worker starts", only=only or "all")
    try:
        await worker.start()
        await worker.wait()
    finally:
        began = loop.time()
        limit_leaving(limit)
        await _stop_in_time(worker, drain + CLOSE_SECONDS)
        telemetry.end()
        left = drain - (loop.time() - began)  # a model that is at work may take seconds to end
        await leave_hanging_threads(executor, _exit_code(worker.failure or sys.exception()), max(THREAD_SECONDS, left))
    if isinstance(worker.failure, UsageError):
        raise worker.failure
    leave(_exit_code(worker.failure))


def _exit_code(failure: BaseException | None) -> int:
    if failure is None:
        return 0
    return failure.exit_code if isinstance(failure, UsageError) else 1


async def _stop_in_time(worker: Worker, seconds: float) -> None:
    """Stop a worker, or say that something can't be closed and go on without."""
    stopping = asyncio.ensure_future(worker.stop())
    done, _ = await asyncio.wait({stopping}, timeout=seconds)
    if not done:
        worker.failure = worker.failure or Unavailable("something can't be closed")
        log.error("worker does not stop: leaving as it is; what was not committed comes again", seconds=seconds)
        return
    await stopping
