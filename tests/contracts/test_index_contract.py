"""The contract of VectorIndex, run against every implementation: dicts, local mode in memory and in a folder, REST, a real server.

The real server's turn comes where QDRANT_URL is set.
"""

from __future__ import annotations

import asyncio
import os
import uuid
from collections.abc import AsyncIterator
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import pytest

from streams.errors import InvariantBroken, NotPrepared, PoisonRecord
from streams.index.memory import MemoryIndex
from streams.index.qdrant import QdrantIndex, open_index
from streams.index.reading import neighbours, ordinal
from streams.ports import NewPoint, StoredPoint, VectorIndex
from streams.settings import QdrantSettings
from tests.contracts.index_values import DIMENSIONS, SPEC, chunk_id, contents, payload, plan, point, query, same, vector
from tests.contracts.qdrant_shim import running_shim

KINDS = ["memory", "local_memory", "local_folder", "rest", "server"]


@dataclass
class Place:
    """An index, and names in it that are nobody else's."""

    index: VectorIndex
    prefix: str

    @property
    def name(self) -> str:
        return f"{self.prefix}one"

    @property
    def other(self) -> str:
        return f"{self.prefix}two"

    @property
    def alias(self) -> str:
        return f"{self.prefix}alias"

    def names(self, *points: StoredPoint) -> list[str]:
        return [str(stored.payload["text"]).removeprefix("text of ") for stored in points]


