"""Claims of streams/arenas.py, each in a process of its own."""

from __future__ import annotations

import os
import platform
import subprocess
import sys

import pytest

from streams.arenas import ARENAS, use_few_arenas

glibc = pytest.mark.skipif(platform.libc_ver()[0] != "glibc", reason="malloc is not glibc's")
THREADS = """
import ctypes, sys, tempfile, threading
from streams.arenas import use_few_arenas

said = use_few_arenas() if sys.argv[1] == "few" else False
together = threading.Barrier(12)

def allocate():
    together.wait()
    kept = [bytearray(4096) for _ in range(64)]
    together.wait()

threads = [threading.Thread(target=allocate) for _ in range(12)]
for thread in threads:
    thread.start()
for thread in threads:
    thread.join()
libc = ctypes.CDLL(None)
libc.fopen.restype = ctypes.c_void_p
with tempfile.NamedTemporaryFile() as file:
    stream = ctypes.c_void_p(libc.fopen(file.name.encode(), b"w"))
    libc.malloc_info(0, stream)
    libc.fclose(stream)
    print(said, file.read().count(b"<heap nr="))
"""


def arenas(how: str, **environment: str) -> tuple[bool, int]:
    """Return what `use_few_arenas` said in a process with twelve threads, and how many arenas it came to."""
    kept = {name: value for name, value in os.environ.items() if name not in ("MALLOC_ARENA_MAX", "GLIBC_TUNABLES")}
    run = subprocess.run(
        [sys.executable, "-c", THREADS, how], env={**kept, **environment}, capture_output=True, text=True, check=True
    )
    said, count = run.stdout.split()
    return said == "True", int(count)


@glibc
def test_many_threads_share_few_arenas() -> None:
    assert arenas("few") == (True, ARENAS)


@glibc
def test_without_it_there_are_more() -> None:
    assert arenas("as they come")[1] > ARENAS


@glibc
def test_what_the_environment_says_is_left_alone() -> None:
    said, count = arenas("few", MALLOC_ARENA_MAX="4")
    assert not said
    assert ARENAS < count <= 4
    assert not use_few_arenas({"GLIBC_TUNABLES": "glibc.malloc.arena_max=8"})
