"""Apps in this process on a real broker: started and stopped at run time, what they refuse, and how they say that they are down."""

from __future__ import annotations

import asyncio
import contextlib
import socket
import threading
from collections.abc import Awaitable
from pathlib import Path

import pytest

from streams.embedded.tansu import TansuBroker
from streams.errors import InvariantBroken, PoisonRecord
from streams.faustio.app import make_app, raw_table, raw_topic
from streams.faustio.keyed_runner import KeyedRunner
from streams.faustio.lifecycle import start_app, stop_app
from streams.faustio.log import FaustLog
from streams.faustio.readiness import assigned_partitions, is_ready
from streams.faustio.table import FaustTable
from streams.ports import InRecord
from streams.settings import KafkaSettings
from streams.topics import MAX_RECORD_BYTES
from tests.support.apps import MEBIBYTE, app_with, create_topics, prepare, produce, running, settings_for
from tests.support.patience import PATIENCE


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
