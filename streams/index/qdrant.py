"""QdrantIndex: the vector index on Qdrant, in all three modes: a server, a folder, memory. `open_index` chooses by the settings.

Order of effects of `apply` (DESIGN §4): ① upserts ② payloads ③ stamps ④ deletes, cut into requests that are each confirmed
`completed` before the next is sent. A batch is no transaction: a crash or an error leaves a prefix of this order. Sending the plan
again completes it, since every write is the same when repeated and deletes stand last. Fences: upserts, payloads and stamps leave a
stored point of a newer revision alone; ids to be deleted are read just before (unless the caller has: `IndexPlan.seen`) and dropped
from the plan where they are newer. A payload whose stored form is known is written as a patch of what differs, only while the point
still has the revision that was read: whoever wrote in between is another owner, and is mended by the re-check (agents/recheck.py).
What no fence stops is a late upsert of a point that is already gone: the caller's manifest refuses that.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from dataclasses import asdict, fields, replace
from functools import partial
from typing import Any, TypeVar

import numpy as np

from chunking.identity import point_id
from streams.crash_points import reached
from streams.errors import InvariantBroken, NotPrepared, Unavailable, UsageError
from streams.index.client import models
from streams.index.marks import BUCKET, DIGEST, unmarked
from streams.index.points import DENSE, REQUEST_BYTES, REQUEST_POINTS, SPARSE, checked, operations_of, requests_of
from streams.index.qdrant_errors import KNOWN, status_of, translated
from streams.index.qdrant_local import LocalStore
from streams.index.qdrant_remote import RemoteStore
from streams.index.ranking import query_filter, ranked
from streams.index.store import Described, Store
from streams.ports import CollectionSpec, Hit, IndexPlan, Query, Readiness, SparseVector, StoredPoint, Vector, VectorIndex
from streams.settings import QdrantSettings

SCHEMA_NUMBER = 1
"""Layout of points and metadata. A collection of another number is refused."""
PAYLOAD_INDEXES = {
    "tenant_id": models.PayloadSchemaType.KEYWORD,
    "document_id": models.PayloadSchemaType.KEYWORD,
    "revision": models.PayloadSchemaType.INTEGER,
    "order_key": models.PayloadSchemaType.INTEGER,
    "role": models.PayloadSchemaType.KEYWORD,
    "language": models.PayloadSchemaType.KEYWORD,
    "acl": models.PayloadSchemaType.KEYWORD,
    BUCKET: models.PayloadSchemaType.INTEGER,
    DIGEST: models.PayloadSchemaType.INTEGER,
}
"""Every field a filter names: a server in strict mode refuses filters over others."""
PAGE = 256
"""Points a page: decoding a page runs on the event loop."""
_VECTOR_PAGE = 64
_OVERFETCH = 4
_LARGEST_FETCH = 4096
_READ_ATTEMPTS = 3
_READ_PAUSE_SECONDS = 0.1

Value = TypeVar("Value")
Item = TypeVar("Item")


def open_index(settings: QdrantSettings) -> QdrantIndex:
    """Return the index the settings name. A folder is loaded before this returns; NotPrepared when another process holds it.

    UsageError for a url that is none. Nothing is asked of a server yet.
    """
    if not settings.url:
        return QdrantIndex(LocalStore(settings.path))
    try:
        return QdrantIndex(RemoteStore(settings))
    except ValueError as error:
        raise UsageError(f"setting DOCDELTA_QDRANT__URL: {error}; it looks like http://host:6333") from error


class QdrantIndex(VectorIndex):
    """`VectorIndex` on a Store. One of one event loop; a local one may be shared with `streams.embedded.index_server`."""

    def __init__(
        self,
        store: Store,
        pause: Callable[[float], Awaitable[None]] = asyncio.sleep,
        request_bytes: int = REQUEST_BYTES,
        request_points: int = REQUEST_POINTS,
    ) -> None:
        self.store = store
        self._pause = pause
        self._bounds = (request_bytes, request_points)
        self._specs: dict[str, CollectionSpec] = {}

    async def ensure_collection(self, name: str, spec: CollectionSpec) -> None:
        """Create the collection and its payload indexes, or check the one that exists and complete its indexes.

        Indexes come before any point: the graph's filter links are built only for indexes that exist then. A crash between
        creation and indexes is mended by the next call. InvariantBroken names both sides where they differ.
        """
        with translated("ensure collection", name, writing=True):
            found = await self.store.describe(name)
            if found is None:
                found = await self._create(name, spec)
            elif name in await self.store.aliases():
                raise InvariantBroken("name of a collection is taken by an alias", collection=name)
            _refuse_difference(name, found, spec)
            for field_name, schema in PAYLOAD_INDEXES.items():
                if found.indexes is not None and found.indexes.get(field_name) != schema.value:
                    await self.store.index_field(name, field_name, _index(field_name, schema))
        self._specs[name] = spec

    async def _create(self, name: str, spec: CollectionSpec) -> Described:
        metadata = {**asdict(spec), "docdelta_schema": SCHEMA_NUMBER}
        try:
            await self.store.create(name, spec.dimensions, _distance(spec.distance), metadata, sparse=bool(spec.sparse_spec))
        except KNOWN as error:
            if status_of(error) != 409:  # another worker was first: what it made is checked like any other
                raise
        found = await self.store.describe(name)
        if found is None:
            raise Unavailable("collection is not to be seen after its creation", collection=name)
        return found

    async def set_alias(self, alias: str, collection: str) -> None:
        """Point an alias at a collection in one step, and read it back. NotPrepared: no such collection, or the name is taken."""
        with translated("set alias", collection, alias=alias):
            if alias in await self.store.collections():
                raise NotPrepared(f"{alias} is the name of a collection: set another DOCDELTA_QDRANT__ALIAS", alias=alias)
            await self.store.point_alias(alias, collection)
            for attempt in range(_READ_ATTEMPTS):
                if (await self.store.aliases()).get(alias) == collection:
                    return
                await self._pause(_READ_PAUSE_SECONDS * 2**attempt)
        raise Unavailable("alias does not point where it was set", alias=alias, collection=collection)

    async def alias_target(self, alias: str) -> str | None:
        """Return the collection behind an alias, or None."""
        return (await self._read("read aliases", alias, self.store.aliases)).get(alias)

    async def collections(self) -> list[str]:
        """Return the names of all collections, sorted; other applications' included."""
        return sorted(await self._read("list collections", "-", self.store.collections))

    async def drop_collection(self, name: str) -> None:
        """Remove a collection. NotPrepared while an alias points at it: the server would remove the alias silently with it."""
        with translated("drop collection", name):
            aliases = await self.store.aliases()
            holding = sorted(alias for alias, target in aliases.items() if target == name)
            if holding or name in aliases:
                raise NotPrepared(
                    f"collection {aliases.get(name, name)} is served as {', '.join(holding) or name}: switch the alias first",
                    collection=name,
                )
            await self.store.drop(name)
        self._specs.pop(name, None)

    async def collection_spec(self, name: str) -> CollectionSpec | None:
        """Return what a collection (or the one behind an alias) says it is for; None where there is none.

        InvariantBroken for a collection that docdelta did not make, or of another layout.
        """
        found = await self._read("describe collection", name, lambda: self.store.describe(name))
        return None if found is None else _spec_of(name, found)

    async def retrieve(self, collection: str, chunk_ids: Sequence[str], with_vectors: bool = False) -> dict[str, StoredPoint]:
        """Return the points that exist among `chunk_ids`. Vectors come as stored: of length 1 under cosine."""
        wanted = dict.fromkeys(chunk_ids)
        found: dict[str, StoredPoint] = {}
        for ids in _pages(list(wanted), _VECTOR_PAGE if with_vectors else PAGE):
            identities = [point_id(chunk_id) for chunk_id in ids]
            records = await self._records(collection, identities, True, with_vectors)
            points = [_stored(record) for record in records]
            found.update((point.chunk_id, point) for point in points if point.chunk_id in wanted)
        return found

    async def _records(
        self, collection: str, identities: Sequence[str], payload: bool | list[str], vectors: bool
    ) -> list[models.Record]:
        return await self._read(
            "retrieve points", collection, lambda: self.store.retrieve(collection, identities, payload, vectors)
        )

    async def document_points(self, collection: str, tenant_id: str, document_id: str) -> list[StoredPoint]:
        """Return all points of a document, by ascending order_key, without vectors."""
        is_tenant, is_document = (
            models.FieldCondition(key=key, match=models.MatchValue(value=value))
            for key, value in (("tenant_id", tenant_id), ("document_id", document_id))
        )
        where = models.Filter(must=[is_tenant, is_document])
        points = [point async for page in self._scroll(collection, where) for point in page]
        return sorted(points, key=lambda point: (point.payload["order_key"], point.chunk_id))

    async def scan(self, collection: str) -> AsyncIterator[list[StoredPoint]]:
        """Yield all points in pages, without vectors, by point id: for audits and gates."""
        async for page in self._scroll(collection, None):
            yield page

    async def _scroll(
        self, collection: str, where: models.Filter | None, read: Callable[[models.Record], StoredPoint] | None = None
    ) -> AsyncIterator[list[StoredPoint]]:
        read = read or _stored
        offset: Any = None
        while True:
            start = offset
            records, offset = await self._read(
                "scroll points",
                collection,
                lambda start=start: self.store.scroll(collection, where, start, PAGE),  # type: ignore[misc]
            )
            yield [read(record) for record in records]
            if offset is None:
                return

    async def apply(self, collection: str, plan: IndexPlan) -> None:
        """Carry out a plan, as the module says. Unavailable: send the whole plan again.

        Raises before anything is sent: InvariantBroken and PoisonRecord of `points.checked`, PoisonRecord of a point too large.
        """
        plan = checked(plan, await self._spec(collection))
        if plan.deletes:
            plan = replace(plan, deletes=await self._not_newer(collection, plan))
        requests = requests_of(plan, *self._bounds)
        for number, shares in enumerate(requests, start=1):
            place = f"request {number} of {len(requests)}"
            operations = operations_of(shares, plan.revision)
            reached("index.sending")
            with translated(f"write, {place}", collection, writing=True, document_id=plan.document_id):
                statuses = await self.store.batch(collection, operations)
            if len(statuses) != len(operations) or any(status != models.UpdateStatus.COMPLETED for status in statuses):
                said = ", ".join(sorted({status.value for status in statuses})) or "nothing"
                raise Unavailable(
                    f"write is not confirmed, {place}: index says {said}", document_id=plan.document_id, collection=collection
                )
            reached("index.confirmed")

    async def _not_newer(self, collection: str, plan: IndexPlan) -> tuple[str, ...]:
        """Return the ids to delete without those whose point has a newer revision. Ids without a point stay: harmless."""
        newer = {chunk_id for chunk_id in plan.deletes if plan.seen.get(chunk_id, {}).get("revision", -1) > plan.revision}
        for ids in _pages([chunk_id for chunk_id in plan.deletes if chunk_id not in plan.seen], PAGE):
            identities = {point_id(chunk_id): chunk_id for chunk_id in ids}
            with translated("read before delete", collection, writing=True, document_id=plan.document_id):
                records = await self.store.retrieve(collection, list(identities), ["revision"], False)
            newer.update(identities[str(record.id)] for record in records if (record.payload or {})["revision"] > plan.revision)
        return tuple(chunk_id for chunk_id in plan.deletes if chunk_id not in newer)

    async def search(self, collection: str, query: Query) -> list[Hit]:
        """Return the best hits, best first, of one generation a document. NotPrepared: no such collection or alias.

        A point that is rewritten while the server optimises can be missing for a moment; probes that must be sure retrieve.
        """
        vector = np.asarray(query.vector, dtype=np.float32)
        if not query.tenant_id or query.limit < 1:
            return []
        where = query_filter(query)
        fetch = query.limit * _OVERFETCH
        while True:
            points = await self._read("search", collection, partial(self._asked, collection, query, vector, where, fetch))
            raw = [Hit(str((point.payload or {})["chunk_id"]), float(point.score), unmarked(point.payload)) for point in points]
            best, open_end = ranked(raw, query.limit)
            if not open_end or len(points) < fetch or fetch >= _LARGEST_FETCH:
                return best
            fetch *= _OVERFETCH

    async def _asked(
        self, collection: str, query: Query, vector: Vector, where: models.Filter, size: int
    ) -> list[models.ScoredPoint]:
        if query.sparse:
            return await self.store.hybrid(collection, replace(query, vector=vector), where, size)
        return await self.store.query(collection, vector, where, size)

    async def count(self, collection: str, buckets: tuple[int, int] | None = None) -> int:
        """Return the exact number of points, or of those within a range of buckets."""
        where = models.Filter(must=[_within(*buckets)]) if buckets is not None else None
        return await self._read("count points", collection, lambda: self.store.count(collection, where))

    async def digests(self, collection: str, first: int, end: int, limit: int) -> dict[int, int]:
        """Return how many points carry each digest within a range of buckets, at most `limit` digests."""
        where = models.Filter(must=[_within(first, end)])
        try:
            return await self._read("count digests", collection, lambda: self.store.facet(collection, DIGEST, where, limit))
        except NotPrepared as error:
            if "refuses" not in error.message:
                raise
            hint = "its index of digests is made when a worker of this release starts"
            raise NotPrepared(f"{error.message}; {hint}", collection=collection) from error

    async def marked(self, collection: str, first: int, end: int, digests: Sequence[int]) -> list[StoredPoint]:
        """Return the points that carry one of these digests within a range of buckets."""
        found: list[StoredPoint] = []
        for some in _pages(sorted(set(digests)), PAGE):
            among_them = models.FieldCondition(key=DIGEST, match=models.MatchAny(any=list(some)))
            async for page in self._scroll(collection, models.Filter(must=[_within(first, end), among_them]), _any_stored):
                found += page
        return found

    async def unmarked(self, collection: str) -> AsyncIterator[list[StoredPoint]]:
        """Yield the points without a bucket in pages."""
        without = models.Filter(must=[models.IsEmptyCondition(is_empty=models.PayloadField(key=BUCKET))])
        async for page in self._scroll(collection, without, _any_stored):
            yield page

    async def readiness(self, collection: str) -> Readiness:
        """Return whether the collection's optimizers and queue are at rest. NotPrepared where there is none."""
        return await self._read("ask for optimizers", collection, lambda: self.store.readiness(collection))

    async def close(self) -> None:
        """Release files and connections. May be called twice."""
        await self.store.close()

    async def _spec(self, collection: str) -> CollectionSpec:
        if collection not in self._specs:
            with translated("describe collection", collection, writing=True):
                found = await self.store.describe(collection)
                if found is None:
                    raise InvariantBroken("collection to write to does not exist", collection=collection)
                if collection in await self.store.aliases():
                    raise InvariantBroken("writes name the collection, not an alias", collection=collection)
            self._specs[collection] = _spec_of(collection, found)
        return self._specs[collection]

    async def _read(self, action: str, collection: str, call: Callable[[], Awaitable[Value]]) -> Value:
        """Return what a reading call returns, tried a few times; writes are tried again as whole plans by the caller."""
        for attempt in range(1, _READ_ATTEMPTS + 1):
            try:
                with translated(action, collection):
                    return await call()
            except Unavailable as error:
                if attempt == _READ_ATTEMPTS or error.retry_after is not None:
                    raise
                await self._pause(_READ_PAUSE_SECONDS * 2 ** (attempt - 1))
        raise AssertionError("unreachable")


