"""Laws of the index for any history of plans, also late and repeated ones: all kinds agree, and requests keep their bounds."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import Any

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st
from qdrant_client import models

from streams.index.memory import MemoryIndex
from streams.index.points import checked, operations_of, requests_of, wire
from streams.index.qdrant import open_index
from streams.index.qdrant_local import LocalStore
from streams.ports import IndexPlan, StoredPoint, VectorIndex
from streams.settings import QdrantSettings
from tests.contracts.index_values import SPEC, contents, payload, plan, point, query, same, vector_of

NAMES = [f"n{number}" for number in range(8)]


@st.composite
def plans(draw: st.DrawFn) -> IndexPlan:
    """Return a plan of one of four documents; each document has chunks of its own, as ids include the document."""
    tenant = draw(st.sampled_from(["acme", "rival"]))
    document = draw(st.sampled_from(["d1", "d2"]))
    revision = draw(st.integers(1, 6))
    fields = {"tenant": tenant, "document": document}
    shares = draw(st.lists(st.sampled_from(["upsert", "payload", "stamp", "delete", "none"]), min_size=8, max_size=8))
    chosen = {kind: [f"{tenant}{document}{n}" for n, share in zip(NAMES, shares, strict=True) if share == kind] for kind in shares}
    orders = draw(st.lists(st.integers(0, 99), min_size=8, max_size=8))
    order = {f"{tenant}{document}{name}": key for name, key in zip(NAMES, orders, strict=True)}
    bare = draw(st.booleans())
    upserts = [
        point(name, revision, None if bare else vector_of(name), order=order[name], **fields) for name in chosen.get("upsert", [])
    ]
    payloads = {name: payload(name, revision, order=order[name], note="changed", **fields) for name in chosen.get("payload", [])}
    return plan(revision, upserts, payloads, chosen.get("stamp", []), chosen.get("delete", []), **fields)


@given(st.lists(plans(), max_size=12), st.lists(st.integers(0, 2), min_size=12, max_size=12))
@settings(max_examples=60, deadline=None)
def test_memory_and_local_mode_agree_after_any_history(history: list[IndexPlan], ages: list[int]) -> None:
    """`ages`: how many plans ago what a plan has seen was read; 0: it has seen nothing."""

    async def check() -> None:
        left, right = MemoryIndex(), open_index(QdrantSettings())
        pair: list[VectorIndex] = [left, right]
        for index in pair:
            await index.ensure_collection("kb", SPEC)
            read = [_payloads(await contents(index, "kb"))]
            for each, age in zip(history, ages, strict=False):
                await index.apply("kb", replace(each, seen=read[-min(age, len(read))] if age else {}))
                read.append(_payloads(await contents(index, "kb")))
        same(await contents(left, "kb"), await contents(right, "kb"))
        for tenant in ("acme", "rival"):
            for document in ("d1", "d2"):
                assert await left.document_points("kb", tenant, document) == await right.document_points("kb", tenant, document)
            at = query(vector_of("anything"), tenant_id=tenant, limit=4)
            ours, theirs = await left.search("kb", at), await right.search("kb", at)
            assert [hit.chunk_id for hit in ours] == [hit.chunk_id for hit in theirs]
            np.testing.assert_allclose([hit.score for hit in ours], [hit.score for hit in theirs], atol=1e-5)
        await _map_agrees_with_a_full_walk(right.store)  # type: ignore[arg-type]
        await right.close()

    asyncio.run(check())


def _payloads(points: Mapping[str, StoredPoint]) -> dict[str, Mapping[str, Any]]:
    return {chunk_id: dict(point.payload) for chunk_id, point in points.items()}


@given(plans(), plans())
@settings(max_examples=100, deadline=None)
def test_a_plan_that_has_seen_what_is_there_ends_where_one_that_has_not_ends(first: IndexPlan, second: IndexPlan) -> None:
    async def check() -> None:
        second_at = replace(second, revision=first.revision + 1, upserts=(), payloads=tuple(_raised(second, first.revision + 1)))
        ends = []
        for looks in (True, False):
            index = MemoryIndex()
            await index.ensure_collection("kb", SPEC)
            await index.apply("kb", first)
            seen = _payloads(await contents(index, "kb")) if looks else {}
            await index.apply("kb", replace(second_at, seen=seen))
            ends.append(await contents(index, "kb"))
        same(*ends)

    asyncio.run(check())


async def test_what_was_seen_does_not_let_an_older_plan_over_a_newer_point() -> None:
    for index in (MemoryIndex(), open_index(QdrantSettings())):
        await index.ensure_collection("kb", SPEC)
        await index.apply("kb", plan(7, [point("a", 7, note="seven")]))
        seen = _payloads(await contents(index, "kb"))
        await index.apply("kb", replace(plan(4, payloads={"a": payload("a", 4, note="four")}), seen=seen))
        assert [held.payload["note"] for held in (await contents(index, "kb")).values()] == ["seven"]
        await index.close()


async def test_a_patch_of_what_somebody_else_has_written_since_is_not_carried_out() -> None:
    for index in (MemoryIndex(), open_index(QdrantSettings())):
        await index.ensure_collection("kb", SPEC)
        await index.apply("kb", plan(1, [point("a", 1, note="one")]))
        seen = _payloads(await contents(index, "kb"))
        await index.apply("kb", plan(2, payloads={"a": payload("a", 2, note="two", more="of two")}))
        await index.apply("kb", replace(plan(3, payloads={"a": payload("a", 3, note="one")}), seen=seen))
        assert [held.payload["note"] for held in (await contents(index, "kb")).values()] == ["two"]
        await index.close()


def _raised(of: IndexPlan, revision: int) -> Iterator[tuple[str, Mapping[str, Any]]]:
    """Give a plan's payloads under a revision, some with a field less, a field more, a field of another type."""
    for number, (chunk_id, whole) in enumerate(of.payloads):
        changed = {**whole, "revision": revision}
        if number % 4 == 1:
            del changed["note"]
        elif number % 4 == 2:
            changed["note"] = None
        elif number % 4 == 3:
            changed["tokens"] = float(number)
        yield chunk_id, changed


