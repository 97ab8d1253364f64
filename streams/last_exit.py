"""The end of a worker's process, also where a thread hangs in the kernel: a dead file system, a device, a pipe.

No exception and no cancellation ends such a thread, and both `asyncio.run` and the interpreter wait for it. So the process goes
without it. Called last, when apps are stopped or given up: nothing more is acknowledged, and what the thread was at comes again.
"""

from __future__ import annotations

import asyncio
import logging
import os
import sys
import threading
import time
from concurrent.futures import ThreadPoolExecutor

import structlog

log = structlog.get_logger(__name__)
THREAD_SECONDS = 1.0
"""For threads that are at work to end, once nobody waits for them."""


def use_own_executor() -> ThreadPoolExecutor:
    """Have the running loop hand its blocking work to an executor that can be left behind, and return that."""
    executor = ThreadPoolExecutor(thread_name_prefix="blocking")
    asyncio.get_running_loop().set_default_executor(executor)
    return executor


async def leave_hanging_threads(executor: ThreadPoolExecutor, code: int, seconds: float = THREAD_SECONDS) -> None:
    """Return as soon as no thread keeps this process from ending; end it with `code` if one still does after `seconds`."""
    executor.shutdown(wait=False, cancel_futures=True)
    deadline = time.monotonic() + seconds
    while hanging := _hanging():
        if time.monotonic() > deadline:
            _exit_without(hanging, code)
        await asyncio.sleep(0.02)


def _hanging() -> list[str]:
    """Return the names of threads that the interpreter would wait for."""
    return [
        thread.name
        for thread in threading.enumerate()
        if thread.is_alive() and not thread.daemon and thread is not threading.main_thread()
    ]


def _exit_without(hanging: list[str], code: int) -> None:
    log.warning(
        "threads hang, or are still at work: leaving without them; what they were at comes again", threads=hanging, exit_code=code
    )
    logging.shutdown()
    for stream in (sys.stdout, sys.stderr):
        stream.flush()
    os._exit(code)
