"""A Qdrant over HTTP that fails by script: the embedded index's REST facade with faults in front of it.

Faults stand in a list; each request takes the first one whose `match` is in its "METHOD /path", once `skip` such requests have
passed.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any

from aiohttp import web
from aiohttp.typedefs import Handler
from qdrant_client import models

from streams.embedded.index_server import refusal, serve
from streams.index.qdrant import QdrantIndex, open_index
from streams.settings import QdrantSettings

WRITES = "/points/batch"


@dataclass
class Fault:
    """What happens to one request. Exactly one of the effects below is set.

    status: answered so, nothing carried out. hang: never answered, nothing carried out. cut_before: connection cut, nothing carried
    out. cut_after: carried out, connection cut. killed_after: that many operations of a batch carried out, connection cut.
    said: carried out, but every operation is reported with this status. garbled: carried out, the answer is no JSON.
    pretend: answered with true, nothing carried out. until: carried out once that event is set, whoever asked.
    and_then: called with `killed_after`, before the connection is cut: to kill whoever asked.
    """

    match: str = WRITES
    skip: int = 0
    status: int | None = None
    words: str = "scripted fault"
    headers: dict[str, str] = field(default_factory=dict)
    hang: bool = False
    cut_before: bool = False
    cut_after: bool = False
    killed_after: int | None = None
    said: str | None = None
    garbled: bool = False
    pretend: bool = False
    until: asyncio.Event | None = None
    and_then: Callable[[], None] | None = None


def disk_full(**where: Any) -> Fault:
    """A write that a server without disk space refuses."""
    words = "Service internal error: No space left on device: WAL buffer size exceeds available disk space"
    return Fault(status=500, words=words, **where)


def rate_limited(seconds: int, **where: Any) -> Fault:
    """A request above the rate limit."""
    return Fault(status=429, words="Rate limiting exceeded", headers={"Retry-After": str(seconds)}, **where)


@dataclass
class Shim:
    """A running shim. `index` is the embedded index behind it, `seen` every request with the operations it carried."""

    url: str
    index: QdrantIndex
    faults: list[Fault] = field(default_factory=list)
    seen: list[tuple[str, list[dict[str, Any]]]] = field(default_factory=list)
    asked: list[tuple[str, dict[str, str]]] = field(default_factory=list)
    """Each request with its query parameters."""

    @property
    def writes(self) -> list[list[dict[str, Any]]]:
        """The operations of every batch request seen."""
        return [operations for place, operations in self.seen if WRITES in place]

    def _next_fault(self, place: str) -> Fault | None:
        for fault in self.faults:
            if fault.match not in place:
                continue
            if fault.skip:
                fault.skip -= 1
                return None
            self.faults.remove(fault)
            return fault
        return None

    async def answer(self, request: web.Request, handler: Handler) -> web.StreamResponse:
        """Answer a request as the script says, or pass it on."""
        place = f"{request.method} {request.path}"
        body = await request.read()
        operations = json.loads(body)["operations"] if WRITES in place else []
        self.seen.append((place, operations))
        self.asked.append((place, dict(request.query)))
        fault = self._next_fault(place)
        if fault is None:
            return await handler(request)
        if fault.status is not None:
            answer = refusal(fault.status, fault.words)
            answer.headers.update(fault.headers)
            return answer
        if fault.hang:
            await asyncio.Event().wait()
        if fault.until is not None:
            await fault.until.wait()
            return await handler(request)
        if fault.cut_before:
            return _cut(request)
        if fault.killed_after is not None:
            parts = models.UpdateOperations.model_validate({"operations": operations[: fault.killed_after]})
            if parts.operations:
                await self.index.store.batch(request.match_info["name"], parts.operations)
            if fault.and_then is not None:
                fault.and_then()
            return _cut(request)
        if fault.pretend:
            return web.json_response({"result": True, "status": "ok", "time": 0.0})
        answer = await handler(request)
        if fault.cut_after:
            return _cut(request)
        if fault.garbled:
            return web.Response(text="<html>bad gateway</html>")
        assert isinstance(answer, web.Response)
        assert isinstance(answer.body, bytes)
        told = json.loads(answer.body)
        for result in told["result"]:
            result["status"] = fault.said
        return web.json_response(told)


def _cut(request: web.Request) -> web.StreamResponse:
    assert request.transport is not None
    request.transport.abort()
    return web.Response()


@asynccontextmanager
async def running_shim() -> AsyncIterator[Shim]:
    """Run a shim over an empty index in memory."""
    index = open_index(QdrantSettings())
    shim = Shim("", index)

    @web.middleware
    async def with_faults(request: web.Request, handler: Handler) -> web.StreamResponse:
        return await shim.answer(request, handler)

    server = await serve(index, middlewares=[with_faults])
    shim.url = server.url
    try:
        yield shim
    finally:
        await server.close()
        await index.close()
