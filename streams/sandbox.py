"""ParsePool: documents are parsed in processes of their own, under limits of time, memory and size.

A document that loops, eats memory or kills its process costs that process and becomes a `PoisonRecord`; every other document and
the event loop go on. One process per slot, one pipe pair per process; nothing is shared and nothing is forked from this process's
threads. A process is replaced when it was killed, died, or has grown.
"""

from __future__ import annotations

import asyncio
import contextlib
import io
import os
import pickle
import signal
import sys
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from chunking.document import Document
from streams import sandbox_child as child_code
from streams.errors import InvariantBroken, PoisonRecord, Stopping, Unavailable
from streams.sandbox_child import HEADER, frame
from streams.settings import ParserSettings

PARSER = "chunking.parsers:parse_document"
START_SECONDS = 60.0
"""A bare interpreter and the parsers' imports take a fraction of a second; more means that the machine is in trouble."""
PASSED_ON = frozenset({"PATH", "HOME", "LANG", "TZ", "TMPDIR", "LD_LIBRARY_PATH", "DYLD_LIBRARY_PATH"})
"""Environment that a parser process sees, with LC_… and PYTHON… beside. Passwords of broker and index stay out."""
LARGE_REPLY_BYTES = 256 << 10
"""A larger reply is decoded in a thread, so that the loop stays free."""


@dataclass(frozen=True, slots=True)
class Limits:
    """What one document may cost. memory_bytes is on top of what its process holds before the document arrives."""

    seconds: float
    memory_bytes: int
    input_bytes: int


