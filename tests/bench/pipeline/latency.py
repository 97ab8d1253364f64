"""Event to searchable: from the moment a producer is handed an edit until a search in the index finds the edited page.

A small page, edited again and again at uneven times through one long-lived producer (a new idempotent one waits half a second for
its id). Once on an idle system, once with 1,000 edits a minute of other pages in the background.
"""

from __future__ import annotations

import asyncio
import random
import time
from collections.abc import Callable
from typing import Any

from schemas.codec import encode
from schemas.document_change import DocumentChange
from schemas.record import document_key
from streams.embedders.hashing import hashed
from streams.kafka.client import make_producer
from streams.ports import Query
from tests.bench.pipeline.installation import Installation, first_revisions, installation
from tests.bench.pipeline.pages import edited, pages
from tests.bench.pipeline.report import quantile
from tests.stack.rig import upsert

LOOK_SECONDS = 0.004
BACKGROUND_PAGES = 60
EDITS_A_MINUTE = 1000
TENANT = "reader"
"""The small page's own: among other pages a hashing embedder may rank it too low to be found."""
Send = Callable[[DocumentChange], None]


async def measure(samples: int) -> dict[str, Any]:
    """Return quantiles of both cases, in seconds."""
    async with installation() as bench:
        bench.begin()
        others = pages(BACKGROUND_PAGES)
        await bench.settled([*first_revisions(others), upsert("small", 1, a_small_page(0), TENANT)])
        producer = make_producer(bench.kafka, 60)

        def send(change: DocumentChange) -> None:
            key = document_key(change.tenant_id, change.document_id)
            producer.produce(bench.settings.topics.documents, key=key, value=encode(change))
            producer.poll(0)

        await edits_found(bench, send, range(1, 6))  # the producer's id, first connections
        idle = await edits_found(bench, send, range(6, 6 + samples))
        background = asyncio.create_task(_background(send, others))
        try:
            busy = await edits_found(bench, send, range(6 + samples, 6 + 2 * samples))
        finally:
            background.cancel()
        sent = await asyncio.gather(background, return_exceptions=True)
        assert isinstance(sent[0], asyncio.CancelledError), sent
        producer.flush(10)
        return {
            "samples": samples,
            "idle": quantiles(idle),
            "busy": quantiles(busy),
            "target": "idle p50 <= 0.25 and p99 <= 1; busy p99 <= 2",
        }


def a_small_page(edit: int) -> str:
    """Return the page that is edited, as it is after so many edits."""
    notes = "## Notes\n\nRead from the gauge by the stairs.\n"
    return f"# Tide table\n\nHigh water at the pier, reading number{edit} of the day.\n\n{notes}"


async def edits_found(bench: Installation, send: Send, edits: range) -> list[float]:
    """Make edits at uneven times, one after the other; return the seconds until each is found in the served batch."""
    dice = random.Random(edits.start)
    seconds = []
    for edit in edits:
        await asyncio.sleep(dice.uniform(0.1, 0.5))
        question = hashed(f"reading number{edit}", bench.policy.embedding.dimensions)
        began = time.perf_counter()
        send(upsert("small", edit + 1, a_small_page(edit), TENANT))
        while not await _found(bench, question, edit + 1):
            assert time.perf_counter() - began < 30, bench.log()[-2000:]
            await asyncio.sleep(LOOK_SECONDS)
        seconds.append(time.perf_counter() - began)
    return seconds


async def _found(bench: Installation, question: Any, revision: int) -> bool:
    hits = await bench.shim.index.search(bench.collection, Query(TENANT, question, limit=3))
    return any(hit.payload["revision"] == revision for hit in hits)


async def _background(send: Send, texts: dict[str, str]) -> None:
    """Edit one page after the other, evenly spread over the minute."""
    began, count = time.perf_counter(), 0
    while True:
        for name, text in texts.items():
            count += 1
            send(upsert(name, 1 + count, edited(text, count)))
            await asyncio.sleep(max(0.0, began + count * 60 / EDITS_A_MINUTE - time.perf_counter()))


def quantiles(seconds: list[float]) -> dict[str, float]:
    """Return what a report says of a list of seconds."""
    return {"p50": quantile(seconds, 0.5), "p90": quantile(seconds, 0.9), "p99": quantile(seconds, 0.99), "longest": max(seconds)}