async def _map_agrees_with_a_full_walk(store: LocalStore) -> None:
    for tenant in ("acme", "rival"):
        for document in ("d1", "d2"):
            must: list[models.Condition] = [
                models.FieldCondition(key=key, match=models.MatchValue(value=value))
                for key, value in (("tenant_id", tenant), ("document_id", document))
            ]
            where = models.Filter(must=must)
            known, _ = await store.scroll("kb", where, None, 100)
            walked = await store.run(lambda client, where=where: client.scroll("kb", scroll_filter=where, limit=100)[0])  # type: ignore[misc]
            assert known == walked


@given(plans(), st.lists(plans(), max_size=3))
@settings(max_examples=60, deadline=None)
def test_the_newest_revision_wins_in_any_order_where_nothing_is_deleted(newest: IndexPlan, older: list[IndexPlan]) -> None:
    """A fence can't know what is gone (a late upsert comes back): deletes are the manifest's business, so they are left out."""

    def without_deletes(each: IndexPlan, revision: int) -> IndexPlan:
        upserts = [point_at(p.chunk_id, revision, newest) for p in each.upserts]
        return IndexPlan(newest.tenant_id, newest.document_id, revision, tuple(upserts))

    def point_at(chunk: str, revision: int, of: IndexPlan):  # type: ignore[no-untyped-def]
        made = point("x", revision, tenant=of.tenant_id, document=of.document_id, note=f"revision {revision}")
        return type(made)(chunk, made.vector, {**made.payload, "chunk_id": chunk})

    async def check() -> None:
        index = open_index(QdrantSettings())
        await index.ensure_collection("kb", SPEC)
        last = without_deletes(newest, 10)
        await index.apply("kb", last)
        for number, each in enumerate(older):
            await index.apply("kb", without_deletes(each, number + 1))
        held = await contents(index, "kb")
        for written in last.upserts:
            assert held[written.chunk_id].payload["note"] == "revision 10"
        await index.close()

    asyncio.run(check())


@given(plans(), st.integers(200, 4000), st.integers(1, 5))
@settings(max_examples=200, deadline=None)
def test_requests_carry_the_whole_plan_in_order_within_their_bounds(given_plan: IndexPlan, max_bytes: int, max_points: int) -> None:
    whole = checked(given_plan, SPEC)
    requests = [operations_of(shares, whole.revision) for shares in requests_of(whole, max_bytes, max_points)]
    sent: dict[str, list[str]] = {"upsert": [], "overwrite_payload": [], "set_payload": [], "delete": []}
    for operations in requests:
        body = wire({"operations": operations})
        ids = [(kind, identity) for operation in json.loads(body)["operations"] for kind, identity in _ids(operation)]
        assert 1 <= len(ids) <= max_points
        assert len(ids) == 1 or len(body) <= max_bytes + 400
        for kind, identity in ids:
            sent[kind].append(identity)
    kinds = [kind for operations in requests for operation in operations for kind in type(operation).model_fields]
    assert kinds == sorted(kinds, key=list(sent).index)
    assert list(map(len, sent.values())) == [len(whole.upserts), len(whole.payloads), len(whole.stamps), len(whole.deletes)]


def _ids(operation: dict) -> list[tuple[str, str]]:  # type: ignore[type-arg]
    (kind, body) = next(iter(operation.items()))
    if kind == "upsert":
        return [(kind, each["id"]) for each in body["points"]]
    if kind == "delete":
        return [(kind, identity) for identity in body["points"]]
    return [(kind, identity) for identity in body["filter"]["must"][0]["has_id"]]
