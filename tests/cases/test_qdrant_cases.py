"""Cases of the area qdrant, and those of incremental that the index alone decides, on the embedded index and over REST.

Each test names its case, and notices when the case has changed in the shared list (where that is beside the repository).
"""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from chunking.identity import point_id
from streams.errors import InvariantBroken, PoisonRecord, Unavailable
from streams.index.qdrant import QdrantIndex, open_index
from streams.ports import CollectionSpec, NewPoint
from streams.settings import QdrantSettings
from tests.contracts.index_values import SPEC, chunk_id, contents, payload, plan, point, query, vector
from tests.contracts.qdrant_shim import Fault, Shim, running_shim

CASES = Path(__file__).resolve().parents[2] / "../shared/cases/cases.jsonl"
NAME = "kb"


@cache
def _cases() -> dict[str, dict[str, Any]]:
    lines = CASES.read_text(encoding="utf-8").split("\n") if CASES.is_file() else []
    return {each["id"]: each for each in map(json.loads, filter(None, lines))}


def still_says(identity: str, words: str) -> None:
    """Assert that the case is what this test was written for, where the shared list is at hand."""
    if _cases():
        assert words in json.dumps(_cases()[identity], ensure_ascii=False), f"case {identity} has changed: look at this test again"


@dataclass
class Rest:
    shim: Shim
    index: QdrantIndex

    async def texts(self, document: str = "d1") -> set[str]:
        stored = await self.index.document_points(NAME, "acme", document)
        return {each.payload["text"].removeprefix("text of ") for each in stored}


@pytest.fixture
async def rest() -> AsyncIterator[Rest]:
    async with running_shim() as shim:
        index = open_index(QdrantSettings(url=shim.url))
        await index.ensure_collection(NAME, SPEC)
        yield Rest(shim, index)
        await index.close()


async def test_qd_01_point_ids_come_from_the_whole_digest(rest: Rest) -> None:
    still_says("QD-01", "two ids that share their first 16 hex digits")
    near = [f"chk_{'ab' * 8}{tail * 48}" for tail in "12"]
    assert point_id(near[0]) == "abababab-abab-abab-1111-111111111111"
    assert point_id(near[0]) != point_id(near[1])
    upserts = [NewPoint(each, vector(1, number), payload("t", 1) | {"chunk_id": each}) for number, each in enumerate(near)]
    await rest.index.apply(NAME, plan(1, upserts))
    found = await rest.index.retrieve(NAME, near)
    assert [found[each].payload["chunk_id"] for each in near] == near
    deletion = plan(2)
    await rest.index.apply(NAME, type(deletion)("acme", "d1", 2, deletes=(near[0],)))
    assert set(await rest.index.retrieve(NAME, near)) == {near[1]}


async def test_qd_02_a_wrong_dimension_is_found_before_the_write_and_deletes_nothing(rest: Rest) -> None:
    still_says("QD-02", "collection of size 4; embedder now returns 3 values")
    await rest.index.apply(NAME, plan(1, [point("old", 1)]))
    rest.shim.seen.clear()
    with pytest.raises(InvariantBroken, match="4 dimensions"):
        await rest.index.apply(NAME, plan(2, [point("new", 2, np.ones(3, dtype=np.float32))], deletes=["old"]))
    assert rest.shim.writes == []
    assert await rest.texts() == {"old"}


@pytest.mark.parametrize("other", [{"dimensions": 3}, {"distance": "dot"}])
async def test_qd_02_a_collection_of_other_settings_stops_the_worker_at_its_start(rest: Rest, other: dict[str, Any]) -> None:
    with pytest.raises(InvariantBroken):
        await rest.index.ensure_collection(NAME, CollectionSpec(**{**vars_of(SPEC), **other}))


def vars_of(spec: CollectionSpec) -> dict[str, Any]:
    return {name: getattr(spec, name) for name in CollectionSpec.__dataclass_fields__}


