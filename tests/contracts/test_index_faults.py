"""What happens when the index fails under a plan: every fault, at every request, ends after retries where a clean run ends."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass

import pytest
from aiohttp import web
from qdrant_client import models

from streams.errors import InvariantBroken, NotAuthorised, NotPrepared, PoisonRecord, Unavailable
from streams.index.memory import MemoryIndex
from streams.index.qdrant import QdrantIndex, open_index
from streams.index.qdrant_remote import RemoteStore
from streams.ports import IndexPlan, StoredPoint, VectorIndex
from streams.settings import QdrantSettings
from tests.contracts.index_values import SPEC, chunk_id, contents, payload, plan, point, query, same, vector
from tests.contracts.qdrant_shim import WRITES, Fault, Shim, disk_full, rate_limited, running_shim

NAME = "kb"
FIRST = plan(1, [point(f"old{number}", 1, order=number) for number in range(8)])
SECOND = plan(
    2,
    [point(f"new{number}", 2, order=100 + number) for number in range(5)],
    {f"old{number}": payload(f"old{number}", 2, order=number, note="changed") for number in range(3)},
    stamps=["old3", "old4"],
    deletes=["old5", "old6", "old7"],
)
ADDED = [chunk_id(f"new{number}") for number in range(5)]
REMOVED = [chunk_id(f"old{number}") for number in range(5, 8)]

EFFECTS: dict[str, Callable[[int], Fault]] = {
    "answered 429": lambda skip: rate_limited(7, skip=skip),
    "answered 429 without a time": lambda skip: Fault(status=429, skip=skip),
    "answered 500": lambda skip: Fault(status=500, skip=skip),
    "answered 503": lambda skip: Fault(status=503, skip=skip),
    "answered 408": lambda skip: Fault(status=408, skip=skip),
    "no disk space": lambda skip: disk_full(skip=skip),
    "cut before": lambda skip: Fault(cut_before=True, skip=skip),
    "cut after": lambda skip: Fault(cut_after=True, skip=skip),
    "answer garbled": lambda skip: Fault(garbled=True, skip=skip),
    "wait timed out": lambda skip: Fault(said="wait_timeout", skip=skip),
    "only acknowledged": lambda skip: Fault(said="acknowledged", skip=skip),
    **{f"killed after {done}": lambda skip, done=done: Fault(killed_after=done, skip=skip) for done in range(5)},  # type: ignore[misc]
}


@dataclass
class Bench:
    """A client on a shim, with its pauses counted instead of waited."""

    shim: Shim
    index: QdrantIndex
    pauses: list[float]


@pytest.fixture
async def bench() -> AsyncIterator[Bench]:
    async with running_shim() as shim:
        pauses: list[float] = []

        async def note(seconds: float) -> None:
            pauses.append(seconds)

        store = RemoteStore(QdrantSettings(url=shim.url, timeout_seconds=1))
        index = QdrantIndex(store, pause=note, request_points=4)
        await index.ensure_collection(NAME, SPEC)
        await index.apply(NAME, FIRST)
        shim.seen.clear()
        yield Bench(shim, index, pauses)
        await index.close()


async def oracle(*plans: IndexPlan) -> dict[str, StoredPoint]:
    """Return what an index that never failed holds after these plans."""
    index = MemoryIndex()
    await index.ensure_collection(NAME, SPEC)
    for each in plans:
        await index.apply(NAME, each)
    return await contents(index, NAME)


async def never_deleted_too_early(index: VectorIndex) -> None:
    """Assert that no point of the old generation is gone unless everything new is there."""
    held = await contents(index, NAME)
    if any(gone not in held for gone in REMOVED):
        assert all(new in held for new in ADDED)


@pytest.mark.parametrize("effect", EFFECTS)
async def test_a_plan_hit_by_a_fault_at_any_request_ends_where_a_clean_run_ends(bench: Bench, effect: str) -> None:
    wanted = await oracle(FIRST, SECOND)
    await bench.index.apply(NAME, SECOND)
    requests = len(bench.shim.writes)
    assert requests == 4
    for number in range(requests):
        await bench.shim.index.store.drop(NAME)
        await bench.index.ensure_collection(NAME, SPEC)
        await bench.index.apply(NAME, FIRST)
        bench.shim.faults.append(EFFECTS[effect](number))
        with pytest.raises(Unavailable) as away:
            await bench.index.apply(NAME, SECOND)
        assert not bench.shim.faults
        assert away.value.facts["collection"] == NAME
        assert away.value.retry_after == (7 if effect == "answered 429" else None)
        assert away.value.facts.get("disk_full", False) is (effect == "no disk space")
        await never_deleted_too_early(bench.shim.index)
        await bench.index.apply(NAME, SECOND)
        same(wanted, await contents(bench.index, NAME))


async def test_any_run_of_faults_keeps_the_order_and_ends_right(bench: Bench) -> None:
    wanted = await oracle(FIRST, SECOND)
    bench.shim.faults += [effect(0) for effect in EFFECTS.values()] + [effect(2) for effect in EFFECTS.values()]
    for _ in range(2 * len(EFFECTS) + 1):
        try:
            await bench.index.apply(NAME, SECOND)
            break
        except Unavailable:
            await never_deleted_too_early(bench.shim.index)
    assert not bench.shim.faults
    same(wanted, await contents(bench.index, NAME))


async def test_nothing_is_sent_after_a_request_that_was_not_confirmed(bench: Bench) -> None:
    bench.shim.faults.append(Fault(said="wait_timeout"))
    with pytest.raises(Unavailable, match="wait_timeout"):
        await bench.index.apply(NAME, SECOND)
    assert len(bench.shim.writes) == 1


async def test_a_request_that_hangs_is_given_up_and_nothing_of_it_is_done(bench: Bench) -> None:
    before = await contents(bench.index, NAME)
    bench.shim.faults.append(Fault(hang=True))
    with pytest.raises(Unavailable, match="Timeout"):
        await bench.index.apply(NAME, SECOND)
    same(before, await contents(bench.index, NAME))


async def test_deletes_come_last_and_requests_are_bounded(bench: Bench) -> None:
    await bench.index.apply(NAME, SECOND)
    kinds = [next(iter(operation)) for operations in bench.shim.writes for operation in operations]
    order = ["upsert", "overwrite_payload", "set_payload", "delete"]
    assert kinds == sorted(kinds, key=order.index)
    assert set(kinds) == set(order)
    for operations in bench.shim.writes:
        assert sum(_points(operation) for operation in operations) <= 4


def _points(operation: dict[str, dict[str, object]]) -> int:
    body = next(iter(operation.values()))
    if "points" in body:
        return len(body["points"])  # type: ignore[arg-type]
    return len(body["filter"]["must"][0]["has_id"])  # type: ignore[index]


async def test_a_plan_without_deletes_takes_one_call(bench: Bench) -> None:
    await bench.index.apply(NAME, plan(2, [point("a", 2)], stamps=["old1"]))
    assert len(bench.shim.seen) == 1


async def test_writes_wait_and_are_strongly_ordered(bench: Bench) -> None:
    await bench.index.apply(NAME, SECOND)
    assert [asked for place, asked in bench.shim.asked if WRITES in place] == [{"wait": "true", "ordering": "strong"}] * 6


async def test_readers_find_the_document_at_every_moment_of_an_update_and_one_generation_only(bench: Bench) -> None:
    seen: list[int] = []
    done = asyncio.Event()

    async def read() -> None:
        while not done.is_set():
            hits = await bench.index.search(NAME, query(vector(1, 1, 1, 1), limit=20))
            revisions = {hit.payload["revision"] for hit in hits}
            assert len(revisions) == 1, revisions
            seen.extend(revisions)

    reader = asyncio.create_task(read())
    for revision in range(2, 22):
        names = [f"r{revision}-{number}" for number in range(6)]
        last = [f"r{revision - 1}-{number}" for number in range(6)] if revision > 2 else [f"old{number}" for number in range(8)]
        await bench.index.apply(NAME, plan(revision, [point(name, revision) for name in names], deletes=last))
    done.set()
    await reader
    assert seen == sorted(seen)
    assert len(seen) > 10


class TestReads:
    async def test_are_tried_again_with_growing_pauses(self, bench: Bench) -> None:
        bench.shim.faults += [Fault(match="/points/scroll", status=500), Fault(match="/points/scroll", cut_before=True)]
        assert len(await bench.index.document_points(NAME, "acme", "d1")) == 8
        assert bench.pauses == [0.1, 0.2]

    async def test_give_up_after_three_times(self, bench: Bench) -> None:
        bench.shim.faults += [Fault(match="/points/scroll", status=502) for _ in range(3)]
        with pytest.raises(Unavailable):
            await bench.index.document_points(NAME, "acme", "d1")
        assert sum("/scroll" in place for place, _ in bench.shim.seen) == 3

    async def test_leave_a_named_waiting_time_to_the_caller(self, bench: Bench) -> None:
        bench.shim.faults.append(rate_limited(30, match="/points/count"))
        with pytest.raises(Unavailable) as limited:
            await bench.index.count(NAME)
        assert limited.value.retry_after == 30
        assert bench.pauses == []


class TestAnswers:
    @pytest.mark.parametrize(
        ("status", "words", "writing", "reading"),
        [
            (400, "Wrong input: broken payload", PoisonRecord, NotPrepared),
            (422, "Validation error in JSON body", PoisonRecord, NotPrepared),
            (400, "Wrong input: Vector dimension error: expected dim: 8, got 4", InvariantBroken, NotPrepared),
            (400, "Wrong input: Not existing vector name error: dense", InvariantBroken, NotPrepared),
            (400, 'Bad request: Index required but not found for "role"', InvariantBroken, NotPrepared),
            (401, "Must provide an API key", NotAuthorised, NotAuthorised),
            (403, "Forbidden: Global access is required", NotAuthorised, NotAuthorised),
            (404, "Not found: Collection `kb` doesn't exist!", InvariantBroken, NotPrepared),
            (404, "page not found", InvariantBroken, InvariantBroken),
            (405, "method not allowed", InvariantBroken, InvariantBroken),
        ],
    )
    async def test_are_told_apart_by_who_must_act(
        self, bench: Bench, status: int, words: str, writing: type[Exception], reading: type[Exception]
    ) -> None:
        bench.shim.faults += [Fault(status=status, words=words), Fault(match="/points/query", status=status, words=words)]
        with pytest.raises(writing) as refused:
            await bench.index.apply(NAME, SECOND)
        assert type(refused.value) is writing
        assert refused.value.facts["document_id"] == "d1"  # type: ignore[attr-defined]
        with pytest.raises(reading) as refused:
            await bench.index.search(NAME, query(vector(1)))
        assert type(refused.value) is reading

    async def test_of_a_server_that_is_away_are_unavailable(self) -> None:
        async with running_shim() as shim:
            url = shim.url
        index = QdrantIndex(RemoteStore(QdrantSettings(url=url)), pause=lambda _: asyncio.sleep(0))
        for call in (index.count(NAME), index.alias_target("x"), index.ensure_collection(NAME, SPEC), index.apply(NAME, FIRST)):
            with pytest.raises(Unavailable):
                await call
        await index.close()


class TestCollections:
    async def test_have_every_index_that_filters_need_before_the_first_point(self, bench: Bench) -> None:
        await bench.index.ensure_collection("new", SPEC)
        made = [place for place, _ in bench.shim.seen if place.startswith("PUT")]
        assert made == ["PUT /collections/new", *["PUT /collections/new/index"] * 9]
        bench.shim.seen.clear()
        await bench.index.ensure_collection("new", SPEC)
        assert not [place for place, _ in bench.shim.seen if place.startswith("PUT")]

    @pytest.mark.parametrize("skip", range(9))
    async def test_left_half_made_are_completed(self, bench: Bench, skip: int) -> None:
        bench.shim.faults.append(Fault(match="/collections/new/index", cut_before=True, skip=skip))
        with pytest.raises(Unavailable):
            await bench.index.ensure_collection("new", SPEC)
        await bench.index.ensure_collection("new", SPEC)
        found = await bench.index.store.describe("new")
        assert found is not None
        assert found.indexes is not None
        assert len(found.indexes) == 9

    async def test_made_twice_because_the_answer_was_lost_are_fine(self, bench: Bench) -> None:
        bench.shim.faults.append(Fault(match="PUT /collections/new", cut_after=True))
        with pytest.raises(Unavailable):
            await bench.index.ensure_collection("new", SPEC)
        await bench.index.ensure_collection("new", SPEC)

    async def test_of_others_are_left_alone(self, bench: Bench) -> None:
        await bench.shim.index.store.create("theirs", 4, models.Distance.COSINE, {})
        for call in (bench.index.ensure_collection("theirs", SPEC), bench.index.collection_spec("theirs")):
            with pytest.raises(InvariantBroken, match="not made by docdelta"):
                await call
        with pytest.raises(InvariantBroken):
            await bench.index.apply("theirs", FIRST)

    async def test_whose_alias_is_not_set_though_the_server_said_so_are_reported(self, bench: Bench) -> None:
        bench.shim.faults.append(Fault(match="POST /collections/aliases", pretend=True))
        with pytest.raises(Unavailable):
            await bench.index.set_alias("served", NAME)


@pytest.mark.parametrize(("status", "words"), [(404, "<html>no such host</html>"), (302, ""), (421, "misdirected")])
async def test_a_proxy_that_has_lost_its_backend_is_an_outage(status: int, words: str) -> None:
    async def answer(request: web.Request) -> web.Response:
        return web.Response(status=status, text=words)

    application = web.Application()
    application.router.add_route("*", "/{any:.*}", answer)
    runner = web.AppRunner(application)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0).start()
    index = open_index(QdrantSettings(url=f"http://127.0.0.1:{runner.addresses[0][1]}"))
    try:
        with pytest.raises(Unavailable, match="DOCDELTA_QDRANT__URL"):
            await index.alias_target("docdelta")
        with pytest.raises(Unavailable, match="DOCDELTA_QDRANT__URL"):
            await index.apply(NAME, FIRST)
    finally:
        await index.close()
        await runner.cleanup()
