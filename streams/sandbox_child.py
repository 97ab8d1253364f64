"""What runs inside one process of the parse pool: read a request, parse under its limits, write one reply, until end of input.

Started as a script, so that it costs one bare interpreter and nothing of the parent's main module. Only the standard library is
imported before the first frame says where the packages are.

It ends by itself in every case: at end of input (the parent closed the pipe or died), with its parent (Linux: even in the middle
of a parse), and at the latest by an alarm shortly after its document's time limit, which no parser code can hold up.
"""

from __future__ import annotations

import contextlib
import ctypes
import importlib
import os
import pickle
import resource
import signal
import struct
import sys
import traceback
from pathlib import Path
from typing import IO, Any

HEADER = struct.Struct(">Q")
"""Length of the pickle that follows, in bytes."""
ALARM_GRACE_SECONDS = 5.0
"""The parent kills at the limit; the alarm is for a child whose parent is gone."""

READY, BROKEN = "ready", "broken"
DOCUMENT, REFUSED, FAILED, NO_DOCUMENT, OUT_OF_MEMORY, TOO_DEEP = (
    "document",
    "refused",
    "failed",
    "no document",
    "out of memory",
    "too deep",
)
"""Kinds of reply: (kind, value, spent). `spent` asks the parent to replace this process."""


def frame(value: Any) -> bytes:
    """Return a length-prefixed pickle."""
    body = pickle.dumps(value, protocol=pickle.HIGHEST_PROTOCOL)
    return HEADER.pack(len(body)) + body


def main() -> None:
    """Serve requests until end of input. Frames in: a setup, then (arguments, seconds, memory bytes). Out: a reply each."""
    requests, replies = _private_pipes()
    for ignored in (signal.SIGINT, signal.SIGTERM):
        signal.signal(ignored, signal.SIG_IGN)
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    setup = _read(requests)
    _die_with_parent(setup["parent"])
    sys.path[:] = setup["path"]
    try:
        module, _, name = setup["parser"].partition(":")
        parse = getattr(importlib.import_module(module), name)
        document_type = importlib.import_module("chunking.document").Document
    except Exception as error:  # noqa: BLE001  whatever stops the start is told to the parent, which can act
        _write(replies, frame((BROKEN, f"{type(error).__name__}: {error}", True)))
        return
    base = _address_space()
    _write(replies, frame((READY, "", False)))
    while (request := _read(requests)) is not None:
        arguments, seconds, memory_bytes = request
        _write(replies, _answer(parse, document_type, arguments, seconds, memory_bytes, base))


def _answer(parse: Any, document_type: type, arguments: dict[str, Any], seconds: float, memory_bytes: int, base: int) -> bytes:
    """Return the reply frame. Whatever the parser raises becomes a reply; only the death of the process does not."""
    hard = resource.getrlimit(resource.RLIMIT_AS)[1]
    before = _address_space()
    signal.setitimer(signal.ITIMER_REAL, seconds + ALARM_GRACE_SECONDS)
    try:
        if before:
            resource.setrlimit(resource.RLIMIT_AS, (before + memory_bytes, hard))
        document = parse(**arguments)
        if type(document) is not document_type:
            return frame((NO_DOCUMENT, type(document).__name__, True))
        reply = frame((DOCUMENT, document, _address_space() - base > memory_bytes // 2))
    except MemoryError:
        reply = None
    except RecursionError:
        return frame((TOO_DEEP, "", True))
    except ValueError as error:
        # The parsers' own words: their contract is that these name the place and quote no content.
        own = type(error).__module__.startswith("chunking")
        return frame((REFUSED, (type(error).__name__, str(error)), False) if own else (FAILED, _where(error), True))
    except BaseException as error:  # noqa: BLE001  SystemExit of a parser is a fault of that document too
        return frame((FAILED, _where(error), True))
    finally:
        with contextlib.suppress(ValueError):
            resource.setrlimit(resource.RLIMIT_AS, (hard, hard))
        signal.setitimer(signal.ITIMER_REAL, 0)
    return reply if reply is not None else frame((OUT_OF_MEMORY, "", True))


def _where(error: BaseException) -> str:
    """Return class and place of an unexpected error. Its message stays out: it may quote the document."""
    steps = traceback.extract_tb(error.__traceback__)
    last = steps[-1] if steps else None
    return f"{type(error).__name__} at {Path(last.filename).name}:{last.lineno}" if last else type(error).__name__


def _address_space() -> int:
    """Return the address space in use, bytes; 0 where the system does not tell, and then no memory limit is set."""
    try:
        pages = int(Path("/proc/self/statm").read_text().split()[0])
    except OSError:
        return 0
    return pages * resource.getpagesize()


def _die_with_parent(parent: int) -> None:
    """Ask Linux to kill this process when the parent's thread that started it goes. Elsewhere end of input and the alarm do it."""
    if sys.platform == "linux":
        pr_set_pdeathsig = 1
        ctypes.CDLL(None).prctl(pr_set_pdeathsig, int(signal.SIGKILL), 0, 0, 0)
    if os.getppid() != parent:
        os._exit(0)


def _private_pipes() -> tuple[IO[bytes], IO[bytes]]:
    """Return the two pipes on fresh descriptors; standard input and output become null, so that no parser can touch the wire."""
    requests, replies = os.dup(0), os.dup(1)
    null = os.open(os.devnull, os.O_RDWR)
    for descriptor in (0, 1):
        os.dup2(null, descriptor)
    os.close(null)
    return os.fdopen(requests, "rb"), os.fdopen(replies, "wb")


def _read(stream: IO[bytes]) -> Any:
    header = stream.read(HEADER.size)
    if len(header) < HEADER.size:
        return None
    body = stream.read(HEADER.unpack(header)[0])
    return pickle.loads(body)


def _write(stream: IO[bytes], data: bytes) -> None:
    try:
        stream.write(data)
        stream.flush()
    except BrokenPipeError:
        os._exit(0)


if __name__ == "__main__":
    main()
