"""Plain values for tests of the index: specs, points, plans, and a way to read back all that an index holds."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import Any

import numpy as np

from streams.ports import CollectionSpec, IndexPlan, NewPoint, Query, SparseVector, StoredPoint, Vector, VectorIndex

DIMENSIONS = 4
SPEC = CollectionSpec("cms-v1-0a1b2c3d", "f" * 64, "hashing/4 cosine", DIMENSIONS, "cosine")


HYBRID = replace(SPEC, sparse_spec="words/1")


def words(*indices: int, value: float = 1.0) -> SparseVector:
    """Return a sparse vector with one value at each index."""
    return SparseVector(indices, (value,) * len(indices))


def chunk_id(name: str) -> str:
    """Return a chunk id for a name."""
    return "chk_" + hashlib.sha256(name.encode()).hexdigest()


def vector(*components: float) -> Vector:
    """Return a float32 vector, filled up with zeros."""
    return np.array([*components, *[0.0] * (DIMENSIONS - len(components))], dtype=np.float32)


def vector_of(name: str) -> Vector:
    """Return a vector that depends on the name alone."""
    seed = int.from_bytes(hashlib.sha256(name.encode()).digest()[:4], "big")
    return np.random.default_rng(seed).normal(size=DIMENSIONS).astype(np.float32)


def payload(name: str, revision: int, *, tenant: str = "acme", document: str = "d1", order: int = 0, **more: Any) -> dict[str, Any]:
    """Return the payload of a chunk of that name, as the indexer writes it."""
    fields = {"role": "body", "language": "en", "acl": None, "text": f"text of {name}"}
    return {
        "tenant_id": tenant,
        "document_id": document,
        "revision": revision,
        "order_key": order,
        "chunk_id": chunk_id(name),
        **fields,
        **more,
    }


def point(name: str, revision: int, at: Vector | str | None = "by name", **fields: Any) -> NewPoint:
    """Return a point of that name. `at` None: without a vector."""
    where = vector_of(name) if isinstance(at, str) else at
    return NewPoint(chunk_id(name), where, payload(name, revision, **fields))


def plan(
    revision: int,
    upserts: Iterable[NewPoint] = (),
    payloads: Mapping[str, Mapping[str, Any]] | None = None,
    stamps: Iterable[str] = (),
    deletes: Iterable[str] = (),
    tenant: str = "acme",
    document: str = "d1",
) -> IndexPlan:
    """Return a plan; payloads, stamps and deletes by chunk name."""
    return IndexPlan(
        tenant,
        document,
        revision,
        tuple(upserts),
        tuple((chunk_id(name), fields) for name, fields in (payloads or {}).items()),
        tuple(chunk_id(name) for name in stamps),
        tuple(chunk_id(name) for name in deletes),
    )


def query(at: Vector, **fields: Any) -> Query:
    """Return a query of tenant acme."""
    return Query(**{"tenant_id": "acme", "vector": at, **fields})


async def contents(index: VectorIndex, collection: str) -> dict[str, StoredPoint]:
    """Return every point a collection holds, with vectors, by chunk id."""
    ids = [stored.chunk_id async for page in index.scan(collection) for stored in page]
    assert len(ids) == len(set(ids)) == await index.count(collection)
    return await index.retrieve(collection, ids, with_vectors=True)


def same(left: Mapping[str, StoredPoint], right: Mapping[str, StoredPoint]) -> None:
    """Assert that two indexes hold the same points: ids, payloads, and vectors up to float32 rounding."""
    assert left.keys() == right.keys()
    for key, stored in left.items():
        other = right[key]
        assert dict(stored.payload) == dict(other.payload)
        assert (stored.vector is None) == (other.vector is None)
        if stored.vector is not None and other.vector is not None:
            np.testing.assert_allclose(stored.vector, other.vector, atol=1e-6)
        assert stored.sparse == other.sparse
