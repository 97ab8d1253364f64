"""LocalStore: qdrant-client's local mode, owned by one thread.

Local mode is not thread-safe (writes get lost) and blocks, so construction, every call and close run in one executor thread.
A filter costs it a walk over all points in Python; the store therefore knows which points a document has, and answers filters
over point ids or one document from those points alone.
"""

from __future__ import annotations

import asyncio
import contextlib
import heapq
import sqlite3
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, TypeVar

from streams.errors import NotPrepared
from streams.index.client import QdrantClient, check_filter, models, reciprocal_rank_fusion
from streams.index.document_map import DocumentMap
from streams.index.marks import BUCKET, DIGEST, MARKS
from streams.index.points import DENSE, SPARSE
from streams.index.qdrant_remote import described, sparse_query, vectors_of
from streams.index.store import Described
from streams.ports import Query, Readiness, Vector

Result = TypeVar("Result")

_DOCUMENT_FIELDS = ["tenant_id", "document_id"]
_MAP_FIELDS = [*_DOCUMENT_FIELDS, *MARKS]
_FIRST_FETCH = 64


class LocalStore:
    """Collections in a folder, or in memory when `path` is None. Opening blocks until they are loaded."""

    def __init__(self, path: Path | None) -> None:
        self._path = path
        self._thread = ThreadPoolExecutor(max_workers=1, thread_name_prefix="qdrant-local")
        self._maps: dict[str, DocumentMap] = {}
        try:
            self._client: QdrantClient = self._thread.submit(self._open).result()
        except BaseException:
            self._thread.shutdown(wait=False)
            raise

    async def run(self, work: Callable[[QdrantClient], Result]) -> Result:
        """Return what `work` returns on the client, run in the owner thread. It must not change points: see `batch`."""
        return await asyncio.get_running_loop().run_in_executor(self._thread, work, self._client)

    # Everything below the coroutines runs in the owner thread.

    def _open(self) -> QdrantClient:
        try:
            client = QdrantClient(path=str(self._path)) if self._path else QdrantClient(":memory:")
        except (RuntimeError, OSError) as error:
            if "already accessed" in str(error):
                raise NotPrepared(
                    f"another process holds the index folder {self._path}: stop it, or let it serve the index and set "
                    "DOCDELTA_QDRANT__URL instead of DOCDELTA_QDRANT__PATH"
                ) from error
            raise NotPrepared(f"index folder {self._path} can't be opened: {error}") from error
        for collection in client.get_collections().collections:
            self._quicken(client, collection.name)
            self._maps[collection.name] = _map_of(client, collection.name)
        return client

    @staticmethod
    def _quicken(client: QdrantClient, name: str) -> None:
        """Let SQLite append to a journal instead of syncing every point: nine times faster, and as safe against a killed process.

        A power cut may lose the last writes; the log is replayed then. Reaches into the client, so it is only tried.
        """
        with contextlib.suppress(AttributeError, KeyError, sqlite3.Error):
            connection = client._client.collections[name].storage.storage  # type: ignore[attr-defined]
            connection.execute("pragma journal_mode=WAL")
            connection.execute("pragma synchronous=NORMAL")

    async def collections(self) -> list[str]:
        """Return the names of all collections."""
        return await self.run(lambda client: [entry.name for entry in client.get_collections().collections])

    async def aliases(self) -> dict[str, str]:
        """Return alias to collection."""
        return await self.run(lambda client: {a.alias_name: a.collection_name for a in client.get_aliases().aliases})

    async def describe(self, name: str) -> Described | None:
        """Return a collection as it is, or None where there is none. Local mode has no payload indexes."""

        def work(client: QdrantClient) -> Described | None:
            return described(client.get_collection(name), None) if client.collection_exists(name) else None

        return await self.run(work)

    async def create(
        self, name: str, dimensions: int, distance: models.Distance, metadata: dict[str, Any], sparse: bool = False
    ) -> None:
        """Create a collection with one named dense vector and perhaps a sparse one. Raises ValueError when it exists."""
        await self.create_as(name, **vectors_of(dimensions, distance, sparse), metadata=metadata)

    async def create_as(self, name: str, **parameters: Any) -> None:
        """Create a collection with the client's own parameters."""

        def work(client: QdrantClient) -> None:
            client.create_collection(name, **parameters)
            self._quicken(client, name)
            self._maps[name] = DocumentMap()

        await self.run(work)

    async def index_field(self, name: str, field_name: str, schema: models.PayloadFieldSchema) -> None:
        """Do nothing: local mode has no payload indexes."""

    async def drop(self, name: str) -> None:
        """Remove a collection, and with it the aliases that point at it. Nothing happens where there is none."""

        def work(client: QdrantClient) -> None:
            with contextlib.suppress(AttributeError, KeyError):  # else its file stays open until it is collected
                client._client.collections[name].close()  # type: ignore[attr-defined]
            client.delete_collection(name)
            self._maps.pop(name, None)

        await self.run(work)

    async def point_alias(self, alias: str, collection: str) -> None:
        """Point an alias at a collection."""
        action = models.CreateAliasOperation(create_alias=models.CreateAlias(collection_name=collection, alias_name=alias))
        await self.run(lambda client: client.update_collection_aliases([action]))

    async def batch(self, name: str, operations: Sequence[models.UpdateOperation]) -> list[models.UpdateStatus]:
        """Carry out operations in order. The first that fails ends it; earlier ones stay done, as on a server."""

        def work(client: QdrantClient) -> list[models.UpdateStatus]:
            collection = self._concrete(client, name)
            for operation in operations:
                self._carry_out(client, collection, operation)
            return [models.UpdateStatus.COMPLETED] * len(operations)

        return await self.run(work)

    async def retrieve(self, name: str, ids: Sequence[str], payload: bool | list[str], vectors: bool) -> list[models.Record]:
        """Return the points that exist among `ids`."""
        return await self.run(lambda client: client.retrieve(name, list(ids), with_payload=payload, with_vectors=vectors))

    async def scroll(self, name: str, where: models.Filter | None, offset: Any, limit: int) -> tuple[list[models.Record], Any]:
        """Return a page of points by id with their payloads, and where the next begins."""

        def work(client: QdrantClient) -> tuple[list[models.Record], Any]:
            ids = self._candidates(self._concrete(client, name), where)
            if ids is None:
                return client.scroll(name, scroll_filter=where, limit=limit, offset=offset, with_payload=True)
            page = [identity for identity in ids if offset is None or identity >= str(offset)]
            page = sorted(page) if where else heapq.nsmallest(limit + 1, page)
            records = _matching(client.retrieve(name, [_identity(each) for each in page]), where)[: limit + 1]
            return records[:limit], records[limit].id if len(records) > limit else None

        return await self.run(work)

    async def count(self, name: str, where: models.Filter | None = None) -> int:
        """Return the exact number of points: all of them, or those within a range of buckets from what is known."""

        def work(client: QdrantClient) -> int:
            buckets = _bucket_range(where) if where is not None and _only_buckets(where) else None
            if buckets is not None:
                return sum(self._maps[self._concrete(client, name)].digests(*buckets).values())
            return client.count(name, count_filter=where, exact=True).count

        return await self.run(work)

    async def facet(self, name: str, field_name: str, where: models.Filter, limit: int) -> dict[int, int]:
        """Return how many points have each value of an integer field: digests within a range of buckets from what is known."""

        def work(client: QdrantClient) -> dict[int, int]:
            concrete = self._concrete(client, name)
            buckets = _bucket_range(where)
            if field_name == DIGEST and buckets is not None and not _digests_asked(where):
                return dict(Counter(self._maps[concrete].digests(*buckets)).most_common(limit))
            answer = client.facet(name, field_name, facet_filter=where, limit=limit, exact=True)
            return {int(hit.value): hit.count for hit in answer.hits}

        return await self.run(work)

    async def query(self, name: str, vector: Vector, where: models.Filter, limit: int) -> list[models.ScoredPoint]:
        """Return the nearest points, best first."""
        return await self.run(lambda client: self._nearest(client, name, DENSE, vector, where, limit))

    async def hybrid(self, name: str, query: Query, where: models.Filter, limit: int) -> list[models.ScoredPoint]:
        """Return the best of both lists, each cut under the filter and then fused by the client's own function."""
        depth = max(limit, query.fusion.depth)

        def work(client: QdrantClient) -> list[models.ScoredPoint]:
            dense = self._nearest(client, name, DENSE, query.vector, where, depth)
            sparse = self._nearest(client, name, SPARSE, sparse_query(query), where, depth)
            weights = [query.fusion.dense_weight, query.fusion.sparse_weight]
            return reciprocal_rank_fusion([dense, sparse], limit, query.fusion.k, weights)

        return await self.run(work)

    def _nearest(
        self, client: QdrantClient, name: str, using: str, vector: Any, where: models.Filter, limit: int
    ) -> list[models.ScoredPoint]:
        """Return the nearest points of one vector, best first.

        The filter is tried on the hits of an unfiltered search first, which costs a tenth: if enough of them pass, they are the
        best that pass. Only else all points are filtered.
        """
        total = len(self._maps[self._concrete(client, name)])
        for fetch in (max(_FIRST_FETCH, 4 * limit), max(8 * _FIRST_FETCH, 32 * limit)):
            hits = client.query_points(name, query=vector, using=using, limit=fetch).points
            passed = [hit for hit in hits if check_filter(where, hit.payload or {}, hit.id, {})]
            if len(passed) >= limit or len(hits) < fetch:
                return passed[:limit]
            if fetch * 4 > total:
                break
        return client.query_points(name, query=vector, using=using, query_filter=where, limit=limit).points

    async def readiness(self, name: str) -> Readiness:
        """Return that there is nothing to wait for: no optimizers here. Raises ValueError where there is no collection."""
        await self.run(lambda client: self._concrete(client, name))
        return Readiness(True, "embedded, nothing to optimise")

    async def close(self) -> None:
        """Close the files in the owner thread and end it. May be called twice."""
        with contextlib.suppress(RuntimeError):  # the thread has ended: closed before
            await self.run(lambda client: client.close())
        self._thread.shutdown(wait=True)

    def _concrete(self, client: QdrantClient, name: str) -> str:
        if name in self._maps:
            return name
        target = next((a.collection_name for a in client.get_aliases().aliases if a.alias_name == name), None)
        if target is None:
            raise ValueError(f"Collection {name} not found")
        return target

    def _carry_out(self, client: QdrantClient, name: str, operation: models.UpdateOperation) -> None:
        """Apply one operation with its filter narrowed to point ids where that is possible, and keep the map in step."""
        narrowed = self._narrowed(client, name, operation)
        if narrowed is None:
            return
        touched = _ids_of(narrowed)
        try:
            client.batch_update_points(name, [narrowed])
        finally:  # an operation that failed may be done in part
            if touched is None:
                self._maps[name] = _map_of(client, name)
            elif _moves_documents(narrowed):
                records = client.retrieve(name, [_identity(each) for each in touched], with_payload=_MAP_FIELDS)
                self._maps[name].replace(touched, _documents_of(records), _marks_of(records))

    def _narrowed(self, client: QdrantClient, name: str, operation: models.UpdateOperation) -> models.UpdateOperation | None:
        """Return the operation by ids in place of a filter; as it is where that is not possible; None if nothing matches."""
        if isinstance(operation, models.SetPayloadOperation):
            selection: Any = operation.set_payload
        elif isinstance(operation, models.OverwritePayloadOperation):
            selection = operation.overwrite_payload
        elif isinstance(operation, models.DeletePayloadOperation):
            selection = operation.delete_payload
        elif isinstance(operation, models.DeleteOperation) and isinstance(operation.delete, models.FilterSelector):
            ids = self._select(client, name, operation.delete.filter)
            if ids is None:
                return operation
            return models.DeleteOperation(delete=models.PointIdsList(points=ids)) if ids else None
        else:
            return operation
        ids = None if selection.filter is None or selection.points else self._select(client, name, selection.filter)
        if ids is None:
            return operation
        if not ids:
            return None
        explicit = selection.model_copy(update={"points": ids, "filter": None})
        key = next(iter(type(operation).model_fields))
        return type(operation).model_construct(**{key: explicit})

    def _select(self, client: QdrantClient, name: str, where: models.Filter) -> list[models.ExtendedPointId] | None:
        ids = self._candidates(name, where)
        if ids is None:
            return None
        return [record.id for record in _matching(client.retrieve(name, list(ids)), where)]

    def _candidates(self, name: str, where: models.Filter | None) -> list[str] | None:
        """Return the ids that can match, or None when only a walk over all points can tell."""
        if where is None:
            return self._maps[name].all_ids() if name in self._maps else None
        must = where.must if isinstance(where.must, list) else [where.must]
        buckets, digests = _bucket_range(where), _digests_asked(where)
        if buckets is not None and digests:
            return self._maps[name].marked(*buckets, digests)
        if any(isinstance(each, models.IsEmptyCondition) and each.is_empty.key == BUCKET for each in must):
            return self._maps[name].unmarked()
        if any(isinstance(condition, models.HasVectorCondition) for condition in must) or where.min_should:
            return None
        for condition in must:
            if isinstance(condition, models.HasIdCondition):
                return list(dict.fromkeys(str(identity) for identity in condition.has_id))
        equal = {
            condition.key: condition.match.value
            for condition in must
            if isinstance(condition, models.FieldCondition) and isinstance(condition.match, models.MatchValue)
        }
        if all(isinstance(equal.get(key), str) for key in _DOCUMENT_FIELDS):
            return self._maps[name].ids_of(str(equal["tenant_id"]), str(equal["document_id"]))
        return None


