"""Readiness: what a server says of its optimizers, and that a grey one is woken instead of waited for."""

from __future__ import annotations

from collections.abc import AsyncIterator
from dataclasses import dataclass, field
from typing import Any

import pytest
from aiohttp import web

from streams.errors import NotPrepared
from streams.index.memory import MemoryIndex
from streams.index.qdrant import open_index
from streams.settings import QdrantSettings
from tests.contracts.index_values import SPEC


@dataclass
class Server:
    """A server that describes one collection as `says`, and notes what it is told to change."""

    url: str = ""
    says: dict[str, Any] = field(default_factory=dict)
    patched: list[dict[str, Any]] = field(default_factory=list)

    async def describe(self, request: web.Request) -> web.Response:
        vectors = {"dense": {"size": 4, "distance": "Cosine"}}
        config = {
            "params": {"vectors": vectors},
            "hnsw_config": {"m": 16, "ef_construct": 100, "full_scan_threshold": 10_000},
            "optimizer_config": {"deleted_threshold": 0.2, "vacuum_min_vector_number": 1000, "default_segment_number": 0,
                                 "flush_interval_sec": 5},
        }  # fmt: skip
        result = {"status": "green", "optimizer_status": "ok", "segments_count": 1, "payload_schema": {}, "config": config}
        return web.json_response({"result": {**result, **self.says}, "status": "ok", "time": 0.0})

    async def patch(self, request: web.Request) -> web.Response:
        self.patched.append(await request.json())
        self.says["status"] = "yellow"
        return web.json_response({"result": True, "status": "ok", "time": 0.0})


@pytest.fixture
async def server() -> AsyncIterator[Server]:
    made = Server()
    app = web.Application()
    app.add_routes([web.get("/collections/{name}", made.describe), web.patch("/collections/{name}", made.patch)])
    runner = web.AppRunner(app)
    await runner.setup()
    site = web.TCPSite(runner, "127.0.0.1", 0)
    await site.start()
    made.url = f"http://127.0.0.1:{runner.addresses[0][1]}"
    yield made
    await runner.cleanup()


@pytest.mark.parametrize(
    ("says", "idle", "words"),
    [
        pytest.param({}, True, "status green, optimizer ok, queue 0, deferred 0", id="green"),
        pytest.param({"status": "yellow"}, False, "status yellow", id="optimising"),
        pytest.param({"status": "red"}, False, "status red", id="failed"),
        pytest.param({"optimizer_status": {"error": "no space"}}, False, "no space", id="optimizer-failed"),
        pytest.param({"update_queue": {"length": 7}}, False, "queue 7", id="queued"),
        pytest.param({"update_queue": {"length": 0, "deferred_points": 3}}, False, "deferred 3", id="deferred"),
    ],
)
async def test_a_server_is_ready_only_when_nothing_is_left_to_do(
    server: Server, says: dict[str, Any], idle: bool, words: str
) -> None:
    server.says = says
    index = open_index(QdrantSettings(url=server.url))
    found = await index.readiness("kb")
    assert (found.idle, words in found.said) == (idle, True), found
    assert server.patched == []
    await index.close()


async def test_a_grey_collection_is_woken_by_an_empty_update(server: Server) -> None:
    """After a restart the status can stay grey for as long as nobody writes."""
    server.says = {"status": "grey"}
    index = open_index(QdrantSettings(url=server.url))
    assert not (await index.readiness("kb")).idle
    assert server.patched == [{"optimizers_config": {}}]
    server.says = {}
    assert (await index.readiness("kb")).idle
    await index.close()


async def test_embedded_indexes_are_always_ready_and_missing_collections_are_named() -> None:
    for index in (MemoryIndex(), open_index(QdrantSettings())):
        await index.ensure_collection("kb", SPEC)
        assert (await index.readiness("kb")).idle
        with pytest.raises(NotPrepared, match="other"):
            await index.readiness("other")
        await index.close()