@pytest.mark.parametrize("written", ['[0.1, "NaN", 0.2]', '["Infinity", 0, 0]', "[0, 0, 0]", "[]", "[1e30, 0, 0]"])
async def test_qd_03_vectors_that_poison_a_search_are_never_sent(written: str) -> None:
    still_says("QD-03", json.dumps(written))
    components = json.loads(written)
    bad = np.array([float(component) for component in components], dtype=np.float64)
    async with running_shim() as shim:
        index = open_index(QdrantSettings(url=shim.url))
        await index.ensure_collection(NAME, CollectionSpec(**{**vars_of(SPEC), "dimensions": 3}))
        good = np.array([0.0, 1.0, 0.0], dtype=np.float32)
        with pytest.raises(PoisonRecord if bad.size else InvariantBroken) as refused:
            await index.apply(NAME, plan(1, [point("good", 1, good), point("bad", 1, bad)]))
        assert refused.value.facts["chunk_id"] == chunk_id("bad")
        assert shim.writes == []
        await index.apply(NAME, plan(1, [point("good", 1, good)]))
        assert [hit.chunk_id for hit in await index.search(NAME, query(good))] == [chunk_id("good")]
        await index.close()


async def test_qd_04_a_large_document_goes_in_requests_below_the_limit_and_survives_a_failure_between_them() -> None:
    still_says("QD-04", "1,500 chunks, 1,536 dimensions, 4 kB payload")
    wide = CollectionSpec(**{**vars_of(SPEC), "dimensions": 1536})
    sizes: list[int] = []
    async with running_shim() as shim:
        index = open_index(QdrantSettings(url=shim.url))
        client = index.store._client  # type: ignore[attr-defined]

        async def weigh(request: Any, call_next: Any) -> Any:
            sizes.append(len(request.content))
            return await call_next(request)

        client.http.client.add_middleware(weigh)
        await index.ensure_collection(NAME, wide)
        vectors = np.random.default_rng(4).normal(size=(1501, 1536)).astype(np.float32)
        await index.apply(NAME, plan(1, [point("old", 1, vectors[1500])]))
        big = [point(f"n{number}", 2, vectors[number], order=number, text="x" * 4096) for number in range(1500)]
        second = plan(2, big, deletes=["old"])
        shim.seen.clear()
        shim.faults.append(Fault(skip=5, cut_before=True))
        with pytest.raises(Unavailable):
            await index.apply(NAME, second)
        assert chunk_id("old") in await index.retrieve(NAME, [chunk_id("old")])
        await index.apply(NAME, second)
        assert await index.count(NAME) == 1500
        assert len(await index.document_points(NAME, "acme", "d1")) == 1500
        assert max(sizes) <= 8 << 20
        await index.close()


async def test_qd_04_one_payload_of_40_mb_gives_a_clear_error_for_that_chunk(rest: Rest) -> None:
    with pytest.raises(PoisonRecord) as refused:
        await rest.index.apply(NAME, plan(1, [point("small", 1), point("huge", 1, text="x" * 40_000_000)]))
    assert refused.value.facts["chunk_id"] == chunk_id("huge")
    assert int(str(refused.value.facts["bytes"])) > 40_000_000
    assert rest.shim.writes == []


async def test_qd_06_at_every_cut_of_an_update_a_search_shows_one_version_and_never_none() -> None:
    still_says("QD-06", "d1 v1 (5 chunks) to v2 (5 others)")
    for done in range(3):
        async with running_shim() as shim:
            index = open_index(QdrantSettings(url=shim.url))
            await index.ensure_collection(NAME, SPEC)
            first, second = ([point(f"v{number}-{n}", number) for n in range(5)] for number in (1, 2))
            await index.apply(NAME, plan(1, first))
            update = plan(2, second, deletes=[f"v1-{n}" for n in range(5)])
            shim.faults.append(Fault(killed_after=done))
            with pytest.raises(Unavailable):
                await index.apply(NAME, update)
            hits = await index.search(NAME, query(vector(1, 1, 1, 1), limit=10))
            assert {hit.payload["revision"] for hit in hits} == {1 if done == 0 else 2}
            assert len(hits) == 5
            await index.apply(NAME, update)
            assert {stored.payload["revision"] for stored in (await contents(index, NAME)).values()} == {2}
            await index.close()


