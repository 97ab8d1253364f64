"""Apps in this process on a real broker: started and stopped at run time, what they refuse, and how they say that they are down."""

from __future__ import annotations

import asyncio
import contextlib
import socket
import threading
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from itertools import count
from pathlib import Path
from typing import Any

import pytest
from aiokafka.consumer import fetcher
from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient, NewTopic

from streams.embedded.tansu import TansuBroker
from streams.errors import InvariantBroken, PoisonRecord
from streams.faustio.app import SafeApp, make_app, raw_table, raw_topic
from streams.faustio.keyed_runner import KeyedRunner
from streams.faustio.lifecycle import start_app, stop_app
from streams.faustio.log import FaustLog
from streams.faustio.readiness import assigned_partitions, is_ready
from streams.faustio.recovery import SafeRecovery
from streams.faustio.table import AckedTable, FaustTable
from streams.ports import InRecord
from streams.settings import KafkaSettings, Settings, WorkerSettings
from streams.topics import MAX_RECORD_BYTES
from tests.agents.chain_history import LEAST, QUICK
from tests.support.patience import PATIENCE

Handle = Callable[[InRecord], Awaitable[None]]
MEBIBYTE = 1 << 20
ROWS = 400


def settings_for(kafka: KafkaSettings, state: str = "memory") -> Settings:
    session = QUICK if kafka.single_record_batches else LEAST
    quick = kafka.model_copy(update={**session, "partitions": 2, "rebalance_timeout_seconds": 10.0})
    return Settings(kafka=quick, worker=WorkerSettings.model_validate({"state": state}))


def create_topics(kafka: KafkaSettings, *names: str, max_bytes: int = MAX_RECORD_BYTES) -> None:
    admin = AdminClient({"bootstrap.servers": kafka.bootstrap_servers})
    topics = [NewTopic(name, 2, 1, config={"max.message.bytes": str(max_bytes)}) for name in names]
    for made in admin.create_topics(topics).values():
        made.result(20)


def produce(kafka: KafkaSettings, topic: str, *keys: bytes, value: bytes = b"v") -> None:
    producer = Producer(
        {"bootstrap.servers": kafka.bootstrap_servers, "partitioner": "murmur2_random", "message.max.bytes": 2 * MAX_RECORD_BYTES}
    )
    for key in keys:
        producer.produce(topic, value, key=key)
        assert producer.flush(20) == 0


@asynccontextmanager
async def running(app: SafeApp) -> AsyncIterator[SafeApp]:
    """The app, started; it must not crash and must stop cleanly."""
    crashes: list[BaseException] = []
    assert await start_app(app, lambda _, reason: crashes.append(reason), ready_seconds=PATIENCE)
    try:
        yield app
    finally:
        clean = await stop_app(app, 30)
    assert (clean, crashes) == (True, [])


def app_with(settings: Settings, name: str, datadir: Path, handle: Handle) -> tuple[SafeApp, FaustTable]:
    app = make_app(name, settings, datadir)
    table = FaustTable(raw_table(app, "t", 2, settings.topics.changelog(name, "t")))
    KeyedRunner(app, "only", handle).attach(raw_topic(app, f"{name}.in", 2))
    return app, table


async def comes_true(claim: Callable[[], bool]) -> None:
    async with asyncio.timeout(PATIENCE):
        for _ in count():
            if claim():
                return
            await asyncio.sleep(0.02)


def prepare(kafka: KafkaSettings, name: str) -> None:
    create_topics(kafka, f"{name}.in", f"{name}.out", f"{name}-t-changelog")


async def test_apps_start_and_stop_beside_each_other(any_broker: KafkaSettings, tmp_path: Path, fresh: str) -> None:
    settings = settings_for(any_broker)
    came: dict[str, asyncio.Queue[bytes | None]] = {name: asyncio.Queue() for name in (f"{fresh}-a", f"{fresh}-b")}
    apps = {}
    for name, queue in came.items():
        prepare(any_broker, name)

        async def handle(record: InRecord, queue: asyncio.Queue[bytes | None] = queue) -> None:
            queue.put_nowait(record.key)

        apps[name], _ = app_with(settings, name, tmp_path / name, handle)
    first, second = apps
    async with running(apps[first]):
        async with running(apps[second]):
            produce(any_broker, f"{first}.in", b"1")
            produce(any_broker, f"{second}.in", b"2")
            assert await asyncio.wait_for(came[first].get(), PATIENCE) == b"1"
            assert await asyncio.wait_for(came[second].get(), PATIENCE) == b"2"
            assert is_ready(apps[first])
            assert assigned_partitions(apps[first]) == {f"{first}-t-changelog": (0, 1), f"{first}.in": (0, 1)}
        assert not is_ready(apps[second])
        produce(any_broker, f"{first}.in", b"3")
        assert await asyncio.wait_for(came[first].get(), PATIENCE) == b"3"


