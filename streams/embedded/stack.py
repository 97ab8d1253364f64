"""EmbeddedStack: everything of docdelta in one process for one machine: broker, index, model, worker, and the first batch.

What lasts between runs is the index in its folder; broker and tables live in memory. Sending a folder again after a restart costs
no embedding and no write, since the batch compares with the index itself where its memory is lost.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Callable, Coroutine, Sequence
from pathlib import Path
from types import TracebackType
from typing import Literal

from chunking.policy import ChunkPolicy
from schemas.batch import BatchRecord
from schemas.codec import decode, encode
from schemas.receipt import Receipt
from streams.batches.record import batch_record
from streams.embedded.apache_kafka import ApacheKafka
from streams.embedded.index_server import IndexServer, serve
from streams.embedded.tansu import TansuBroker
from streams.index.qdrant import QdrantIndex, open_index
from streams.kafka.admin import apply_topics
from streams.kafka.produce import OutRecord, produce_all
from streams.kafka.read import follow
from streams.settings import KafkaSettings, QdrantSettings, Settings, WorkerSettings
from streams.topics import batch_topics, shared_topics
from streams.worker import Worker, utc_now

PARTITIONS = 4
BrokerKind = Literal["tansu", "apache"]


class EmbeddedStack:
    """An async context manager: inside it, `settings` reach the broker, `index` is open and `worker` keeps it in step.

    folder: where index, broker log and broker data lie. base: the user's settings; broker, index and state are replaced.
    """

    def __init__(self, folder: Path, policy: ChunkPolicy, policy_yaml: str, base: Settings, broker: BrokerKind = "tansu") -> None:
        self.folder = folder
        self._policy = policy
        self._policy_yaml = policy_yaml
        self._base = base
        self._kind = broker
        self._broker: TansuBroker | ApacheKafka = (
            TansuBroker(folder / "broker") if broker == "tansu" else ApacheKafka(folder / "apache-kafka")
        )
        self._closing = contextlib.AsyncExitStack()
        self.settings = base
        self.index: QdrantIndex
        self.server: IndexServer
        self.worker: Worker
        self.batch: BatchRecord

    async def __aenter__(self) -> EmbeddedStack:
        try:
            await self._start()
        except BaseException:
            await self._closing.aclose()
            raise
        return self

    async def __aexit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        await self._closing.aclose()

    async def _start(self) -> None:
        self.folder.mkdir(parents=True, exist_ok=True)
        self.settings = self._embedded(KafkaSettings())  # a locked index folder is found before a broker is started
        self.index = open_index(self.settings.qdrant)
        self._closing.push_async_callback(self.index.close)
        await self.index.collections()
        await asyncio.to_thread(self._broker.start)
        self._closing.push_async_callback(asyncio.to_thread, self._broker.stop)
        kafka = KafkaSettings(
            bootstrap_servers=self._broker.bootstrap_servers,
            topic_prefix=self._base.kafka.topic_prefix,
            partitions=PARTITIONS,
            single_record_batches=self._kind == "tansu",
            session_timeout_seconds=6 if self._kind == "apache" else 2,  # Apache Kafka takes no less than 6
            heartbeat_seconds=0.5,
            rebalance_timeout_seconds=30,
        )
        self.settings = self._embedded(kafka)
        self.batch = batch_record(self._policy, self._policy_yaml, "active", self.settings.qdrant.alias, utc_now(), note="embedded")
        await asyncio.to_thread(self._prepare_topics)
        self.server = await serve(self.index)
        self._closing.push_async_callback(self.server.close)
        self.worker = Worker(self.settings, index=self.index)
        self._closing.push_async_callback(self.worker.stop)
        await self.worker.start()
        await self.worker.ready(self.batch.batch)

    def _embedded(self, kafka: KafkaSettings) -> Settings:
        qdrant = QdrantSettings(path=self.folder / "index", alias=self._base.qdrant.alias)
        port = self._base.worker.metrics_port if "metrics_port" in self._base.worker.model_fields_set else 0  # only when asked for
        own = {"state": "memory", "state_dir": self.folder / "state", "batch_seconds": 0.02, "metrics_port": port}
        own["handover_grace_seconds"] = 0  # one process: nobody to take over from
        worker = WorkerSettings(**{**self._base.worker.model_dump(), **own})
        return self._base.model_copy(update={"kafka": kafka, "qdrant": qdrant, "worker": worker})

    def _prepare_topics(self) -> None:
        kafka, topics = self.settings.kafka, self.settings.topics
        wanted = [*shared_topics(topics, kafka.partitions), *batch_topics(topics, self.batch.batch, kafka.partitions)]
        apply_topics(kafka, wanted)
        produce_all(kafka, [OutRecord(topics.batches, self.batch.batch.encode(), encode(self.batch))])

    def check_broker(self) -> None:
        """Raise NotReachable with the end of its log when the broker has ended by itself. Its records are gone with it."""
        self._broker.check_alive()

    async def serve_this_batch(self) -> None:
        """Point the alias at this stack's batch, where an earlier run with another policy left it elsewhere."""
        if await self.index.alias_target(self.batch.alias) != self.batch.collection:
            await self.index.set_alias(self.batch.alias, self.batch.collection)

    async def receipts(self) -> AsyncIterator[Receipt]:
        """Yield every receipt from the beginning, then as they come."""
        async for _, value in follow(self.settings.kafka, self.settings.topics.receipts):
            if value is not None:
                yield decode(value, Receipt)


class ReceiptBook:
    """Keeps receipts as they come and waits for those of given events. The first of equal receipts counts; one that was held counts
    until it is released and comes to another end.

    `on_receipt` is called with each receipt that is not a repeat.
    """

    def __init__(self, stack: EmbeddedStack, on_receipt: Callable[[Receipt], None] = lambda receipt: None) -> None:
        self._stack = stack
        self._on_receipt = on_receipt
        self._by_event: dict[str, Receipt] = {}
        self._came = asyncio.Condition()
        self._task: asyncio.Task[None] | None = None

    async def __aenter__(self) -> ReceiptBook:
        self._task = asyncio.create_task(self._read())
        return self

    async def __aexit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        if self._task is not None:
            self._task.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await self._task

    async def _read(self) -> None:
        async for receipt in self._stack.receipts():
            async with self._came:
                known = self._by_event.get(receipt.event_id)
                if known is None or (known.outcome == "held" != receipt.outcome):
                    self._by_event[receipt.event_id] = receipt
                    self._on_receipt(receipt)
                self._came.notify_all()

    async def of(self, event_ids: Sequence[str], stop: asyncio.Event | None = None) -> list[Receipt]:
        """Return the receipts of events, in the order asked; fewer when `stop` is set. Raises the worker's failure if it fell."""
        ends: list[Coroutine[object, object, object]] = [self._stack.worker.wait(), self._all(event_ids)]
        if stop is not None:
            ends.append(stop.wait())
        waits = [asyncio.ensure_future(end) for end in ends]
        try:
            await asyncio.wait(waits, return_when=asyncio.FIRST_COMPLETED)
            if self._stack.worker.failure is not None:
                raise self._stack.worker.failure
            return [self._by_event[event] for event in event_ids if event in self._by_event]
        finally:
            for wait in waits:
                wait.cancel()

    async def _all(self, event_ids: Sequence[str]) -> None:
        async with self._came:
            await self._came.wait_for(lambda: all(event in self._by_event for event in event_ids))
