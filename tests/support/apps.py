"""Apps of one table each on a real broker, in the process of a test."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from itertools import count
from pathlib import Path

from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient, NewTopic

from streams.faustio.app import SafeApp, make_app, raw_table, raw_topic
from streams.faustio.keyed_runner import KeyedRunner
from streams.faustio.lifecycle import start_app, stop_app
from streams.faustio.table import FaustTable
from streams.ports import InRecord
from streams.settings import KafkaSettings, Settings, WorkerSettings
from streams.topics import MAX_RECORD_BYTES
from tests.agents.chain_history import LEAST, QUICK
from tests.support.patience import PATIENCE

Handle = Callable[[InRecord], Awaitable[None]]
MEBIBYTE = 1 << 20


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