@pytest.fixture(params=KINDS)
async def place(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[Place]:
    """Every kind of index in turn, with an empty collection `name`."""
    found = Place(MemoryIndex(), f"docdelta-test-{uuid.uuid4().hex[:8]}-")
    if request.param == "rest":
        async with running_shim() as shim:
            found.index = open_index(QdrantSettings(url=shim.url))
            await found.index.ensure_collection(found.name, SPEC)
            yield found
            await found.index.close()
        return
    if request.param == "server" and not os.environ.get("QDRANT_URL"):
        pytest.skip("no Qdrant server: set QDRANT_URL to run the contract against one")
    settings = {
        "local_memory": QdrantSettings(),
        "local_folder": QdrantSettings(path=tmp_path / "index"),
        "server": QdrantSettings(url=os.environ.get("QDRANT_URL", "")),
    }
    if request.param in settings:
        found.index = open_index(settings[request.param])
    await found.index.ensure_collection(found.name, SPEC)
    yield found
    if isinstance(found.index, QdrantIndex):
        for name in await found.index.collections():
            if name.startswith(found.prefix):
                await found.index.store.drop(name)
    await found.index.close()


async def texts(place: Place, document: str = "d1", tenant: str = "acme") -> list[str]:
    """Return the names of a document's points in order."""
    return place.names(*await place.index.document_points(place.name, tenant, document))


class TestCollections:
    async def test_is_created_once_and_says_what_it_is_for(self, place: Place) -> None:
        await place.index.ensure_collection(place.name, SPEC)
        assert await place.index.collection_spec(place.name) == SPEC
        assert await place.index.count(place.name) == 0
        assert place.name in await place.index.collections()

    async def test_of_which_there_is_none_says_nothing(self, place: Place) -> None:
        assert await place.index.collection_spec(place.other) is None

    async def test_may_be_created_by_many_at_once(self, place: Place) -> None:
        await asyncio.gather(*(place.index.ensure_collection(place.other, SPEC) for _ in range(4)))
        assert await place.index.collection_spec(place.other) == SPEC

    @pytest.mark.parametrize(
        "change",
        [
            {"policy_fingerprint": "e" * 64},
            {"embedding_spec": "another model"},
            {"batch": "cms-v2-99999999"},
            {"dimensions": 8},
            {"distance": "dot"},
        ],
        ids=lambda change: next(iter(change)),
    )
    async def test_of_another_batch_is_refused_with_both_sides_named(self, place: Place, change: dict[str, object]) -> None:
        with pytest.raises(InvariantBroken) as refused:
            await place.index.ensure_collection(place.name, replace(SPEC, **change))  # type: ignore[arg-type]
        (field, running), has = next(iter(change.items())), SPEC
        assert str(running) in refused.value.message
        assert str(getattr(has, field)) in refused.value.message
        assert await place.index.collection_spec(place.name) == SPEC

    async def test_that_is_missing_is_named_with_what_to_do(self, place: Place) -> None:
        with pytest.raises(NotPrepared, match="docdelta init"):
            await place.index.search(place.other, query(vector(1)))
        with pytest.raises(NotPrepared):
            await place.index.count(place.other)
        with pytest.raises(InvariantBroken):
            await place.index.apply(place.other, plan(1, [point("a", 1)]))


class TestAliases:
    async def test_switch_in_one_step_and_are_read_back(self, place: Place) -> None:
        await place.index.ensure_collection(place.other, SPEC)
        assert await place.index.alias_target(place.alias) is None
        for target in (place.name, place.other, place.name):
            await place.index.set_alias(place.alias, target)
            assert await place.index.alias_target(place.alias) == target

    async def test_serve_reads_but_not_writes(self, place: Place) -> None:
        await place.index.apply(place.name, plan(1, [point("a", 1, vector(1))]))
        await place.index.set_alias(place.alias, place.name)
        assert await place.index.collection_spec(place.alias) == SPEC
        assert [hit.chunk_id for hit in await place.index.search(place.alias, query(vector(1)))] == [chunk_id("a")]
        with pytest.raises(InvariantBroken):
            await place.index.apply(place.alias, plan(2, [point("b", 2)]))

    async def test_are_neither_made_for_nothing_nor_over_a_collection(self, place: Place) -> None:
        with pytest.raises(NotPrepared):
            await place.index.set_alias(place.alias, place.other)
        await place.index.ensure_collection(place.other, SPEC)
        with pytest.raises(NotPrepared):
            await place.index.set_alias(place.other, place.name)
        await place.index.set_alias(place.alias, place.name)
        with pytest.raises(InvariantBroken):
            await place.index.ensure_collection(place.alias, SPEC)

    async def test_protect_their_collection_from_being_dropped(self, place: Place) -> None:
        await place.index.ensure_collection(place.other, SPEC)
        await place.index.set_alias(place.alias, place.name)
        for guarded in (place.name, place.alias):
            with pytest.raises(NotPrepared):
                await place.index.drop_collection(guarded)
        await place.index.set_alias(place.alias, place.other)
        for _ in range(2):
            await place.index.drop_collection(place.name)
        assert place.name not in await place.index.collections()
        assert await place.index.alias_target(place.alias) == place.other


class TestPoints:
    async def test_come_back_as_they_were_written(self, place: Place) -> None:
        written = [
            point("a", 1, vector(3, 4), order=10, attributes={"n": None, "list": [1, "二"]}),
            point("p", 1, None, order=5, role="parent"),
        ]
        await place.index.apply(place.name, plan(1, written))
        found = await place.index.retrieve(place.name, [chunk_id("a"), chunk_id("p"), chunk_id("unknown")], with_vectors=True)
        assert set(found) == {chunk_id("a"), chunk_id("p")}
        assert dict(found[chunk_id("a")].payload) == dict(written[0].payload)
        np.testing.assert_allclose(found[chunk_id("a")].vector, vector(0.6, 0.8), atol=1e-6)
        assert found[chunk_id("p")].vector is None
        assert (await place.index.retrieve(place.name, [chunk_id("a")]))[chunk_id("a")].vector is None
        assert await place.index.retrieve(place.name, []) == {}

    async def test_of_a_document_come_in_order_and_of_one_tenant_only(self, place: Place) -> None:
        many = [point(f"n{number}", 1, order=(number * 7919) % 1000) for number in range(300)]
        await place.index.apply(place.name, plan(1, many))
        await place.index.apply(place.name, plan(1, [point("x", 1, document="d2")], document="d2"))
        await place.index.apply(place.name, plan(1, [point("y", 1, tenant="rival")], tenant="rival"))
        stored = await place.index.document_points(place.name, "acme", "d1")
        keys = [each.payload["order_key"] for each in stored]
        assert keys == sorted(keys)
        assert len(stored) == 300
        assert await texts(place, tenant="rival") == ["y"]
        assert await texts(place, document="none") == []
        pages = [page async for page in place.index.scan(place.name)]
        assert sum(map(len, pages)) == await place.index.count(place.name) == 302
        assert max(map(len, pages)) <= 256

    async def test_change_payload_and_keep_the_vector(self, place: Place) -> None:
        await place.index.apply(place.name, plan(1, [point("a", 1, vector(0, 1), note="old")]))
        await place.index.apply(place.name, plan(2, payloads={"a": payload("a", 2, order=7)}))
        stored = (await contents(place.index, place.name))[chunk_id("a")]
        assert dict(stored.payload) == payload("a", 2, order=7)
        np.testing.assert_allclose(stored.vector, vector(0, 1))

    async def test_that_do_not_exist_are_not_made_by_payloads_stamps_or_deletes(self, place: Place) -> None:
        await place.index.apply(place.name, plan(1, [point("a", 1)]))
        missing = plan(2, payloads={"m": payload("m", 2), "a": payload("a", 2)}, stamps=["n", "a"], deletes=["o"])
        await place.index.apply(place.name, missing)
        assert await texts(place) == ["a"]

    async def test_named_twice_in_a_plan_are_written_once(self, place: Place) -> None:
        twice = plan(2, [point("a", 2, note="first"), point("a", 2, note="last")], stamps=["b", "b"], deletes=["c", "c"])
        await place.index.apply(place.name, plan(1, [point("b", 1), point("c", 1)]))
        await place.index.apply(place.name, twice)
        found = await contents(place.index, place.name)
        assert set(found) == {chunk_id("a"), chunk_id("b")}
        assert found[chunk_id("a")].payload["note"] == "last"

    async def test_with_ids_that_share_their_first_digits_stay_apart(self, place: Place) -> None:
        twins = [f"chk_{'0123456789abcdef' + tail * 48}" for tail in "ab"]
        upserts = [NewPoint(twin, vector(1, number), payload("t", 1) | {"chunk_id": twin}) for number, twin in enumerate(twins)]
        await place.index.apply(place.name, plan(1, upserts))
        assert set(await place.index.retrieve(place.name, twins)) == set(twins)


class TestFences:
    async def test_a_plan_applied_again_changes_nothing(self, place: Place) -> None:
        await place.index.apply(place.name, plan(1, [point(name, 1) for name in "abc"]))
        second = plan(2, [point("d", 2)], {"a": payload("a", 2, order=3)}, stamps=["b"], deletes=["c"])
        await place.index.apply(place.name, second)
        before = await contents(place.index, place.name)
        assert set(before) == {chunk_id(name) for name in "abd"}
        await place.index.apply(place.name, second)
        same(before, await contents(place.index, place.name))

    async def test_an_older_plan_leaves_newer_points_alone(self, place: Place) -> None:
        await place.index.apply(place.name, plan(5, [point(name, 5) for name in "abcd"]))
        before = await contents(place.index, place.name)
        late = plan(4, [point("a", 4, vector(1))], {"b": payload("b", 4, order=9)}, stamps=["c"], deletes=["d"])
        await place.index.apply(place.name, late)
        same(before, await contents(place.index, place.name))

    async def test_an_equal_revision_repairs(self, place: Place) -> None:
        await place.index.apply(place.name, plan(3, [point("a", 3, vector(1), note="damaged"), point("b", 3, note="damaged")]))
        await place.index.apply(place.name, plan(3, [point("a", 3, vector(0, 1))], {"b": payload("b", 3)}))
        found = await contents(place.index, place.name)
        assert "note" not in found[chunk_id("a")].payload | found[chunk_id("b")].payload
        np.testing.assert_allclose(found[chunk_id("a")].vector, vector(0, 1))

    async def test_stamps_raise_the_revision_alone(self, place: Place) -> None:
        await place.index.apply(place.name, plan(1, [point("a", 1, note="kept", order=3)]))
        await place.index.apply(place.name, plan(2, [point("b", 2)], stamps=["a"]))
        stored = (await contents(place.index, place.name))[chunk_id("a")]
        assert dict(stored.payload) == payload("a", 2, order=3, note="kept")

    async def test_the_largest_revisions_are_told_apart(self, place: Place) -> None:
        last = 2**53 - 1
        await place.index.apply(place.name, plan(last, [point("a", last, note="newest")]))
        await place.index.apply(place.name, plan(last - 1, [point("a", last - 1, note="late")], deletes=[]))
        assert (await contents(place.index, place.name))[chunk_id("a")].payload["note"] == "newest"


class TestRefusals:
    @pytest.mark.parametrize(
        ("bad", "family"),
        [
            pytest.param(point("bad", 1, vector(float("nan"))), PoisonRecord, id="nan"),
            pytest.param(point("bad", 1, vector(float("inf"))), PoisonRecord, id="infinite"),
            pytest.param(point("bad", 1, vector(0)), PoisonRecord, id="zero"),
            pytest.param(point("bad", 1, vector(1e30)), PoisonRecord, id="length-overflows-float32"),
            pytest.param(point("bad", 1, np.array([1e39, 0, 0, 0])), PoisonRecord, id="overflows-float32"),
            pytest.param(point("bad", 1, np.ones(3, dtype=np.float32)), InvariantBroken, id="too-short"),
            pytest.param(point("bad", 1, np.ones(0, dtype=np.float32)), InvariantBroken, id="empty"),
            pytest.param(point("bad", 1, np.ones((1, DIMENSIONS), dtype=np.float32)), InvariantBroken, id="matrix"),
            pytest.param(point("bad", 1, text="\ud800"), PoisonRecord, id="half-a-surrogate-pair"),
            pytest.param(point("bad", 1, score=float("nan")), PoisonRecord, id="nan-in-the-payload"),
            pytest.param(point("bad", 1, text="x" * (31 << 20)), PoisonRecord, id="larger-than-any-request"),
            pytest.param(point("bad", 1, tenant="rival"), InvariantBroken, id="another-tenant"),
            pytest.param(point("bad", 1, document="d2"), InvariantBroken, id="another-document"),
            pytest.param(point("bad", 2), InvariantBroken, id="another-revision"),
            pytest.param(point("bad", 1, order=2**53), InvariantBroken, id="order-key-too-large"),
        ],
    )
    async def test_one_bad_point_stops_the_whole_plan_before_anything_is_sent(
        self, place: Place, bad: NewPoint, family: type[Exception]
    ) -> None:
        await place.index.apply(place.name, plan(0, [point("old", 0)]))
        with pytest.raises(family) as refused:
            await place.index.apply(place.name, plan(1, [point("good", 1), bad], deletes=["old"]))
        assert chunk_id("bad") in str(refused.value)
        assert await texts(place) == ["old"]

    async def test_a_plan_that_writes_and_deletes_one_chunk_is_refused(self, place: Place) -> None:
        with pytest.raises(InvariantBroken):
            await place.index.apply(place.name, plan(1, [point("a", 1)], deletes=["a"]))


class TestSearch:
    async def test_returns_the_nearest_first_and_of_the_tenant_only(self, place: Place) -> None:
        mine = [point("far", 1, vector(0, 1)), point("near", 1, vector(1)), point("middle", 1, vector(1, 1))]
        await place.index.apply(place.name, plan(1, mine))
        await place.index.apply(place.name, plan(1, [point("theirs", 1, vector(1), tenant="rival")], tenant="rival"))
        hits = await place.index.search(place.name, query(vector(1), limit=2))
        assert [hit.chunk_id for hit in hits] == [chunk_id("near"), chunk_id("middle")]
        assert hits[0].score == pytest.approx(1.0, abs=1e-5)
        assert await place.index.search(place.name, query(vector(1), tenant_id="")) == []
        assert await place.index.search(place.name, query(vector(1), tenant_id="nobody")) == []

    async def test_finds_the_few_of_one_tenant_among_many_of_another(self, place: Place) -> None:
        crowd = [point(f"n{number}", 1, vector(1, number / 1000), tenant="rival") for number in range(700)]
        await place.index.apply(place.name, plan(1, crowd, tenant="rival"))
        await place.index.apply(place.name, plan(1, [point("mine", 1, vector(-1, 0.5))]))
        assert [hit.chunk_id for hit in await place.index.search(place.name, query(vector(1)))] == [chunk_id("mine")]

    async def test_shows_a_chunk_only_to_its_groups(self, place: Place) -> None:
        acls: dict[str, list[str] | None] = {"open": None, "staff": ["staff"], "board": ["board", "audit"], "nobody": []}
        points = [point(name, 1, vector(1), acl=acl) for name, acl in acls.items()]
        await place.index.apply(place.name, plan(1, points))

        async def seen(groups: tuple[str, ...] | None) -> set[str]:
            hits = await place.index.search(place.name, query(vector(1), groups=groups, limit=10))
            return {name for name in acls if chunk_id(name) in {hit.chunk_id for hit in hits}}

        assert await seen(None) == set(acls)
        assert await seen(()) == {"open"}
        assert await seen(("staff", "guests")) == {"open", "staff"}
        assert await seen(("audit",)) == {"open", "board"}

    async def test_leaves_out_parents_and_other_languages(self, place: Place) -> None:
        points = [
            point("parent", 1, vector(1), role="parent"),
            point("bare", 1, None, role="parent"),
            point("en", 1, vector(1)),
            point("zh", 1, vector(1), language="zh"),
        ]
        await place.index.apply(place.name, plan(1, points))
        hits = await place.index.search(place.name, query(vector(1), languages=("zh", "ja")))
        assert [hit.chunk_id for hit in hits] == [chunk_id("zh")]
        assert {hit.chunk_id for hit in await place.index.search(place.name, query(vector(1)))} == {chunk_id("en"), chunk_id("zh")}

    async def test_never_mixes_two_generations_of_a_document(self, place: Place) -> None:
        await place.index.apply(place.name, plan(1, [point(f"old{number}", 1, vector(1)) for number in range(5)]))
        await place.index.apply(place.name, plan(9, [point("x", 9, vector(1, 0.1), document="d2")], document="d2"))
        await place.index.apply(place.name, plan(2, [point(f"new{number}", 2, vector(1, 0.5)) for number in range(2)]))
        hits = await place.index.search(place.name, query(vector(1), limit=10))
        assert {(hit.payload["document_id"], hit.payload["revision"]) for hit in hits} == {("d1", 2), ("d2", 9)}
        assert len(hits) == 3

    async def test_looks_on_where_hidden_generations_or_light_overlaps_fill_the_first_page(self, place: Place) -> None:
        old = [point(f"old{number}", 1, vector(1, number / 1000)) for number in range(60)]
        await place.index.apply(place.name, plan(1, old))
        await place.index.apply(place.name, plan(2, [point("new", 2, vector(1))]))
        light = {"type": "CHAPTER_TAIL", "weight": 0.5}
        tails = [
            point(f"tail{number}", 1, vector(1, number / 1000), document="d2", role="context", overlap=light)
            for number in range(60)
        ]
        bodies = [point(f"body{number}", 1, vector(1, 1 + number / 10), document="d2") for number in range(3)]
        await place.index.apply(place.name, plan(1, tails + bodies, document="d2"))
        hits = await place.index.search(place.name, query(vector(1), limit=3))
        assert [hit.chunk_id for hit in hits] == [chunk_id(name) for name in ("new", "body0", "body1")]

    async def test_scales_a_declared_overlap_by_its_weight(self, place: Place) -> None:
        overlap = {"type": "CHAPTER_TAIL", "weight": 0.5}
        points = [
            point("body", 1, vector(1, 1)),
            point("tail", 1, vector(1), role="context", overlap=overlap),
            point("lead", 1, vector(1, 0.5), overlap=overlap),
        ]
        await place.index.apply(place.name, plan(1, points))
        hits = await place.index.search(place.name, query(vector(1)))
        assert [hit.chunk_id for hit in hits] == [chunk_id("lead"), chunk_id("body"), chunk_id("tail")]
        assert hits[-1].score == pytest.approx(0.5, abs=1e-5)

    async def test_with_a_vector_of_another_model_is_refused(self, place: Place) -> None:
        await place.index.apply(place.name, plan(1, [point("a", 1)]))
        with pytest.raises(NotPrepared):
            await place.index.search(place.name, query(np.ones(3, dtype=np.float32)))


class TestAroundAHit:
    async def test_neighbours_and_number_follow_the_order_keys(self, place: Place) -> None:
        points = [point(name, 2, order=order) for name, order in zip("abcde", (50, 10, 40, 20, 30), strict=True)]
        points.append(point("parent", 2, None, order=5, role="parent"))
        await place.index.apply(place.name, plan(1, [point("stale", 1, order=25)]))
        await place.index.apply(place.name, plan(2, points))
        hit = payload("e", 2, order=30)
        around = await neighbours(place.index, place.name, hit, 1)
        assert (place.names(*around.before), place.names(*around.after)) == (["d"], ["c"])
        around = await neighbours(place.index, place.name, hit, 9)
        assert (place.names(*around.before), place.names(*around.after)) == (["b", "d"], ["c", "a"])
        around = await neighbours(place.index, place.name, hit, 0)
        assert around.before == around.after == ()
        assert await ordinal(place.index, place.name, hit) == 3