def _index(field_name: str, schema: models.PayloadSchemaType) -> models.PayloadFieldSchema:
    if field_name == "tenant_id":  # is_tenant: a tenant's points are kept together on disk
        return models.KeywordIndexParams(type=models.KeywordIndexType.KEYWORD, is_tenant=True)
    if field_name in (BUCKET, DIGEST):  # each is asked in one way only
        return models.IntegerIndexParams(
            type=models.IntegerIndexType.INTEGER, lookup=field_name == DIGEST, range=field_name == BUCKET
        )
    return schema


def _within(first: int, end: int) -> models.FieldCondition:
    return models.FieldCondition(key=BUCKET, range=models.Range(gte=first, lt=end))


def _distance(name: str) -> models.Distance:
    return models.Distance(name.capitalize())


def _spec_of(name: str, found: Described) -> CollectionSpec:
    metadata = {"sparse_spec": "", **(found.metadata or {})}
    missing = [key for key in ("docdelta_schema", *(field.name for field in fields(CollectionSpec))) if key not in metadata]
    if missing:
        raise InvariantBroken(
            f"collection was not made by docdelta: its metadata lacks {', '.join(missing)}; use another name", collection=name
        )
    if metadata["docdelta_schema"] != SCHEMA_NUMBER:
        raise InvariantBroken(
            f"collection has layout {metadata['docdelta_schema']}, this release writes {SCHEMA_NUMBER}", collection=name
        )
    return CollectionSpec(**{field.name: metadata[field.name] for field in fields(CollectionSpec)})


