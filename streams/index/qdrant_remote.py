"""RemoteStore: a Qdrant server over REST: `qdrant_rest` for what is called all the time, the client for everything else.

gRPC would save 12 of 63 microseconds a point and cost its own deadlines and hangs.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import httpx

from streams.index.client import AsyncQdrantClient, UnexpectedResponse, models
from streams.index.points import DENSE, SPARSE
from streams.index.qdrant_errors import in_qdrants_words
from streams.index.qdrant_rest import Rest, record
from streams.index.store import Described
from streams.ports import Query, Readiness, Vector
from streams.settings import QdrantSettings

CONNECTIONS = httpx.Limits(max_connections=128, max_keepalive_connections=64, keepalive_expiry=3.0)
"""Connections are kept for the next request: by itself the client opens one a request to this machine, and keeps 20 to another,
fewer than documents are in hand. Shorter than the 5 s after which a server closes an idle one."""


class RemoteStore:
    """One client of one event loop. Made after a fork, never shared by two loops."""

    def __init__(self, settings: QdrantSettings) -> None:
        # The version check of the client runs in a thread and only warns; the server's word on each call is what counts.
        self._client = AsyncQdrantClient(
            url=settings.url,
            api_key=settings.api_key.get_secret_value() or None,
            timeout=math.ceil(settings.timeout_seconds),
            prefer_grpc=False,
            check_compatibility=False,
            limits=CONNECTIONS,
        )
        base: Any = self._client._client
        self._rest = Rest(base.rest_uri, settings.api_key.get_secret_value(), settings.timeout_seconds)

    async def collections(self) -> list[str]:
        """Return the names of all collections."""
        return [collection.name for collection in (await self._client.get_collections()).collections]

    async def aliases(self) -> dict[str, str]:
        """Return alias to collection."""
        return {entry.alias_name: entry.collection_name for entry in (await self._client.get_aliases()).aliases}

    async def describe(self, name: str) -> Described | None:
        """Return a collection as it is, or None where there is none."""
        try:
            info = await self._client.get_collection(name)
        except UnexpectedResponse as error:
            if error.status_code == 404 and in_qdrants_words(error):
                return None
            raise
        indexes = {field: index.data_type.value for field, index in info.payload_schema.items()}
        return described(info, indexes)

    async def create(
        self, name: str, dimensions: int, distance: models.Distance, metadata: dict[str, Any], sparse: bool = False
    ) -> None:
        """Create a collection with a dense vector and perhaps a sparse one. Raises UnexpectedResponse (409) when it exists."""
        await self._client.create_collection(name, **vectors_of(dimensions, distance, sparse), metadata=metadata)

    async def index_field(self, name: str, field_name: str, schema: models.PayloadFieldSchema) -> None:
        """Create a payload index and wait for it."""
        await self._client.create_payload_index(name, field_name, field_schema=schema, wait=True)

    async def drop(self, name: str) -> None:
        """Remove a collection. Nothing happens where there is none."""
        await self._client.delete_collection(name)

    async def point_alias(self, alias: str, collection: str) -> None:
        """Point an alias at a collection: one create action re-points an existing alias in one step."""
        action = models.CreateAlias(collection_name=collection, alias_name=alias)
        await self._client.update_collection_aliases([models.CreateAliasOperation(create_alias=action)])

    async def batch(self, name: str, operations: Sequence[models.UpdateOperation]) -> list[models.UpdateStatus]:
        """Carry out operations in order. No timeout is sent: with one, a slow write comes back as 200 `wait_timeout`."""
        results = await self._rest.post(name, "points/batch", {"operations": operations}, wait="true", ordering="strong")
        return [models.UpdateStatus(result["status"]) for result in results]

    async def retrieve(self, name: str, ids: Sequence[str], payload: bool | list[str], vectors: bool) -> list[models.Record]:
        """Return the points that exist among `ids`."""
        asked = {"ids": list(ids), "with_payload": payload, "with_vector": vectors}
        return [record(told) for told in await self._rest.post(name, "points", asked)]

    async def scroll(self, name: str, where: models.Filter | None, offset: Any, limit: int) -> tuple[list[models.Record], Any]:
        """Return a page of points by id with their payloads, and where the next begins."""
        asked: dict[str, Any] = {"limit": limit, "with_payload": True, "with_vector": False}
        asked |= {key: value for key, value in (("filter", where), ("offset", offset)) if value is not None}
        page = await self._rest.post(name, "points/scroll", asked)
        return [record(told) for told in page["points"]], page["next_page_offset"]

    async def count(self, name: str, where: models.Filter | None = None) -> int:
        """Return the exact number of points that a filter lets through, or of all."""
        return (await self._client.count(name, count_filter=where, exact=True)).count

    async def facet(self, name: str, field_name: str, where: models.Filter, limit: int) -> dict[int, int]:
        """Return how many points have each value. Not exact: a point that an optimiser moves may count twice, and it is fast."""
        answer = await self._client.facet(name, field_name, facet_filter=where, limit=limit)
        return {int(hit.value): hit.count for hit in answer.hits}

    async def query(self, name: str, vector: Vector, where: models.Filter, limit: int) -> list[models.ScoredPoint]:
        """Return the nearest points, best first."""
        response = await self._client.query_points(
            name, query=vector.tolist(), using=DENSE, query_filter=where, limit=limit, with_payload=True, with_vectors=False
        )
        return response.points

    async def hybrid(self, name: str, query: Query, where: models.Filter, limit: int) -> list[models.ScoredPoint]:
        """Return the best of both lists, fused by the server. The filter stands in each list: before its cut, not behind it."""
        depth = max(limit, query.fusion.depth)
        lists: list[tuple[str, Any]] = [(DENSE, query.vector.tolist()), (SPARSE, sparse_query(query))]
        response = await self._client.query_points(
            name,
            prefetch=[models.Prefetch(query=vector, using=using, filter=where, limit=depth) for using, vector in lists],
            query=models.RrfQuery(
                rrf=models.Rrf(k=query.fusion.k, weights=[query.fusion.dense_weight, query.fusion.sparse_weight])
            ),
            limit=limit,
            with_payload=True,
            with_vectors=False,
        )
        return response.points

    async def readiness(self, name: str) -> Readiness:
        """Return whether the server is done: status green, optimizer ok, nothing queued or deferred.

        After a restart the status can stay `grey` for as long as nobody writes: an empty optimizer update wakes it.
        """
        info = await self._client.get_collection(name)
        if info.status == models.CollectionStatus.GREY:
            await self._client.update_collection(name, optimizers_config=models.OptimizersConfigDiff())
        queued = info.update_queue.length if info.update_queue is not None else 0
        deferred = (info.update_queue.deferred_points or 0) if info.update_queue is not None else 0
        healthy = info.optimizer_status == models.OptimizersStatusOneOf.OK
        optimizer = "ok" if healthy else str(info.optimizer_status)
        said = f"status {info.status.value}, optimizer {optimizer}, queue {queued}, deferred {deferred}"
        return Readiness(info.status == models.CollectionStatus.GREEN and healthy and not queued and not deferred, said)

    async def close(self) -> None:
        """Close the connections."""
        await self._client.close()
        await self._rest.close()


def vectors_of(dimensions: int, distance: models.Distance, sparse: bool) -> dict[str, Any]:
    """Return the client's parameters for a collection's vectors."""
    vectors: dict[str, Any] = {"vectors_config": {DENSE: models.VectorParams(size=dimensions, distance=distance)}}
    if sparse:
        vectors["sparse_vectors_config"] = {SPARSE: models.SparseVectorParams(modifier=models.Modifier.IDF)}
    return vectors


def sparse_query(query: Query) -> models.SparseVector:
    """Return a query's sparse vector as the client takes it."""
    assert query.sparse is not None
    return models.SparseVector(indices=list(query.sparse.indices), values=list(query.sparse.values))


def described(info: models.CollectionInfo, indexes: dict[str, str] | None) -> Described:
    """Return what matters of the client's description of a collection."""
    vectors = info.config.params.vectors
    dense = vectors.get(DENSE) if isinstance(vectors, dict) else None
    sparse = (info.config.params.sparse_vectors or {}).get(SPARSE)
    return Described(
        metadata=info.config.metadata,
        dimensions=dense.size if dense else None,
        distance=dense.distance.value.lower() if dense else None,
        indexes=indexes,
        sparse=sparse is not None and sparse.modifier == models.Modifier.IDF,
    )
