"""Live edits beside a bulk import: tenant B edits a small page while tenant A imports thousands through [bulk].

An edit's time is from its producer's hand to its receipt, which follows the index's own confirmation. Both figures of a tenant B
come from one installation: idle before and after, and for as long as the import lasts. Rates of an import alone, through [bulk] and
straight through [documents], say what the lane costs; B's times beside the latter say what it is for.
"""

from __future__ import annotations

import asyncio
import random
import time
from collections.abc import Awaitable
from typing import Any

from schemas.codec import decode, encode
from schemas.document_change import DocumentChange
from schemas.receipt import Receipt
from schemas.record import document_key
from streams.kafka.client import KafkaProducer, make_producer
from streams.kafka.read import Follower
from tests.bench.pipeline.installation import Installation, installation
from tests.bench.pipeline.pages import page
from tests.bench.pipeline.report import quantile
from tests.stack.rig import upsert

IDLE_SAMPLES = 200
ALONE = 1000
"""Pages of each import whose rate is compared."""
SMALL = 1000
"""Characters of a page of A."""
EDITOR, IMPORTER = "editor", "importer"
KEY = document_key(EDITOR, "small")


async def measure(size: int) -> dict[str, Any]:
    """Return B's quantiles in seconds, idle and beside an import of `size` pages, and A's rates in pages/s."""
    async with installation() as bench:
        bench.begin()
        editor = Editor(bench)
        await editor.start()
        try:
            for _ in range(5):  # the producer's id, first connections
                await editor.edit()
            idle = [await editor.edit() for _ in range(IDLE_SAMPLES // 2)]
            documents, bulk = bench.settings.topics.documents, bench.settings.topics.bulk
            rates = {}
            for name, topic in (("documents", documents), ("bulk", bulk), ("documents again", documents), ("bulk again", bulk)):
                rates[name] = ALONE / await imported(editor, topic, a_site(name, ALONE))
            unlaned, _ = await beside(editor, imported(editor, documents, a_site("unlaned", ALONE)))
            beside_bulk, seconds = await beside(editor, imported(editor, bulk, a_site("whole", size)))
            idle += [await editor.edit() for _ in range(IDLE_SAMPLES // 2)]
        finally:
            await editor.stop()
        return {
            "pages": size,
            "idle": quantiles(idle),
            "beside_bulk": quantiles(beside_bulk),
            "beside_import_through_documents": quantiles(unlaned),
            "ratio_p99": quantile(beside_bulk, 0.99) / quantile(idle, 0.99),
            "ratio_p50": quantile(beside_bulk, 0.5) / quantile(idle, 0.5),
            "pages_per_second_alone": rates,
            "pages_per_second_beside_edits": size / seconds,
            "target": "ratio_p99 <= 2; rate through bulk >= 0.8 of that through documents",
        }


class Editor:
    """Tenant B: edits one small page at uneven times, and waits for each edit's receipt. Hears A's receipts as well."""

    def __init__(self, bench: Installation) -> None:
        self._bench = bench
        self.producer = make_producer(bench.kafka, 60)
        self._receipts = Follower(bench.kafka, bench.settings.topics.receipts, from_end=True)
        self._came: asyncio.Queue[int] = asyncio.Queue()
        self._revision = 0
        self._dice = random.Random(7)
        self._hearing: asyncio.Task[None] | None = None
        self.settled: set[bytes] = set()
        """Keys of A's pages that have their receipt."""

    async def start(self) -> None:
        await self._receipts.start()
        self._hearing = asyncio.create_task(self._hear())

    async def stop(self) -> None:
        if self._hearing is not None:
            self._hearing.cancel()
        await self._receipts.stop()
        self.producer.flush(10)

    async def _hear(self) -> None:
        async for record in self._receipts:
            if record.key == KEY and record.value is not None:
                receipt = decode(record.value, Receipt)
                assert receipt.outcome == "indexed", receipt
                self._came.put_nowait(receipt.revision)
            elif record.key is not None:
                self.settled.add(record.key)

    def check(self) -> None:
        """Fail when the worker fell, or the hearing."""
        assert self._bench.workers["one"].poll() is None, self._bench.log()[-3000:]
        assert self._hearing is not None
        assert not self._hearing.done(), self._hearing

    async def edit(self) -> float:
        """Edit the page after a while; return the seconds until its receipt came."""
        await asyncio.sleep(self._dice.uniform(0.1, 0.5))
        self._revision += 1
        text = f"# Tide table\n\nHigh water at the pier, reading number{self._revision}.\n\n## Notes\n\nRead from the gauge.\n"
        change = upsert("small", self._revision, text, EDITOR)
        began = time.perf_counter()
        self.producer.produce(self._bench.settings.topics.documents, key=KEY, value=encode(change))
        self.producer.poll(0)
        while await asyncio.wait_for(self._came.get(), 120) != self._revision:
            continue
        return time.perf_counter() - began


def a_site(name: str, count: int) -> list[DocumentChange]:
    """Return new pages of tenant A."""
    return [upsert(f"{name}/{number:06}", 1, page(number, SMALL), IMPORTER) for number in range(count)]


async def imported(editor: Editor, topic: str, changes: list[DocumentChange]) -> float:
    """Send changes of A to a topic; return the seconds until the last has its receipt."""
    pairs = [(document_key(c.tenant_id, c.document_id), encode(c)) for c in changes]
    wanted = {key for key, _ in pairs}
    began = time.perf_counter()
    await asyncio.to_thread(_send, editor.producer, topic, pairs)
    while not wanted <= editor.settled:
        editor.check()
        await asyncio.sleep(0.2)
    return time.perf_counter() - began


async def beside(editor: Editor, work: Awaitable[float]) -> tuple[list[float], float]:
    """Return the times of edits made while `work` lasts, and its seconds."""
    task = asyncio.ensure_future(work)
    seconds: list[float] = []
    while not task.done():
        seconds.append(await editor.edit())
    return seconds[:-1] or seconds, await task


def _send(producer: KafkaProducer, topic: str, pairs: list[tuple[bytes, bytes]]) -> None:
    for key, value in pairs:
        while True:
            try:
                producer.produce(topic, key=key, value=value)
                break
            except BufferError:
                producer.poll(0.05)
        producer.poll(0)
    producer.flush(60)


def quantiles(seconds: list[float]) -> dict[str, float]:
    """Return quantiles of times."""
    named = {"p50": 0.5, "p90": 0.9, "p99": 0.99}
    return {**{name: quantile(seconds, share) for name, share in named.items()}, "longest": max(seconds), "edits": len(seconds)}