def _refuse_difference(name: str, found: Described, spec: CollectionSpec) -> None:
    """Raise InvariantBroken naming every difference between the collection and what runs here."""
    has, wants = asdict(_spec_of(name, found)), asdict(spec)
    has |= {f"vector {DENSE} size": found.dimensions, f"vector {DENSE} distance": found.distance, f"vector {SPARSE}": found.sparse}
    wants |= {
        f"vector {DENSE} size": spec.dimensions,
        f"vector {DENSE} distance": spec.distance,
        f"vector {SPARSE}": bool(spec.sparse_spec),
    }
    differing = [f"{key}: collection has {has[key]!r}, running is {wants[key]!r}" for key in wants if has[key] != wants[key]]
    if differing:
        raise InvariantBroken("collection belongs to another batch: " + "; ".join(differing), collection=name)


def _stored(record: models.Record) -> StoredPoint:
    if "chunk_id" not in (record.payload or {}):
        raise InvariantBroken("point was not written by docdelta: its payload has no chunk_id", point=record.id)
    return _any_stored(record)


def _any_stored(record: models.Record) -> StoredPoint:
    """Return a point, also one that somebody else wrote."""
    payload = unmarked(record.payload)
    vectors: dict[str, Any] = record.vector if isinstance(record.vector, dict) else {}
    vector, sparse = vectors.get(DENSE), vectors.get(SPARSE)
    return StoredPoint(
        str(payload.get("chunk_id", f"point:{record.id}")),
        payload,
        None if vector is None else np.asarray(vector, dtype=np.float32),
        None if sparse is None else SparseVector(tuple(sparse.indices), tuple(sparse.values)),
    )


def _pages(ids: Sequence[Item], size: int) -> list[Sequence[Item]]:
    return [ids[start : start + size] for start in range(0, len(ids), size)]
