"""Memory of threads: few of glibc's arenas, since freed memory stays in the arena it was taken from.

glibc makes up to eight arenas a core, and gives each new thread one of them in turn. A worker makes threads all the time (a Kafka
client for each look at the broker, RocksDB's), so in time every arena comes to hold the most that any thread ever needed, nearly
all of it free: on a machine of 64 cores, 512 times. Few arenas are used again instead. Python runs one thread at a time, so nobody
waits long for one.
"""

from __future__ import annotations

import ctypes
import os
from collections.abc import Mapping

ARENAS = 2
"""The main thread's, and one of all other threads."""
_M_ARENA_MAX = -8
"""Of glibc's malloc.h."""


def use_few_arenas(environment: Mapping[str, str] = os.environ) -> bool:
    """Have at most ARENAS from now on, and return True; False where malloc is another one, or the environment says how many.

    Before the process has many threads: an arena that is there stays.
    """
    if "MALLOC_ARENA_MAX" in environment or "arena_max" in environment.get("GLIBC_TUNABLES", ""):
        return False
    libc = ctypes.CDLL(None)
    if not hasattr(libc, "gnu_get_libc_version"):
        return False
    return bool(libc.mallopt(_M_ARENA_MAX, ARENAS))