class ParsePool:
    """A fixed number of parser processes, started when first needed. One instance per event loop; `close()` ends all of them.

    limits: other limits for some media types (a scanned file may take longer than a web page); all others get the settings'.
    parser: ``module:function``, called in the process with `parse_document`'s arguments.
    """

    def __init__(self, settings: ParserSettings, *, limits: Mapping[str, Limits] | None = None, parser: str = PARSER) -> None:
        self._default = Limits(settings.timeout_seconds, settings.memory_bytes, settings.max_document_bytes)
        self._limits = dict(limits or {})
        self._parser = parser
        self._processes = settings.processes
        self._slots = asyncio.Semaphore(settings.processes)
        self._idle: list[_Child] = []
        self._alive: set[_Child] = set()
        self._closed = False

    async def parse(
        self,
        data: bytes | str,
        media_type: str,
        *,
        title: str = "",
        language: str = "",
        kind: str = "",
        labels: Iterable[str] = (),
        place: str = "",
    ) -> Document:
        """Return the document in `data`. `place` (``tenant/document@revision``) names it in errors.

        Raises PoisonRecord: unsupported or unreadable (fact `error` names the class), too large, over a limit, or deadly to its
        process. Raises Unavailable when no process can be started, InvariantBroken when the parser can't be imported, Stopping
        after `close`. Cancelling it kills the process that was at work.
        """
        limits = self._limits.get(media_type.partition(";")[0].strip().lower(), self._default)
        size = len(data) if isinstance(data, bytes) else len(data.encode("utf-8", "surrogatepass"))
        facts = {"document": place or title or "-", "media_type": media_type, "bytes": size}
        if size > limits.input_bytes:
            raise PoisonRecord(
                f"document is larger than {limits.input_bytes} bytes: split it or raise parser.max_document_bytes", **facts
            )
        arguments = {"data": data, "media_type": media_type, "title": title, "language": language, "kind": kind}
        request = frame(({**arguments, "labels": tuple(labels)}, limits.seconds, limits.memory_bytes))
        async with self._slots:
            try:
                kind_of_reply, value = await self._ask(request, limits)
            except _Killed:
                # The kernel short of memory, or an operator: not the document's doing, so it gets one more chance.
                try:
                    kind_of_reply, value = await self._ask(request, limits)
                except _Killed as error:
                    kind_of_reply, value = "died", str(error)
        if kind_of_reply == child_code.DOCUMENT:
            assert isinstance(value, Document)
            return value
        raise _poison(kind_of_reply, value, limits, facts)

    async def close(self) -> None:
        """End every process at once and wait until each is gone. A parse still at work raises Stopping; safe to call twice."""
        self._closed = True
        for child in self._alive:
            child.kill()
        while self._idle:
            await self._end(self._idle.pop())
        async with contextlib.AsyncExitStack() as every_slot:
            for _ in range(self._processes):
                await every_slot.enter_async_context(self._slots)

    async def _ask(self, request: bytes, limits: Limits) -> tuple[str, Any]:
        """Return (kind, value) of the reply, or ("timeout" or "died", words). The process goes back to the idle ones only when it
        answered and is not spent. Raises _Killed, Stopping, and what starting a process raises."""
        child = await self._ready_child()
        keep = False
        try:
            async with asyncio.timeout(limits.seconds):
                kind, value, spent = await child.ask(request, limits.memory_bytes)
            keep = not spent and not self._closed
            return kind, value
        except TimeoutError:
            return "timeout", ""
        except _Gone:
            code = await self._end(child)
            if self._closed:
                raise Stopping("parse pool was closed while a document was parsed") from None
            if code in (-signal.SIGKILL, -signal.SIGTERM):
                raise _Killed(_in_words(code)) from None
            return "died", _in_words(code)
        except _Garbage as error:
            return child_code.NO_DOCUMENT, str(error)
        finally:
            if keep:
                self._idle.append(child)
            else:
                await self._end(child)

    async def _ready_child(self) -> _Child:
        if self._closed:
            raise Stopping("parse pool is closed")
        while self._idle:
            child = self._idle.pop()
            if child.process.returncode is None:
                return child
            await self._end(child)
        try:
            child = await _Child.start()
        except OSError as error:
            raise Unavailable(f"no parser process can be started: {error.strerror}") from error
        self._alive.add(child)
        if self._closed:
            await self._end(child)
            raise Stopping("parse pool is closed")
        ready = False
        setup = {"parent": os.getpid(), "path": list(sys.path), "parser": self._parser}
        try:
            async with asyncio.timeout(START_SECONDS):
                kind, value, _ = await child.ask(frame(setup), 1 << 20)
            ready = kind == child_code.READY
        except TimeoutError:
            raise Unavailable(f"parser process did not start within {START_SECONDS:g} s: is the machine overloaded?") from None
        except _Gone:
            if self._closed:
                raise Stopping("parse pool was closed while a process was starting") from None
            raise Unavailable(f"parser process died at its start: {_in_words(await self._end(child))}") from None
        finally:
            if not ready:
                await self._end(child)
        if not ready:
            raise InvariantBroken(f"parser can't be loaded: {value}", parser=self._parser)
        return child

    async def _end(self, child: _Child) -> int:
        """Kill and reap; return the exit code (minus the signal's number)."""
        try:
            return await child.end()
        finally:
            self._alive.discard(child)


class _Gone(Exception):
    """The process closed its pipe without a reply."""


class _Killed(Exception):
    """The process was killed from outside."""


class _Garbage(Exception):
    """The process wrote something that is no reply."""


