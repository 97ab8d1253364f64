"""Who is told that a broker is waited for. A command tells its person; a worker has a log and tells nobody here."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar

TOLD_SECONDS = 2.0
"""Silence that nobody wonders about."""

_tell: ContextVar[Callable[[str], None] | None] = ContextVar("tell", default=None)


@contextmanager
def told_by(tell: Callable[[str], None]) -> Iterator[None]:
    """Have `tell` called with a line whenever a broker is waited for within the block, threads that it starts left out."""
    before = _tell.set(tell)
    try:
        yield
    finally:
        _tell.reset(before)


def waiting_for(bootstrap_servers: str) -> None:
    """Say that a broker has not answered yet."""
    tell = _tell.get()
    if tell is not None:
        tell(f"waiting for the broker at {bootstrap_servers} ...")
