"""The REST facade over the embedded index behaves as a real 1.19 server did where docdelta, or a reader, may notice."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable
from dataclasses import dataclass
from typing import Any

import httpx
import pytest
from qdrant_client import AsyncQdrantClient, models
from qdrant_client.http.exceptions import UnexpectedResponse

from chunking.identity import point_id
from streams.embedded.index_server import BODY_BYTES, IndexServer, serve
from streams.errors import NotReachable, UsageError
from streams.index.points import DENSE, among
from streams.index.qdrant import QdrantIndex, open_index
from streams.settings import QdrantSettings
from tests.contracts.index_values import SPEC, chunk_id, plan, point, query, vector

NAME = "kb"
A, B, MISSING = (point_id(chunk_id(name)) for name in ("a", "b", "missing"))


@dataclass
class Served:
    index: QdrantIndex
    server: IndexServer
    client: AsyncQdrantClient
    http: httpx.AsyncClient

    async def payload(self, identity: str) -> dict[str, Any]:
        return (await self.client.retrieve(NAME, [identity]))[0].payload or {}


@pytest.fixture
async def served() -> AsyncIterator[Served]:
    index = open_index(QdrantSettings())
    server = await serve(index)
    await index.ensure_collection(NAME, SPEC)
    await index.apply(NAME, plan(1, [point("a", 1, vector(1)), point("b", 1, vector(0, 1))]))
    client = AsyncQdrantClient(url=server.url, check_compatibility=False)
    async with httpx.AsyncClient(base_url=server.url) as http:
        yield Served(index, server, client, http)
    await client.close()
    await server.close()
    await index.close()


async def refused(call: Awaitable[Any], status: int) -> str:
    """Return the words of an error of this status."""
    with pytest.raises(UnexpectedResponse) as error:
        await call
    assert error.value.status_code == status, error.value
    return str(error.value.structured()["status"]["error"])


def noted(note: str, **selector: Any) -> models.SetPayloadOperation:
    return models.SetPayloadOperation(set_payload=models.SetPayload(payload={"note": note}, **selector))


async def test_another_client_and_the_owner_see_the_same_points(served: Served) -> None:
    remote = open_index(QdrantSettings(url=served.server.url))
    await remote.apply(NAME, plan(2, [point("c", 2, vector(0, 0, 1))], stamps=["a"], deletes=["b"]))
    for index in (served.index, remote):
        assert {stored.chunk_id for stored in await index.document_points(NAME, "acme", "d1")} == {chunk_id("a"), chunk_id("c")}
        assert [hit.chunk_id for hit in await index.search(NAME, query(vector(0, 0, 1), limit=1))] == [chunk_id("c")]
    await remote.close()


async def test_a_batch_ends_at_its_first_error_with_what_went_before_done(served: Served) -> None:
    operations = [noted("first", points=[A]), noted("second", points=[MISSING]), noted("third", points=[B])]
    await refused(served.client.batch_update_points(NAME, operations), 404)
    assert (await served.payload(A))["note"] == "first"
    assert "note" not in await served.payload(B)


async def test_a_missing_id_fails_a_payload_call_by_ids_but_not_one_by_filter(served: Served) -> None:
    words = await refused(served.client.set_payload(NAME, {"note": "by ids"}, [MISSING, A]), 404)
    assert MISSING in words
    assert (await served.payload(A))["note"] == "by ids"
    await refused(served.client.overwrite_payload(NAME, {"note": 1}, [MISSING]), 404)
    await refused(served.client.clear_payload(NAME, [MISSING]), 404)
    await refused(served.client.delete_payload(NAME, ["note"], [MISSING]), 404)
    done = await served.client.set_payload(NAME, {"note": "by filter"}, among([MISSING, A]))
    assert done.status == models.UpdateStatus.COMPLETED
    assert (await served.payload(A))["note"] == "by filter"
    await served.client.delete(NAME, [MISSING])


async def test_bad_requests_get_the_servers_status(served: Served) -> None:
    short = models.PointStruct(id=A, vector={DENSE: [1.0]}, payload={})
    unknown = models.PointStruct(id=A, vector={"other": [1.0]}, payload={})
    assert "dimension" in await refused(served.client.upsert(NAME, [short]), 400)
    assert "vector name" in await refused(served.client.upsert(NAME, [unknown]), 400)
    await refused(served.client.query_points(NAME, query=[1.0], using=DENSE), 400)
    await refused(served.client.query_points(NAME, query=[1.0, 0, 0, 0], using=DENSE, limit=0), 422)
    await refused(served.client.scroll(NAME, limit=0), 422)
    await refused(served.client.count("nowhere"), 404)
    await refused(served.client.upsert("nowhere", [short]), 404)
    await refused(served.client.create_payload_index("nowhere", "f", models.PayloadSchemaType.KEYWORD), 404)
    for body, status in ((b"{", 400), (b"[]", 400), (b'{"unknown": 1}', 400), (b" " * (BODY_BYTES + 1), 400)):
        answer = await served.http.post(f"/collections/{NAME}/points/scroll", content=body)
        assert answer.status_code == status
        assert answer.json()["status"]["error"]
    assert (await served.http.get("/nowhere")).status_code == 404
    assert (await served.http.get(f"/collections/{NAME}/points/{MISSING}")).status_code == 404


async def test_names_are_kept_apart(served: Served) -> None:
    vectors = {DENSE: models.VectorParams(size=4, distance=models.Distance.COSINE)}

    def alias(name: str, target: str) -> Awaitable[bool]:
        action = models.CreateAlias(collection_name=target, alias_name=name)
        return served.client.update_collection_aliases([models.CreateAliasOperation(create_alias=action)])

    await refused(served.client.create_collection(NAME, vectors_config=vectors), 409)
    await alias("served", NAME)
    await refused(served.client.create_collection("served", vectors_config=vectors), 400)
    await refused(alias(NAME, NAME), 409)
    await refused(alias("other", "nowhere"), 404)
    delete = models.DeleteAliasOperation(delete_alias=models.DeleteAlias(alias_name="never"))
    assert await served.client.update_collection_aliases([delete]) is True
    assert [entry.alias_name for entry in (await served.client.get_collection_aliases(NAME)).aliases] == ["served"]


async def test_actions_on_aliases_are_not_all_or_nothing(served: Served) -> None:
    actions = [models.CreateAlias(collection_name=target, alias_name=name) for name, target in (("x", NAME), ("y", "nowhere"))]
    await refused(
        served.client.update_collection_aliases([models.CreateAliasOperation(create_alias=action) for action in actions]), 404
    )
    assert [entry.alias_name for entry in (await served.client.get_aliases()).aliases] == ["x"]


async def test_a_dropped_collection_takes_its_alias_along(served: Served) -> None:
    await served.index.set_alias("served", NAME)
    assert await served.client.delete_collection(NAME) is True
    assert await served.client.delete_collection(NAME) is False
    assert (await served.client.get_aliases()).aliases == []


async def test_metadata_is_merged_and_indexes_are_told(served: Served) -> None:
    await served.client.update_collection(NAME, metadata={"note": {"a": 1}})
    info = await served.client.get_collection(NAME)
    assert info.config.metadata is not None
    assert info.config.metadata["batch"] == SPEC.batch
    assert info.config.metadata["note"] == {"a": 1}
    await served.client.create_payload_index(NAME, "f", models.PayloadSchemaType.INTEGER)
    await served.client.create_payload_index(NAME, "f", models.KeywordIndexParams(type=models.KeywordIndexType.KEYWORD))
    assert (await served.client.get_collection(NAME)).payload_schema["f"].data_type == models.PayloadSchemaType.KEYWORD
    assert (await served.client.get_optimizations(NAME)).running == []


async def test_a_write_without_wait_is_acknowledged_only(served: Served) -> None:
    assert (await served.client.set_payload(NAME, {"n": 1}, [A], wait=False)).status == models.UpdateStatus.ACKNOWLEDGED
    assert (await served.client.set_payload(NAME, {"n": 1}, [A], wait=True)).status == models.UpdateStatus.COMPLETED


async def test_everything_a_dashboard_asks_is_there(served: Served) -> None:
    assert (await served.http.get("/")).json()["version"] == "1.19.0"
    assert (await served.http.get("/readyz")).text == "all shards are ready"
    assert (await served.http.get("/cluster")).json()["result"] == {"status": "disabled"}
    assert (await served.http.get(f"/collections/{NAME}/exists")).json()["result"] == {"exists": True}
    ordered, _ = await served.client.scroll(NAME, order_by="order_key", limit=1, with_payload=["text"], with_vectors=True)
    assert set(ordered[0].payload or {}) == {"text"}
    assert isinstance(ordered[0].vector, dict)


async def test_a_page_in_a_browser_is_refused(served: Served) -> None:
    for headers in ({"Origin": "https://elsewhere.example"}, {"Host": "rebound.example"}):
        assert (await served.http.get("/collections", headers=headers)).status_code == 403


async def test_listens_on_loopback_only_and_says_when_the_port_is_taken(served: Served) -> None:
    assert served.server.url == f"http://127.0.0.1:{served.server.port}"
    with pytest.raises(NotReachable, match="taken"):
        await serve(served.index, served.server.port)
    remote = open_index(QdrantSettings(url=served.server.url))
    with pytest.raises(UsageError):
        await serve(remote)
    await remote.close()