async def test_qd_07_what_a_delete_names_is_gone_and_nothing_else(rest: Rest) -> None:
    still_says("QD-07", "index d1, update it, delete it")
    await rest.index.apply(NAME, plan(1, [point(name, 1) for name in "abc"]))
    await rest.index.apply(NAME, plan(1, [point("z", 1, document="d2")], document="d2"))
    await rest.index.apply(NAME, plan(2, [point("d", 2)], stamps=["a"], deletes=["b", "c"]))
    assert await rest.texts() == {"a", "d"}
    await rest.index.apply(NAME, plan(4, [point("a", 4)]))
    await rest.index.apply(NAME, plan(3, deletes=["a", "d", "never"]))
    assert await rest.texts() == {"a"}  # written after the delete was decided: stays
    await rest.index.apply(NAME, plan(5, deletes=["a"]))
    assert await rest.texts() == set()
    assert await rest.texts("d2") == {"z"}


async def test_in_02_a_failed_write_leaves_every_old_point_in_place(rest: Rest) -> None:
    still_says("IN-02", "deliver d1 v2 while the embedder raises")
    await rest.index.apply(NAME, plan(1, [point(name, 1) for name in "abc"]))
    rest.shim.faults.append(Fault(status=500))
    update = plan(2, [point("d", 2)], deletes=["a", "b", "c"])
    with pytest.raises(Unavailable):
        await rest.index.apply(NAME, update)
    assert await rest.texts() == {"a", "b", "c"}
    await rest.index.apply(NAME, update)
    assert await rest.texts() == {"d"}


async def test_in_03_documents_with_the_same_text_have_points_of_their_own(rest: Rest) -> None:
    still_says("IN-03", "index d1 and d2 with the same text")
    for document in ("d1", "d2"):
        await rest.index.apply(NAME, plan(1, [point(f"{document} same", 1, vector(1), document=document)], document=document))
    await rest.index.apply(NAME, plan(2, deletes=["d1 same"]))
    assert [hit.payload["document_id"] for hit in await rest.index.search(NAME, query(vector(1)))] == ["d2"]


async def test_in_07_a_shrunk_document_leaves_no_tail(rest: Rest) -> None:
    still_says("IN-07", "index d1 v2 with 7 chunks, of which 5 are unchanged")
    await rest.index.apply(NAME, plan(1, [point(f"n{n}", 1, order=n) for n in range(10)]))
    new = [point(f"m{n}", 2, order=100 + n) for n in range(2)]
    await rest.index.apply(NAME, plan(2, new, stamps=[f"n{n}" for n in range(5)], deletes=[f"n{n}" for n in range(5, 10)]))
    assert await rest.texts() == {"m0", "m1", *(f"n{n}" for n in range(5))}


async def test_in_10_a_write_repeated_after_a_lost_answer_makes_no_second_point(rest: Rest) -> None:
    still_says("IN-10", "the worker dies after the Qdrant write")
    first = plan(1, [point(f"n{n}", 1) for n in range(4)])
    rest.shim.faults += [Fault(cut_after=True) for _ in range(3)]
    for _ in range(3):
        with pytest.raises(Unavailable):
            await rest.index.apply(NAME, first)
        assert await rest.index.count(NAME) == 4
    await rest.index.apply(NAME, first)
    assert await rest.index.count(NAME) == 4


async def test_in_16_a_payload_can_not_carry_another_tenant(rest: Rest) -> None:
    still_says("IN-16", "topic/credential tenant A")
    with pytest.raises(InvariantBroken, match="tenant_id"):
        await rest.index.apply(NAME, plan(1, [point("a", 1, tenant="B")]))
    await rest.index.apply(NAME, plan(1, [point("a", 1, vector(1), attributes={"tenant_id": "B"})]))
    assert await rest.index.search(NAME, query(vector(1), tenant_id="B")) == []
    assert await rest.index.search(NAME, query(vector(1), tenant_id="")) == []
