"""MemoryIndex: the contract of `VectorIndex` in plain dicts, for tests and dry runs. Same checks, fences, guards and order."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import AsyncIterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from streams.errors import InvariantBroken, NotPrepared
from streams.index.marks import BUCKET, DIGEST, unmarked
from streams.index.points import checked, patch_of, requests_of, stored_payload
from streams.index.ranking import fused, ranked, visible
from streams.ports import CollectionSpec, Hit, IndexPlan, Query, Readiness, SparseVector, StoredPoint, Vector, VectorIndex

_PAGE = 256


@dataclass(slots=True)
class _Collection:
    spec: CollectionSpec
    points: dict[str, StoredPoint] = field(default_factory=dict)
    documents: dict[tuple[str, str], set[str]] = field(default_factory=dict)


class MemoryIndex(VectorIndex):
    """Holds everything in this object. Each call is one step: nothing else runs in between."""

    def __init__(self) -> None:
        self._collections: dict[str, _Collection] = {}
        self._aliases: dict[str, str] = {}

    async def ensure_collection(self, name: str, spec: CollectionSpec) -> None:
        """Create the collection, or check the one that exists."""
        if name in self._aliases:
            raise InvariantBroken("name of a collection is taken by an alias", collection=name)
        found = self._collections.setdefault(name, _Collection(spec)).spec
        if found != spec:
            raise InvariantBroken(f"collection belongs to another batch: it has {found}, running is {spec}", collection=name)

    async def set_alias(self, alias: str, collection: str) -> None:
        """Point an alias at a collection."""
        if alias in self._collections:
            raise NotPrepared(f"{alias} is the name of a collection: set another DOCDELTA_QDRANT__ALIAS", alias=alias)
        if collection not in self._collections:
            raise NotPrepared(f"collection {collection} does not exist", alias=alias)
        self._aliases[alias] = collection

    async def alias_target(self, alias: str) -> str | None:
        """Return the collection behind an alias, or None."""
        return self._aliases.get(alias)

    async def collections(self) -> list[str]:
        """Return the names of all collections, sorted."""
        return sorted(self._collections)

    async def drop_collection(self, name: str) -> None:
        """Remove a collection. NotPrepared while an alias points at it."""
        if name in self._aliases or name in self._aliases.values():
            raise NotPrepared(f"collection {name} is served by an alias: switch the alias first", collection=name)
        self._collections.pop(name, None)

    async def collection_spec(self, name: str) -> CollectionSpec | None:
        """Return what a collection (or the one behind an alias) says it is for, or None."""
        found = self._collections.get(self._aliases.get(name, name))
        return found.spec if found else None

    async def retrieve(self, collection: str, chunk_ids: Sequence[str], with_vectors: bool = False) -> dict[str, StoredPoint]:
        """Return the points that exist among `chunk_ids`."""
        points = self._read(collection).points
        return {chunk_id: _copy(points[chunk_id], with_vectors) for chunk_id in chunk_ids if chunk_id in points}

    async def document_points(self, collection: str, tenant_id: str, document_id: str) -> list[StoredPoint]:
        """Return all points of a document, by ascending order_key, without vectors."""
        found = self._read(collection)
        points = [_copy(found.points[chunk_id]) for chunk_id in found.documents.get((tenant_id, document_id), ())]
        return sorted(points, key=lambda point: (point.payload["order_key"], point.chunk_id))

    async def scan(self, collection: str) -> AsyncIterator[list[StoredPoint]]:
        """Yield all points in pages, without vectors."""
        points = [_copy(point) for point in self._read(collection).points.values()]
        for start in range(0, len(points), _PAGE):
            yield points[start : start + _PAGE]

    async def apply(self, collection: str, plan: IndexPlan) -> None:
        """Carry out a plan in its order, or nothing of it."""
        if collection not in self._collections:
            raise InvariantBroken("collection to write to does not exist", collection=collection)
        found = self._collections[collection]
        plan = checked(plan, found.spec)
        requests_of(plan)  # refuses what no request could carry
        document = found.documents.setdefault((plan.tenant_id, plan.document_id), set())
        for point in plan.upserts:
            if self._may_write(found, point.chunk_id, plan.revision):
                vector = None if point.vector is None else _as_stored(point.vector, found.spec.distance)
                payload = stored_payload(point.chunk_id, point.payload, plan.partition)
                found.points[point.chunk_id] = StoredPoint(point.chunk_id, payload, vector, point.sparse or None)
                document.add(point.chunk_id)
        for chunk_id, whole in plan.payloads:
            if chunk_id not in found.points:
                continue
            seen, stored = plan.seen.get(chunk_id), found.points[chunk_id]
            patch = patch_of(seen, stored_payload(chunk_id, whole, plan.partition))
            if seen is not None and patch is not None:
                if stored.payload["revision"] == seen["revision"]:
                    found.points[chunk_id] = replace(stored, payload={**stored.payload, **patch})
            elif self._may_write(found, chunk_id, plan.revision):
                found.points[chunk_id] = replace(stored, payload=stored_payload(chunk_id, whole, plan.partition))
        for chunk_id in plan.stamps:
            kept = found.points.get(chunk_id)
            if kept is not None and kept.payload["revision"] < plan.revision:
                found.points[chunk_id] = replace(kept, payload={**kept.payload, "revision": plan.revision})
        for chunk_id in plan.deletes:
            looked_at = plan.seen.get(chunk_id) or (found.points[chunk_id].payload if chunk_id in found.points else None)
            if chunk_id in found.points and looked_at is not None and looked_at["revision"] <= plan.revision:
                gone = found.points.pop(chunk_id).payload
                found.documents[gone["tenant_id"], gone["document_id"]].discard(chunk_id)

    @staticmethod
    def _may_write(found: _Collection, chunk_id: str, revision: int) -> bool:
        stored = found.points.get(chunk_id)
        return stored is None or stored.payload["revision"] <= revision

    async def search(self, collection: str, query: Query) -> list[Hit]:
        """Return the best hits, best first, of one generation a document."""
        found = self._read(collection)
        if query.limit < 1:
            return []
        vector = np.asarray(query.vector, dtype=np.float32)
        if vector.shape != (found.spec.dimensions,):
            raise NotPrepared(f"index refuses search: query has shape {vector.shape}, not {found.spec.dimensions} dimensions")
        seen = [(p, p.vector) for p in found.points.values() if p.vector is not None and visible(p.payload, query)]
        if not seen:
            return []
        scores = _scores(np.stack([stored for _, stored in seen]), vector, found.spec.distance)
        hits = [Hit(point.chunk_id, float(score), unmarked(point.payload)) for (point, _), score in zip(seen, scores, strict=True)]
        hits.sort(key=lambda hit: hit.score, reverse=found.spec.distance != "euclid")
        if query.sparse:
            if not found.spec.sparse_spec:
                raise NotPrepared(f"index refuses search: collection {collection} has no sparse vectors")
            hits = fused(hits, _by_words(found, query, query.sparse), query.fusion)
        return ranked(hits, query.limit)[0]

    async def count(self, collection: str, buckets: tuple[int, int] | None = None) -> int:
        """Return the number of points, or of those within a range of buckets."""
        points = self._read(collection).points.values()
        if buckets is None:
            return len(points)
        return sum(buckets[0] <= point.payload.get(BUCKET, -1) < buckets[1] for point in points)

    async def digests(self, collection: str, first: int, end: int, limit: int) -> dict[int, int]:
        """Return how many points carry each digest within a range of buckets."""
        points = self._read(collection).points.values()
        found = Counter(point.payload[DIGEST] for point in points if first <= point.payload.get(BUCKET, -1) < end)
        return dict(found.most_common(limit))

    async def marked(self, collection: str, first: int, end: int, digests: Sequence[int]) -> list[StoredPoint]:
        """Return the points that carry one of these digests within a range of buckets."""
        wanted, points = set(digests), self._read(collection).points.values()
        return [
            _copy(point) for point in points if first <= point.payload.get(BUCKET, -1) < end and point.payload[DIGEST] in wanted
        ]

    async def unmarked(self, collection: str) -> AsyncIterator[list[StoredPoint]]:
        """Yield the points without a bucket in pages."""
        points = [_copy(point) for point in self._read(collection).points.values() if BUCKET not in point.payload]
        for start in range(0, len(points), _PAGE):
            yield points[start : start + _PAGE]

    async def readiness(self, collection: str) -> Readiness:
        """Return that there is nothing to wait for."""
        self._read(collection)
        return Readiness(True, "in memory, nothing to optimise")

    async def close(self) -> None:
        """Keep everything: a test may look at it afterwards."""

    def _read(self, name: str) -> _Collection:
        found = self._collections.get(self._aliases.get(name, name))
        if found is None:
            raise NotPrepared(
                f"collection {name} does not exist: create it with docdelta init --policy FILE, or check DOCDELTA_QDRANT__ALIAS",
                collection=name,
            )
        return found


def _copy(point: StoredPoint, with_vector: bool = False) -> StoredPoint:
    payload: Mapping[str, Any] = unmarked(point.payload)
    return replace(point, payload=payload) if with_vector else StoredPoint(point.chunk_id, payload)


def _by_words(found: _Collection, query: Query, asked: SparseVector) -> list[Hit]:
    """Return the visible points that share words with the query, best first: dot products, each word weighed by its rarity."""
    corpus = [
        (point, dict(zip(point.sparse.indices, point.sparse.values, strict=True)))
        for point in found.points.values()
        if point.sparse
    ]
    rarity = {}
    for index in asked.indices:
        holding = sum(index in terms for _, terms in corpus)
        rarity[index] = math.log(1 + (len(corpus) - holding + 0.5) / (holding + 0.5))
    hits = []
    for point, terms in corpus:
        score = sum(
            value * rarity[index] * terms[index] for index, value in zip(asked.indices, asked.values, strict=True) if index in terms
        )
        if score > 0 and visible(point.payload, query):
            hits.append(Hit(point.chunk_id, score, unmarked(point.payload)))
    return sorted(hits, key=lambda hit: -hit.score)


def _as_stored(vector: Vector, distance: str) -> Vector:
    """Return the vector as Qdrant stores it: of length 1 under cosine."""
    vector = vector.astype(np.float32)
    return vector / np.linalg.norm(vector) if distance == "cosine" else vector


def _scores(stored: np.ndarray[Any, np.dtype[np.float32]], query: Vector, distance: str) -> np.ndarray[Any, np.dtype[np.float32]]:
    if distance == "euclid":
        return np.asarray(np.linalg.norm(stored - query, axis=1), dtype=np.float32)
    return np.asarray(stored @ (_as_stored(query, distance) if np.any(query) else query), dtype=np.float32)