async def test_what_a_handler_writes_is_confirmed_or_refused(any_broker: KafkaSettings, tmp_path: Path, fresh: str) -> None:
    prepare(any_broker, fresh)
    small = f"{fresh}.small"
    create_topics(any_broker, small, max_bytes=10_000)
    said: asyncio.Queue[object] = asyncio.Queue()
    big = bytes(10 * MEBIBYTE)

    async def attempt(write: Awaitable[None]) -> None:
        try:
            await write
        except PoisonRecord as refused:
            said.put_nowait(refused)
        else:
            said.put_nowait("confirmed")

    async def handle(record: InRecord) -> None:
        key = record.key or b""
        assert table.get(key) is None
        await attempt(log.publish(f"{fresh}.out", key, big))
        await attempt(log.publish(f"{fresh}.out", key, bytes(MAX_RECORD_BYTES)))
        await attempt(table.put(key, big))
        said.put_nowait(len(table.get(key) or b""))
        await attempt(table.put(key, bytes(MAX_RECORD_BYTES)))
        if not any_broker.single_record_batches:  # Tansu keeps limits and does not enforce them
            await attempt(log.publish(small, key, bytes(20_000)))
        said.put_nowait(len(record.value or b""))

    app, table = app_with(settings_for(any_broker), fresh, tmp_path, handle)
    log = FaustLog(app)
    async with running(app):
        produce(any_broker, f"{fresh}.in", b"k", value=bytes(12 * MEBIBYTE))
        seen = [await asyncio.wait_for(said.get(), PATIENCE) for _ in range(6 if any_broker.single_record_batches else 7)]
        written, too_big, stored, read_back, table_too_big, *rest = seen
        assert (written, stored, read_back, rest[-1]) == ("confirmed", "confirmed", 10 * MEBIBYTE, 12 * MEBIBYTE)
        for refused, topic in [(too_big, f"{fresh}.out"), (table_too_big, f"{fresh}-t-changelog")]:
            assert isinstance(refused, PoisonRecord)
            assert refused.facts["topic"] == topic
            assert (refused.facts["bytes"], refused.facts["limit"]) == (MAX_RECORD_BYTES + 1 + 512, MAX_RECORD_BYTES)
        assert all(isinstance(refused, PoisonRecord) for refused in rest[:-1])


async def test_faust_and_confluent_agree_on_partitions(any_broker: KafkaSettings, tmp_path: Path, fresh: str) -> None:
    prepare(any_broker, fresh)
    keys = [f"tenant/{n}".encode() for n in range(12)]
    came: asyncio.Queue[tuple[int, int]] = asyncio.Queue()

    async def forward(record: InRecord) -> None:
        await log.publish(f"{fresh}.out", record.key or b"", str(record.partition).encode())

    async def compare(record: InRecord) -> None:
        came.put_nowait((int(record.value or b"-1"), record.partition))

    app, _ = app_with(settings_for(any_broker), fresh, tmp_path, forward)
    KeyedRunner(app, "compare", compare).attach(raw_topic(app, f"{fresh}.out", 2))
    log = FaustLog(app)
    async with running(app):
        produce(any_broker, f"{fresh}.in", *keys)
        pairs = [await asyncio.wait_for(came.get(), PATIENCE) for _ in keys]
    assert {by_confluent - by_faust for by_confluent, by_faust in pairs} == {0}
    assert {by_faust for _, by_faust in pairs} == {0, 1}


async def test_a_broker_that_is_not_there_is_told_once_and_not_waited_for(tmp_path: Path, fresh: str) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        kafka = KafkaSettings(bootstrap_servers=f"127.0.0.1:{taken.getsockname()[1]}")
        crashes: list[BaseException] = []

        async def handle(_: InRecord) -> None: ...

        app, _ = app_with(settings_for(kafka), fresh, tmp_path, handle)
        assert not await start_app(app, lambda _, reason: crashes.append(reason), ready_seconds=30)
        assert not await stop_app(app, 5)
        assert [type(crash).__name__ for crash in crashes] == ["KafkaConnectionError"]


