"""Marks: every index counts digests by buckets without reading points, and readers never see them."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from typing import Any

import pytest
from qdrant_client import models

from chunking.identity import point_id
from streams.errors import NotPrepared
from streams.index.marks import BUCKETS, bucket_of, digest_of, marks_of
from streams.index.qdrant import QdrantIndex, open_index
from streams.ports import StoredPoint
from streams.settings import QdrantSettings
from tests.contracts.index_values import SPEC, chunk_id, payload, plan, point, query, vector_of
from tests.contracts.qdrant_shim import Fault, running_shim
from tests.contracts.test_index_contract import Place, place  # noqa: F401  the fixture

EVERYTHING = (0, 1 << 40, 1000)


def digest(name: str, payload_hash: str = "None", order: int = 0) -> int:
    return digest_of(chunk_id(name), payload_hash, order)


async def write(to: Place, *names: str, document: str = "d1", partition: int = 0, **fields: Any) -> None:
    points = [point(name, 1, document=document, **fields) for name in names]
    await to.index.apply(to.name, replace(plan(1, points, document=document), partition=partition))


async def test_digests_are_counted_within_a_range_of_buckets(place: Place) -> None:  # noqa: F811
    await write(place, "a", "b", partition=0)
    await write(place, "c", document="d2", partition=3)
    assert await place.index.digests(place.name, *EVERYTHING) == Counter(map(digest, "abc"))
    first = bucket_of(3, "acme", "d2")
    assert 3 * BUCKETS <= first < 4 * BUCKETS
    assert await place.index.digests(place.name, 3 * BUCKETS, 4 * BUCKETS, 10) == {digest("c"): 1}
    assert await place.index.digests(place.name, first, first + 1, 10) == {digest("c"): 1}
    assert await place.index.digests(place.name, first + 1, 4 * BUCKETS, 10) == {}
    assert len(await place.index.digests(place.name, 0, 1 << 40, 2)) == 2


async def test_points_are_counted_within_a_range_of_buckets(place: Place) -> None:  # noqa: F811
    await write(place, "a", "b", partition=0)
    await write(place, "c", document="d2", partition=3)
    first = bucket_of(3, "acme", "d2")
    assert await place.index.count(place.name) == await place.index.count(place.name, (0, 4 * BUCKETS)) == 3
    assert await place.index.count(place.name, (0, BUCKETS)) == 2
    assert await place.index.count(place.name, (first, first + 1)) == 1
    assert await place.index.count(place.name, (first + 1, 4 * BUCKETS)) == 0


async def test_every_write_of_a_payload_moves_its_digest_and_a_stamp_does_not(place: Place) -> None:  # noqa: F811
    await write(place, "a", "b")
    changed = {"a": payload("a", 2, order=7, payload_hash="new")}
    await place.index.apply(place.name, plan(2, payloads=changed, stamps=["b"]))
    assert await place.index.digests(place.name, *EVERYTHING) == {digest("a", "new", 7): 1, digest("b"): 1}
    (seen,) = (await place.index.retrieve(place.name, [chunk_id("a")])).values()
    again = {"a": payload("a", 2, order=9, payload_hash="new")}
    await place.index.apply(place.name, replace(plan(2, payloads=again), seen={chunk_id("a"): seen.payload}))
    assert await place.index.digests(place.name, *EVERYTHING) == {digest("a", "new", 9): 1, digest("b"): 1}
    await place.index.apply(place.name, plan(2, deletes=["a"]))
    assert await place.index.digests(place.name, *EVERYTHING) == {digest("b"): 1}


async def test_points_are_found_by_their_digest(place: Place) -> None:  # noqa: F811
    await write(place, *"abcdef")
    found = await place.index.marked(place.name, 0, 1 << 40, [digest("b"), digest("e"), digest("none")])
    assert sorted(place.names(*found)) == ["b", "e"]
    assert await place.index.marked(place.name, 5 * BUCKETS, 1 << 40, [digest("b")]) == []
    assert [page async for page in place.index.unmarked(place.name) if page] == []


async def test_readers_see_no_marks(place: Place) -> None:  # noqa: F811
    await write(place, "a")
    marks = marks_of(chunk_id("a"), payload("a", 1), 0).keys()
    seen: list[StoredPoint] = [
        *(await place.index.document_points(place.name, "acme", "d1")),
        *(await place.index.retrieve(place.name, [chunk_id("a")])).values(),
        *[each async for page in place.index.scan(place.name) for each in page],
    ]
    hits = await place.index.search(place.name, query(vector_of("a")))
    assert len(seen) == 3
    assert len(hits) == 1
    assert all(each.payload.keys().isdisjoint(marks) for each in [*seen, *hits])


async def test_points_without_marks_are_told_apart(place: Place) -> None:  # noqa: F811
    """Those of an older release, and those that somebody else wrote."""
    if not isinstance(place.index, QdrantIndex):
        return  # nobody else can write into dicts
    await write(place, "a", "old")
    without = models.DeletePayload(keys=["bucket", "digest"], points=[point_id(chunk_id("old"))])
    foreign = models.PointStruct(id=7, vector={"dense": [1.0, 0.0, 0.0, 0.0]}, payload={"who": "somebody"})
    await place.index.store.batch(
        place.name,
        [
            models.DeletePayloadOperation(delete_payload=without),
            models.UpsertOperation(upsert=models.PointsList(points=[foreign])),
        ],
    )
    found = [each.chunk_id async for page in place.index.unmarked(place.name) for each in page]
    assert sorted(found) == sorted([chunk_id("old"), "point:7"])
    assert await place.index.digests(place.name, *EVERYTHING) == {digest("a"): 1}
    await write(place, "old")
    assert [each.chunk_id async for page in place.index.unmarked(place.name) for each in page] == ["point:7"]


async def test_a_server_without_the_index_of_digests_says_who_makes_it() -> None:
    async with running_shim() as shim:
        index = open_index(QdrantSettings(url=shim.url))
        await index.ensure_collection("c", SPEC)
        shim.faults.append(Fault(match="/facet", status=400, words='Bad request: Index required but not found for "digest"'))
        with pytest.raises(NotPrepared, match="made when a worker of this release starts"):
            await index.digests("c", *EVERYTHING)
        assert await index.digests("c", *EVERYTHING) == {}
        await index.close()