class _Child:
    """One parser process and its two pipes."""

    def __init__(self, process: asyncio.subprocess.Process) -> None:
        assert process.stdin is not None
        assert process.stdout is not None
        self.process = process
        self._requests = process.stdin
        self._replies = process.stdout

    @classmethod
    async def start(cls) -> _Child:
        """Start an interpreter. Its own session keeps a terminal's Ctrl-C away from it and lets its whole group be killed."""
        environment = {name: value for name, value in os.environ.items() if name in PASSED_ON or name.startswith(("LC_", "PYTHON"))}
        process = await asyncio.create_subprocess_exec(
            sys.executable,
            "-P",
            child_code.__file__,
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.DEVNULL,
            start_new_session=True,
            env=environment,
            limit=1 << 20,
        )
        return cls(process)

    async def ask(self, request: bytes, most_bytes: int) -> tuple[str, Any, bool]:
        """Return the reply (kind, value, spent) to a framed request. Raises _Gone, _Garbage."""
        try:
            self._requests.write(request)
            await self._requests.drain()
            size = HEADER.unpack(await self._replies.readexactly(HEADER.size))[0]
            if size > most_bytes:
                raise _Garbage(f"a reply of {size} bytes")
            body = await self._replies.readexactly(size)
        except (asyncio.IncompleteReadError, BrokenPipeError, ConnectionResetError):
            raise _Gone from None
        reply = _decode(body) if len(body) <= LARGE_REPLY_BYTES else await asyncio.to_thread(_decode, body)
        match reply:
            case (str(kind), value, bool(spent)) if kind != child_code.DOCUMENT or type(value) is Document:
                return kind, value, spent
        raise _Garbage(type(reply).__name__)

    def kill(self) -> None:
        """Kill the process with its group. Safe to repeat."""
        if self.process.returncode is None:
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.killpg(self.process.pid, signal.SIGKILL)

    async def end(self) -> int:
        """Kill, reap, close both pipes; return the exit code. Safe to repeat, not to overlap with `ask`."""
        self.kill()
        code = await self.process.wait()
        self._requests.close()
        # At its end the loop closes the pipe; what a flooding process left in it is thrown away.
        with contextlib.suppress(TimeoutError, OSError):
            async with asyncio.timeout(1):
                while await self._replies.read(1 << 20):
                    pass
        return code


class _Unpickler(pickle.Unpickler):
    """Knows the classes of a document and nothing else: what a parser process sends can't run code here."""

    _DOCUMENT = frozenset({"Document", "Block", "BlockKind", "Span"})

    def find_class(self, module: str, name: str) -> Any:
        if not (module == "chunking.document" and name in self._DOCUMENT) and (module, name) != ("builtins", "frozenset"):
            raise _Garbage(f"an object of {module}.{name}")
        return super().find_class(module, name)


def _decode(body: bytes) -> Any:
    try:
        return _Unpickler(io.BytesIO(body)).load()
    except _Garbage:
        raise
    except Exception as error:
        raise _Garbage("bytes that are no reply") from error


def _in_words(code: int) -> str:
    if code >= 0:
        return f"exit code {code}"
    try:
        return signal.Signals(-code).name
    except ValueError:
        return f"signal {-code}"


def _poison(kind: str, value: Any, limits: Limits, facts: Mapping[str, Any]) -> PoisonRecord:
    """Return the error for a reply that is no document: what happened, and what to do."""
    match kind:
        case "timeout":
            words = f"parse timed out after {limits.seconds:g} s: simplify or split the document, or raise parser.timeout_seconds"
            return PoisonRecord(words, error="ParseTimedOut", **facts)
        case child_code.OUT_OF_MEMORY:
            megabytes = limits.memory_bytes >> 20
            words = f"parser ran out of memory at {megabytes} MiB: simplify or split the document, or raise parser.memory_bytes"
            return PoisonRecord(words, error="ParserOutOfMemory", **facts)
        case "died":
            words = f"parser process died ({value}): look at the document for damage, then replay it or report it"
            return PoisonRecord(words, error="ParserDied", **facts)
        case child_code.TOO_DEEP:
            words = "document is nested too deeply for its parser: flatten it"
            return PoisonRecord(words, error="NestedTooDeeply", **facts)
        case child_code.REFUSED:
            return PoisonRecord(str(value[1]), error=str(value[0]), **facts)
        case child_code.NO_DOCUMENT:
            words = f"parser returned {value} instead of a document: report it as a fault of docdelta"
            return PoisonRecord(words, error="NoDocument", **facts)
    return PoisonRecord(f"parser failed: {value}; report it as a fault of docdelta", error="ParserFailed", **facts)