def _identity(known: str) -> models.ExtendedPointId:
    """Return a point id as the client has it: ours are UUIDs, somebody else's may be numbers."""
    return int(known) if known.isdecimal() else known


def _matching(records: Iterable[models.Record], where: models.Filter | None) -> list[models.Record]:
    return [record for record in records if where is None or check_filter(where, record.payload or {}, record.id, {})]


def _map_of(client: QdrantClient, name: str) -> DocumentMap:
    documents = DocumentMap()
    total = client.count(name, exact=True).count
    if total:  # one page: every further one would sort all ids again
        records, _ = client.scroll(name, limit=total, with_payload=_MAP_FIELDS)
        documents.replace([], _documents_of(records), _marks_of(records))
    return documents


def _documents_of(records: Iterable[models.Record]) -> dict[str, tuple[str, str]]:
    found = {}
    for record in records:
        payload = record.payload or {}
        found[str(record.id)] = (str(payload.get("tenant_id", "")), str(payload.get("document_id", "")))
    return found


def _marks_of(records: Iterable[models.Record]) -> dict[str, tuple[int, int]]:
    found = {}
    for record in records:
        bucket, digest = ((record.payload or {}).get(name) for name in MARKS)
        if isinstance(bucket, int) and isinstance(digest, int):
            found[str(record.id)] = (bucket, digest)
    return found