async def test_table_state_of_another_broker_is_refused_with_what_to_do(tmp_path: Path, fresh: str) -> None:
    async def handle(record: InRecord) -> None:
        await tables[-1].put(record.key or b"", b"x")
        handled.set()

    tables: list[FaustTable] = []
    with TansuBroker(tmp_path / "one") as broker:
        kafka = KafkaSettings(bootstrap_servers=broker.bootstrap_servers, single_record_batches=True)
        prepare(kafka, fresh)
        handled = asyncio.Event()
        app, table = app_with(settings_for(kafka, "rocksdb"), fresh, tmp_path / "state", handle)
        tables.append(table)
        async with running(app):
            produce(kafka, f"{fresh}.in", *[b"k"] * 5)
            await asyncio.wait_for(handled.wait(), PATIENCE)
    with TansuBroker(tmp_path / "two") as broker:
        kafka = KafkaSettings(bootstrap_servers=broker.bootstrap_servers, single_record_batches=True)
        prepare(kafka, fresh)
        crashes: list[BaseException] = []
        app, _ = app_with(settings_for(kafka, "rocksdb"), fresh, tmp_path / "state", handle)
        assert not await start_app(app, lambda _, reason: crashes.append(reason), ready_seconds=PATIENCE)
        await stop_app(app, 5)
        assert isinstance(crashes[0], InvariantBroken)
        assert "delete the state folder" in str(crashes[0])


