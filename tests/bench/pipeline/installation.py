"""An installation to measure: Apache Kafka, production workers as processes, the embedded index over REST with bytes counted."""

from __future__ import annotations

import asyncio
import os
import subprocess
import tempfile
import time
import uuid
from collections.abc import AsyncIterator, Iterable, Iterator, Mapping
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from aiohttp import web
from aiohttp.typedefs import Handler
from confluent_kafka import TopicPartition

from chunking.policy import load_policy
from schemas.codec import decode, encode
from schemas.document_change import FORGET, DocumentChange
from schemas.receipt import Receipt
from schemas.record import document_key
from streams.embedded.apache_kafka import ApacheKafka
from streams.embedded.index_server import serve
from streams.index.qdrant import open_index
from streams.kafka.client import KafkaProducer, make_consumer, make_producer
from streams.kafka.read import read_topic
from streams.settings import KafkaSettings, QdrantSettings
from tests.contracts.qdrant_shim import Shim
from tests.stack.rig import Rig, upsert

PARTITIONS = 4
POLICY = """
name: bench
version: 1
rules: [{use: structure}]
limits: {max_tokens: 300}
embedding: {model: hashing-v1, dimensions: 64}
"""
"""About 1,000 characters a chunk on the bench's pages."""
PATIENCE = 900.0


@dataclass
class Wire:
    """What was asked of the index: requests, and bytes of those that write."""

    requests: int = 0
    written: int = 0


@dataclass
class Installation(Rig):
    """A rig with the bench's policy that counts bytes in place of keeping requests."""

    wire: Wire = field(default_factory=Wire)
    _producer: KafkaProducer | None = None

    async def init(self) -> None:
        """Create topics and the first batch."""
        (self.folder / "policy.yaml").write_text(POLICY, encoding="utf-8")
        done = await self.docdelta("init", "--policy", "policy.yaml")
        assert done.returncode == 0, done.stderr

    def begin(self, name: str = "one", only: str = "", **environment: str) -> subprocess.Popen[bytes]:
        """Start a worker that logs warnings only, as a site under load would set it."""
        return self.start(name, only, DOCDELTA_LOG_LEVEL="warning", **environment)

    def ended(self, topic: str) -> Ends:
        """Return a view of how many records a topic has."""
        return Ends(self, topic)

    async def first_receipts(self) -> dict[str, Receipt]:
        """Return the first receipt of each event."""
        first: dict[str, Receipt] = {}
        for record in await asyncio.to_thread(lambda: list(read_topic(self.kafka, self.settings.topics.receipts))):
            if record.value is not None:
                receipt = decode(record.value, Receipt)
                first.setdefault(receipt.event_id, receipt)
        return first

    def sender(self) -> KafkaProducer:
        """Return the producer of all that is sent, connected: a new idempotent one takes half a second until it sends anything."""
        if self._producer is None:
            self._producer = make_producer(self.kafka, 60)
            self._producer.produce(self.settings.topics.documents, key=b"bench/nothing", headers={FORGET: b""})
            self._producer.flush(60)
        return self._producer

    async def settled(self, changes: Iterable[DocumentChange]) -> float:
        """Send changes and return the seconds from the first sent to the last receipt."""
        topic = self.settings.topics
        pairs = [(document_key(c.tenant_id, c.document_id), encode(c)) for c in changes]
        receipts = self.ended(topic.receipts)
        before = receipts.now()
        producer = await asyncio.to_thread(self.sender)

        def send() -> None:
            for key, value in pairs:
                while True:
                    try:
                        producer.produce(topic.documents, key=key, value=value)
                        break
                    except BufferError:
                        producer.poll(0.05)
                producer.poll(0)
            producer.flush(60)

        began = time.perf_counter()
        await asyncio.to_thread(send)
        await receipts.reach(before + len(pairs))
        return time.perf_counter() - began


class Ends:
    """How many records a topic has, asked through one consumer."""

    def __init__(self, installation: Installation, topic: str) -> None:
        self._installation = installation
        self._consumer = make_consumer(installation.kafka)
        self._places = [TopicPartition(topic, number) for number in range(PARTITIONS)]

    def now(self) -> int:
        """Return the number of records."""
        return sum(self._consumer.get_watermark_offsets(place, timeout=10)[1] for place in self._places)

    async def reach(self, total: int, every: float = 0.05) -> None:
        """Return when there are `total` records; fail when a worker fell."""
        deadline = time.monotonic() + PATIENCE
        while (count := await asyncio.to_thread(self.now)) < total:
            for name, worker in self._installation.workers.items():
                fell = worker.poll() not in (None, 0)
                words = f"worker {name} fell:\n{self._installation.log(name)[-3000:]}"
                assert not fell, words
            assert time.monotonic() < deadline, f"{count} of {total} records"
            await asyncio.sleep(every)


@asynccontextmanager
async def installation() -> AsyncIterator[Installation]:
    """Give a prepared installation on a broker and in a folder of its own; end all of it."""
    with tempfile.TemporaryDirectory(prefix="docdelta-bench-") as name, broker(Path(name)) as kafka:
        async with served_index() as (shim, wire):
            made = Installation(kafka, shim, Path(name), load_policy(POLICY), wire=wire)
            try:
                await made.init()
                yield made
            finally:
                made.end()


@contextmanager
def broker(folder: Path) -> Iterator[KafkaSettings]:
    """Give the settings of an Apache Kafka."""
    with ApacheKafka(folder / "kafka") as kafka:
        yield KafkaSettings(
            bootstrap_servers=kafka.bootstrap_servers, topic_prefix="bench-" + uuid.uuid4().hex[:6], partitions=PARTITIONS
        )


@asynccontextmanager
async def served_index() -> AsyncIterator[tuple[Shim, Wire]]:
    """Give an embedded index in memory over REST, and what passes."""
    index, wire = open_index(QdrantSettings()), Wire()

    @web.middleware
    async def counted(request: web.Request, handler: Handler) -> web.StreamResponse:
        wire.requests += 1
        if request.path.endswith("/points/batch"):
            size = len(await request.read())
            wire.written += size
        return await handler(request)

    server = await serve(index, middlewares=[counted])
    try:
        yield Shim(server.url, index), wire
    finally:
        await server.close()
        await index.close()


def processor_seconds(pid: int) -> float:
    """Return the processor seconds that a process has used so far, its children not counted."""
    fields = Path(f"/proc/{pid}/stat").read_text().rsplit(") ", 1)[1].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def first_revisions(texts: Mapping[str, str]) -> list[DocumentChange]:
    """Return an upsert a page."""
    return [upsert(name, 1, text) for name, text in texts.items()]


def again(changes: Iterable[DocumentChange], mark: str, **update: Any) -> list[DocumentChange]:
    """Return the same revisions as new events."""
    return [change.model_copy(update={"event_id": f"{mark}/{change.document_id}", **update}) for change in changes]
