"""Recovery on a real broker: what is fetched, how many rows at once, how its end is known, and what it refuses."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest
from aiokafka.consumer import fetcher
from confluent_kafka import Producer

from streams.faustio.app import SafeApp
from streams.faustio.lifecycle import start_app, stop_app
from streams.faustio.readiness import assigned_partitions, is_ready
from streams.faustio.recovery import SafeRecovery
from streams.faustio.table import AckedTable, FaustTable
from streams.ports import InRecord
from streams.settings import KafkaSettings
from tests.support.apps import app_with, comes_true, prepare, produce, running, settings_for
from tests.support.patience import PATIENCE

ROWS = 400


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
