"""The end of a worker's process: within a limit, with its code, whatever hangs.

What can hang: a thread in the kernel (a dead file system, a device, a pipe), which no cancellation ends and both `asyncio.run` and
the interpreter wait for; a task of a library that misses its cancellation, which `asyncio.run` waits for; a library's own thread at
the interpreter's end. So once the apps are stopped or given up the process leaves without all that: nothing more is acknowledged,
and what a thread or task was at comes again. Should even the way there hang, `limit_leaving` ends the process.
"""

from __future__ import annotations

import asyncio
import faulthandler
import logging
import os
import sys
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from typing import NoReturn

import structlog

log = structlog.get_logger(__name__)
THREAD_SECONDS = 1.0
"""For threads that are at work to end, once nobody waits for them."""


def limit_leaving(seconds: float) -> None:
    """From now on the process ends after `seconds` at the latest, with code 1 and what every thread was at on standard error.

    Needs neither the event loop nor the interpreter's lock, either of which may be what hangs.
    """
    faulthandler.dump_traceback_later(seconds, exit=True)


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
            words = "threads hang, or are still at work: leaving without them; what they were at comes again"
            log.warning(words, threads=hanging, exit_code=code)
            leave(code)
        await asyncio.sleep(0.02)


def leave(code: int) -> NoReturn:
    """End this process now, with `code`: neither the loop's end, nor the interpreter's, has anything left to do."""
    logging.shutdown()
    for stream in (sys.stdout, sys.stderr):
        stream.flush()
    os._exit(code)


def _hanging() -> list[str]:
    """Return the names of threads that the interpreter would wait for."""
    return [
        thread.name
        for thread in threading.enumerate()
        if thread.is_alive() and not thread.daemon and thread is not threading.main_thread()
    ]
