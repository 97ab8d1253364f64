"""A process with a thread that hangs in the kernel ends all the same, with its code and a last line; others end as usual."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from streams.last_exit import THREAD_SECONDS
from streams.settings import WorkerSettings

PROGRAM = """
import asyncio, sys
from streams.last_exit import leave_hanging_threads, use_own_executor

async def main():
    executor = use_own_executor()
    for name in sys.argv[2:]:
        reading = asyncio.ensure_future(asyncio.to_thread(lambda: open(name).read()))
        await asyncio.sleep(0)
        reading.cancel()
    await leave_hanging_threads(executor, int(sys.argv[1]), 0.2)
    print("left in peace")
    return int(sys.argv[1])

sys.exit(asyncio.run(main()))
"""


@pytest.mark.parametrize("code", [0, 3])
def test_a_thread_that_reads_a_pipe_nobody_writes_to_is_left_behind(tmp_path: Path, code: int) -> None:
    os.mkfifo(tmp_path / "pipe")
    done = _run(str(code), str(tmp_path / "pipe"))
    assert done.returncode == code
    assert "threads hang" in done.stdout + done.stderr
    assert "left in peace" not in done.stdout


@pytest.mark.parametrize("code", [0, 3])
def test_threads_that_end_are_waited_for(tmp_path: Path, code: int) -> None:
    (tmp_path / "file").write_text("short", encoding="utf-8")
    done = _run(str(code), *[str(tmp_path / "file")] * 8)
    assert done.returncode == code
    assert done.stdout == "left in peace\n"


@pytest.mark.parametrize("hanging", ["time.sleep(1000)", "lock.acquire()", "await asyncio.sleep(1000)"])
def test_the_limit_ends_a_process_whose_loop_hangs_and_says_where(hanging: str) -> None:
    program = f"""
import asyncio, threading, time
from streams.last_exit import limit_leaving

async def main():
    lock = threading.Lock()
    lock.acquire()
    limit_leaving(0.2)
    {hanging}

asyncio.run(main())
"""
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == 1
    assert "most recent call first" in done.stderr


def test_leaving_waits_for_nothing_and_loses_no_line() -> None:
    program = """
import atexit, asyncio, sys, time
from streams.last_exit import leave

async def main():
    asyncio.get_running_loop().create_task(asyncio.sleep(1000))
    print("the last line", end="")
    leave(7)

atexit.register(time.sleep, 1000)
asyncio.run(main())
"""
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=120, check=False)
    assert (done.returncode, done.stdout) == (7, "the last line")


def test_a_worker_drains_within_the_ten_seconds_that_are_promised() -> None:
    """As each stop on the stack ends with code 0 only when all was drained and committed in `drain_seconds`."""
    assert WorkerSettings().drain_seconds + THREAD_SECONDS < 10


def _run(*arguments: str) -> subprocess.CompletedProcess[str]:
    """Run the program. It has a generous limit: without the exit it would never end."""
    command = [sys.executable, "-c", PROGRAM, *arguments]
    return subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)