async def test_a_changelog_is_fetched_only_where_the_local_store_lacks_some_of_it(
    any_broker: KafkaSettings, tmp_path: Path, fresh: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    fetched: list[str] = []

    class Noted(fetcher.FetchResult):  # type: ignore[misc]
        def __init__(self, tp: Any, **more: Any) -> None:
            fetched.append(tp.topic)
            super().__init__(tp, **more)

    monkeypatch.setattr(fetcher, "FetchResult", Noted)
    prepare(any_broker, fresh)
    tables: list[FaustTable] = []
    found: dict[bytes | None, bytes | None] = {}
    all_handled = asyncio.Event()

    async def handle(record: InRecord) -> None:
        found[record.key] = tables[-1].get(record.key or b"")
        await tables[-1].put(record.key or b"", b"there")
        if len(found) == 3:
            all_handled.set()

    async def live(folder: str) -> set[bytes | None]:
        app, table = app_with(settings_for(any_broker, "rocksdb"), fresh, tmp_path / folder, handle)
        tables.append(table)
        found.clear()
        all_handled.clear()
        async with running(app):
            produce(any_broker, f"{fresh}.in", b"one", b"two", b"three")
            await asyncio.wait_for(all_handled.wait(), PATIENCE)
        return set(found.values())

    await live("state")
    assert await live("state") == {b"there"}
    assert set(fetched) == {f"{fresh}.in"}, "neither what it had nor what it wrote came again"
    assert await live("an empty folder") == {b"there"}
    assert set(fetched) == {f"{fresh}.in", f"{fresh}-t-changelog"}


@pytest.mark.parametrize("state", ["rocksdb", "memory"])
async def test_a_lost_store_is_rebuilt_from_its_changelog_many_rows_at_once(
    any_broker: KafkaSettings, tmp_path: Path, fresh: str, monkeypatch: pytest.MonkeyPatch, state: str
) -> None:
    taken: list[int] = []
    stock = SafeRecovery.take

    def noted(self: SafeRecovery, records: dict[Any, list[Any]]) -> dict[Any, list[Any]]:
        taken.extend(len(rows) for tp, rows in records.items() if tp.topic == changelog)
        return stock(self, records)

    monkeypatch.setattr(SafeRecovery, "take", noted)
    changelog = f"{fresh}-t-changelog"
    prepare(any_broker, fresh)
    expected: dict[bytes, bytes] = {}
    producer = Producer({"bootstrap.servers": any_broker.bootstrap_servers, "partitioner": "murmur2_random"})
    for number in range(ROWS):
        key = b"key %d" % (number % (ROWS // 2))
        expected[key] = b"row %d" % number
        producer.produce(changelog, expected[key], key=key)
    if not any_broker.single_record_batches:  # Tansu has no records without a value
        producer.produce(changelog, None, key=b"key 0")
        del expected[b"key 0"]
    assert producer.flush(PATIENCE) == 0

    async def handle(record: InRecord) -> None:
        raise AssertionError("nothing was sent")

    async def live() -> dict[bytes, bytes]:
        app, table = app_with(settings_for(any_broker, state), fresh, tmp_path, handle)
        async with running(app):
            return {key: value for number in range(2) for key, value in table.rows(number)}

    assert await live() == expected
    assert sum(taken) == ROWS + (ROWS // 2 - len(expected))
    assert len(taken) <= ROWS / 10, "rows come many at once"
    taken.clear()
    assert await live() == expected
    assert bool(taken) == (state == "memory"), "what the local store has is not read again"


async def test_the_end_of_one_recovery_is_not_taken_for_that_of_the_next(
    any_broker: KafkaSettings, tmp_path: Path, fresh: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    prepare(any_broker, fresh)
    keys = {b"key %d" % number for number in range(ROWS)}
    producer = Producer({"bootstrap.servers": any_broker.bootstrap_servers, "partitioner": "murmur2_random"})
    for key in keys:
        producer.produce(f"{fresh}-t-changelog", b"row", key=key)
    assert producer.flush(PATIENCE) == 0

    async def handle(record: InRecord) -> None:
        raise AssertionError("nothing was sent")

    def owned(app: SafeApp) -> tuple[int, ...]:
        return assigned_partitions(app).get(f"{fresh}.in", ()) if is_ready(app) else ()

    def rows(table: FaustTable, app: SafeApp) -> set[bytes]:
        return {key for number in owned(app) for key, _ in table.rows(number)}

    settings = settings_for(any_broker)
    first, table = app_with(settings, fresh, tmp_path / "first", handle)
    second, other = app_with(settings, fresh, tmp_path / "second", handle)
    recovery = first.tables.recovery
    begin = recovery._set_recovery_started

    def begin_as_one_of_the_last_five_seconds_left_it() -> None:
        recovery.signal_recovery_end.set()  # Faust takes it back every five seconds
        begin()

    monkeypatch.setattr(recovery, "_set_recovery_started", begin_as_one_of_the_last_five_seconds_left_it)
    async with running(first):
        await comes_true(lambda: rows(table, first) == keys)
        async with running(second):
            await comes_true(lambda: len(owned(first)) == len(owned(second)) == 1)
            await comes_true(lambda: rows(table, first) | rows(other, second) == keys)
        await comes_true(lambda: len(owned(first)) == 2)
        await comes_true(lambda: rows(table, first) == keys)  # what the other had is read again, all of it


async def test_a_local_store_that_refuses_rows_of_its_changelog_ends_the_app(
    tansu_settings: KafkaSettings, tmp_path: Path, fresh: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(*_: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(AckedTable, "apply_changelog_batch", full)
    prepare(tansu_settings, fresh)
    produce(tansu_settings, f"{fresh}-t-changelog", b"one")

    async def handle(record: InRecord) -> None:
        raise AssertionError("nothing was sent")

    app, _ = app_with(settings_for(tansu_settings, "rocksdb"), fresh, tmp_path, handle)
    crashes: list[BaseException] = []
    assert not await start_app(app, lambda _, reason: crashes.append(reason), ready_seconds=PATIENCE)
    await stop_app(app, 30)
    assert "No space left on device" in str(crashes[0])


async def test_tables_refuse_what_could_not_be_safe(tmp_path: Path, fresh: str) -> None:
    app = make_app(fresh, settings_for(KafkaSettings()), tmp_path)
    table = raw_table(app, "t", 2, f"{fresh}-t-changelog")
    with pytest.raises(InvariantBroken, match="await put"):
        table[b"k"] = b"v"
    with pytest.raises(InvariantBroken, match="never deleted"):
        table.on_key_del(b"k")
    with pytest.raises(InvariantBroken, match="outside of a handler"):
        FaustTable(table).get(b"k")
    with pytest.raises(InvariantBroken, match="names the changelog otherwise"):
        raw_table(app, "u", 2, "another-changelog")


async def test_a_rebalance_while_an_app_stops_leaves_the_consumer_to_the_stop(
    any_broker: KafkaSettings, tmp_path: Path, fresh: str, caplog: pytest.LogCaptureFixture
) -> None:
    prepare(any_broker, fresh)

    async def handle(_: InRecord) -> None: ...

    app, _ = app_with(settings_for(any_broker), fresh, tmp_path, handle)
    async with running(app):
        app._on_rebalance_when_stopped()
        await asyncio.sleep(0.1)  # what it might start on this loop begins
        consumer = app.consumer._thread._consumer
        assert not consumer._closed
        assert not consumer._client._sync_task.done()
    assert consumer._closed
    assert "LeaveGroup" not in caplog.text, "the group is left while there is a connection to say so"


async def test_a_task_that_misses_its_cancellation_in_the_consumers_thread_hangs_neither_the_loop_nor_the_stop(
    tansu_settings: KafkaSettings, tmp_path: Path, fresh: str
) -> None:
    prepare(tansu_settings, fresh)
    released = threading.Event()
    let_go = threading.Timer(PATIENCE, released.set)  # so that a fault fails this test rather than hanging it
    let_go.start()

    async def handle(_: InRecord) -> None: ...

    async def stubborn() -> None:
        while not released.is_set():
            with contextlib.suppress(asyncio.CancelledError):
                await asyncio.sleep(0.05)

    app, _ = app_with(settings_for(tansu_settings), fresh, tmp_path, handle)
    async with running(app):
        consumers = app.consumer._thread
        left_behind = asyncio.run_coroutine_threadsafe(stubborn(), consumers.thread_loop)
    assert consumers._thread.is_alive()
    assert not released.is_set()
    released.set()
    let_go.cancel()
    await asyncio.wait_for(asyncio.wrap_future(left_behind), PATIENCE)
