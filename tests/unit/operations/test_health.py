"""Alive and ready: who is stuck is not alive, who waits for another is; ready is said when every app is."""

from __future__ import annotations

import asyncio
import threading
from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import Any

import aiohttp
import pytest

from streams import metrics
from streams.canary import DOCUMENT, MICROSECONDS, Canary, canary, newest_canary
from streams.daemon import in_daemon_thread
from streams.errors import InvariantBroken, Unavailable
from streams.index.memory import MemoryIndex
from streams.index.qdrant import open_index
from streams.ports import CollectionSpec, IndexPlan, NewPoint
from streams.probes import Probes, alive, unready
from streams.settings import QdrantSettings, Settings
from streams.vitals import STALLED_SECONDS, RebalanceSensor, Vitals


@dataclass
class App:
    """What vital signs look at of an app, as the real one has it."""

    offsets: dict[str, int | None] = field(default_factory=dict)
    in_hand: int = 0
    remaining: int = 0
    committing_since: float | None = None

    def __post_init__(self) -> None:
        self.ready, self.leaving, self.should_stop = asyncio.Event(), asyncio.Event(), False
        self.ready.set()
        self._consumer = self.consumer = SimpleNamespace(_committed_offset=self.offsets, assignment=set)
        self.tables = SimpleNamespace(_recovery=SimpleNamespace(active_remaining_total=lambda: self.remaining))

    @property
    def runners(self) -> list[Any]:
        return [SimpleNamespace(name="parser", topic="t", records_in_hand=self.in_hand)]


class Watched:
    """An app under watch, and a clock that is told."""

    def __init__(self) -> None:
        self.now, self.app = 0.0, App()
        self.vitals = Vitals(lambda: {"parser": self.app}, lambda: self.now)

    def pass_time(self, seconds: float) -> None:
        for _ in range(int(seconds)):
            self.now += 1
            self.vitals.look()

    def shown(self, name: str) -> float | None:
        return metrics.REGISTRY.get_sample_value(name, {"app": "parser"})


@pytest.fixture
async def watched() -> Watched:
    found = Watched()
    found.vitals.look()
    return found


async def test_offsets_that_stand_with_records_in_hand_are_a_stall(watched: Watched) -> None:
    watched.app.in_hand = 3
    watched.pass_time(STALLED_SECONDS)
    assert watched.shown("docdelta_commit_stall_seconds") == STALLED_SECONDS
    assert alive(watched.vitals, None) == []
    watched.pass_time(1)
    assert "offsets have not moved for 301 s" in alive(watched.vitals, None)[0]
    watched.app.offsets["tp"] = 7
    watched.pass_time(1)
    assert alive(watched.vitals, None) == []


async def test_an_idle_app_and_one_that_recovers_are_no_stall(watched: Watched) -> None:
    watched.pass_time(2 * STALLED_SECONDS)
    assert watched.shown("docdelta_commit_stall_seconds") == 0
    watched.app.in_hand = 3
    watched.app.ready.clear()
    watched.pass_time(2 * STALLED_SECONDS)
    assert watched.shown("docdelta_commit_stall_seconds") == 0
    assert watched.shown("docdelta_app_not_ready_seconds") == 2 * STALLED_SECONDS
    assert alive(watched.vitals, None) == []


async def test_who_waits_for_another_side_is_alive(watched: Watched) -> None:
    watched.app.in_hand = 3
    wait = metrics.Wait("writing points")
    wait.failed(Unavailable("away"))
    watched.pass_time(10 * STALLED_SECONDS)
    assert alive(watched.vitals, None) == []
    wait.over()
    assert alive(watched.vitals, None) != []


async def test_recovery_is_shown_until_the_app_is_ready(watched: Watched) -> None:
    watched.app.ready.clear()
    watched.app.remaining = 500
    watched.pass_time(3)
    assert watched.shown("docdelta_recovery_remaining_records") == 500
    assert watched.shown("docdelta_app_ready") == 0
    assert unready({"parser": watched.app}, None) == ["app parser is recovering its tables, or partitions are moving"]
    watched.app.ready.set()
    watched.pass_time(1)
    assert watched.shown("docdelta_recovery_remaining_records") == 0
    assert unready({"parser": watched.app}, None) == []


async def test_every_app_must_be_ready_and_the_worker_whole(watched: Watched) -> None:
    assert unready({"parser": watched.app, "b-v1": None}, None) == ["app b-v1 is not started"]
    assert unready({}, InvariantBroken("offsets were skipped")) == ["worker failed: offsets were skipped"]
    assert alive(watched.vitals, InvariantBroken("offsets were skipped")) == ["worker failed: offsets were skipped"]


