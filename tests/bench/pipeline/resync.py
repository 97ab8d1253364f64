"""Unchanged re-sync and one edit a page, by docdelta: events through Apache Kafka, one worker process, hashing embedder."""

from __future__ import annotations

from typing import Any

from tests.bench.pipeline.installation import Installation, again, first_revisions, installation, processor_seconds
from tests.bench.pipeline.pages import edited, pages

ROUNDS = 3


async def measure(documents: int) -> dict[str, Any]:
    """Return the figures of build, re-sync and edit, in the shape of `peers.py`."""
    async with installation() as bench:
        bench.begin()
        first = first_revisions(pages(documents))
        build = await _timed(bench, first)
        rounds = [await _timed(bench, again(first, f"again-{number}")) for number in range(ROUNDS)]
        newer = await _timed(bench, again(first, "newer", revision=2))
        assert not any(run["bytes_written"] or run["embedded"] for run in (*rounds, newer)), "an unchanged page was written"
        edits = [
            change.model_copy(update={"revision": 3, "event_id": f"edit/{change.document_id}", "content": _edited(change)})
            for change in first
        ]
        edit = await _timed(bench, edits)
        await bench.check(edits)
        return {
            "peer": "docdelta",
            "documents": documents,
            "build": build,
            "resync": min(rounds, key=lambda run: run["seconds"]),
            "resync_newer_revision": newer,
            "edit": edit,
        }


def _edited(change: Any) -> Any:
    return change.content.model_copy(update={"text": edited(change.content.text, 1)})


async def _timed(bench: Installation, changes: list[Any]) -> dict[str, Any]:
    written, requests = bench.wire.written, bench.wire.requests
    worker = bench.workers["one"].pid
    processor = processor_seconds(worker)
    seconds = await bench.settled(changes)
    processor = processor_seconds(worker) - processor
    receipts = await bench.first_receipts()
    mine = [receipts[change.event_id] for change in changes]
    return {
        "seconds": seconds,
        "documents_per_second": len(changes) / seconds,
        "processor_ms_a_document": 1e3 * processor / len(changes),
        "embedded": sum(receipt.embedded for receipt in mine),
        "bytes_written": bench.wire.written - written,
        "requests": bench.wire.requests - requests,
        "outcomes": sorted({receipt.outcome for receipt in mine}),
    }