def _bucket_range(where: models.Filter) -> tuple[float, float] | None:
    """Return the range of buckets that a filter names, or None."""
    for each in where.must if isinstance(where.must, list) else [where.must]:
        if isinstance(each, models.FieldCondition) and each.key == BUCKET and isinstance(each.range, models.Range):
            first, end = each.range.gte, each.range.lt
            return (0.0 if first is None else first), (float("inf") if end is None else end)
    return None


def _only_buckets(where: models.Filter) -> bool:
    """Return whether a filter says nothing but a range of buckets."""
    only = where.must[0] if isinstance(where.must, list) and len(where.must) == 1 else None
    if not isinstance(only, models.FieldCondition):
        return False
    return where == models.Filter(must=[models.FieldCondition(key=BUCKET, range=only.range)])


def _digests_asked(where: models.Filter) -> frozenset[int]:
    """Return the digests that a filter names."""
    for each in where.must if isinstance(where.must, list) else [where.must]:
        if isinstance(each, models.FieldCondition) and each.key == DIGEST and isinstance(each.match, models.MatchAny):
            return frozenset(each.match.any)  # type: ignore[arg-type]
    return frozenset()


def _moves_documents(operation: models.UpdateOperation) -> bool:
    """Return False for operations that can't change which document a point belongs to or its marks: stamps above all."""
    if isinstance(operation, models.SetPayloadOperation):
        return any(field in operation.set_payload.payload for field in _MAP_FIELDS)
    return not isinstance(operation, (models.UpdateVectorsOperation, models.DeleteVectorsOperation))


def _ids_of(operation: models.UpdateOperation) -> list[str] | None:
    """Return the point ids an operation names, or None when a filter chooses them."""
    ids: Sequence[Any] | None
    if isinstance(operation, models.UpsertOperation):
        if isinstance(operation.upsert, models.PointsBatch):
            ids = operation.upsert.batch.ids
        else:
            ids = [point.id for point in operation.upsert.points]
    elif isinstance(operation, models.DeleteOperation):
        ids = operation.delete.points if isinstance(operation.delete, models.PointIdsList) else None
    elif isinstance(operation, models.SetPayloadOperation):
        ids = operation.set_payload.points
    elif isinstance(operation, models.OverwritePayloadOperation):
        ids = operation.overwrite_payload.points
    elif isinstance(operation, models.DeletePayloadOperation):
        ids = operation.delete_payload.points
    elif isinstance(operation, models.ClearPayloadOperation):
        ids = operation.clear_payload.points if isinstance(operation.clear_payload, models.PointIdsList) else None
    else:
        ids = []
    return None if ids is None else [str(identity) for identity in ids]