def test_a_rebalance_is_counted_each_time_and_timed_once() -> None:
    sensor = RebalanceSensor("timed")
    for step in ("start", "start", "end", "end"):
        if step == "start":
            sensor.on_rebalance_start(None)
        else:
            sensor.on_rebalance_end(None, {})
    labels = {"app": "timed"}
    assert metrics.REGISTRY.get_sample_value("docdelta_rebalances_total", labels) == 2
    assert metrics.REGISTRY.get_sample_value("docdelta_rebalance_seconds_count", labels) == 1


async def test_the_pages_say_what_the_functions_say_and_a_taken_port_stops_nobody(watched: Watched) -> None:
    expected: dict[str, Any] = {"parser": None}
    probes, second = (Probes(watched.vitals, lambda: expected, lambda: None) for _ in range(2))
    assert await probes.start("127.0.0.1", 0)
    try:
        assert not await second.start("127.0.0.1", probes.port)
        async with aiohttp.ClientSession(f"http://127.0.0.1:{probes.port}") as session:
            async with session.get("/readyz") as answer:
                assert (answer.status, await answer.text()) == (503, "app parser is not started\n")
            expected["parser"] = watched.app
            async with session.get("/readyz") as answer:
                assert (answer.status, await answer.text()) == (200, "ok\n")
            async with session.get("/metrics") as answer:
                assert answer.content_type == "text/plain"
                assert "docdelta_app_ready" in await answer.text()
    finally:
        await probes.stop()


async def test_a_canary_is_read_through_the_alias_and_its_newest_generation_counts() -> None:
    spec = CollectionSpec("c", "f", "e", 2, "cosine")
    for index in (MemoryIndex(), open_index(QdrantSettings())):
        await index.ensure_collection("c", spec)
        await index.set_alias("a", "c")
        assert await newest_canary(index, "a", "probe") is None
        for name, when in (("chk_" + "1" * 64, 1_900_000_000), ("chk_" + "2" * 64, 1_900_000_060)):
            revision = canary("probe", when).revision
            assert revision == when * MICROSECONDS
            point = {"chunk_id": name, "tenant_id": "probe", "document_id": DOCUMENT, "revision": revision, "order_key": when}
            await index.apply("c", IndexPlan("probe", DOCUMENT, revision, upserts=(NewPoint(name, None, point),)))
        assert await newest_canary(index, "a", "probe") == 1_900_000_060
        assert await newest_canary(index, "a", "other") is None
        await index.close()


async def test_a_canary_grows_old_and_is_written_anew_though_the_clock_is_set_back() -> None:
    index, clock, elapsed = MemoryIndex(), [1_900_003_600.0], [50.0]
    await index.ensure_collection("c", CollectionSpec("c", "f", "e", 2, "cosine"))
    settings = Settings()
    await index.set_alias(settings.qdrant.alias, "c")
    probe = Canary(settings, "probe", index, lambda: None, lambda: clock[0], lambda: elapsed[0])

    async def stands(revision: int) -> None:
        name = "chk_" + "1" * 64
        point = {"chunk_id": name, "tenant_id": "probe", "document_id": DOCUMENT, "revision": revision, "order_key": 1}
        await index.apply("c", IndexPlan("probe", DOCUMENT, revision, upserts=(NewPoint(name, None, point),)))
        await probe.read()

    await stands(canary("probe", clock[0] - 5).revision)
    assert probe.age() == pytest.approx(5)
    clock[0] -= 3600  # an hour back
    elapsed[0] += 300
    assert probe.age() == pytest.approx(300), "it is not fresh for an hour"
    newer = probe.next()
    assert newer.revision > (probe.newest or 0) * MICROSECONDS, "else it would be stale"
    assert newer.content != canary("probe", probe.newest or 0).content, (
        "else it would settle as unchanged, and not be there to read"
    )
    await stands(newer.revision)
    assert probe.age() == pytest.approx(0)


async def test_a_blocking_call_that_hangs_holds_nobody_up() -> None:
    release = threading.Event()
    with pytest.raises(TimeoutError):
        await asyncio.wait_for(in_daemon_thread(release.wait, "hangs"), 0.01)
    release.set()
    assert await in_daemon_thread(lambda: 7, "answers") == 7
    with pytest.raises(ZeroDivisionError):
        await in_daemon_thread(lambda: 1 // 0, "raises")
