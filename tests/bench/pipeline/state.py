"""State: what an event costs, what a worker weighs and how long a restart takes with 1,000 documents and with many more.

1,000 small pages are built and edited; then the worker is stopped, the memory of the other documents (what the parser has seen, the
batch's manifests) is written to the changelog topics as the worker would have left it, and edits are measured again. The index
holds the 1,000 pages in both cases, so the difference is that of the worker's state.
"""

from __future__ import annotations

import asyncio
import shutil
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from hashlib import sha256
from pathlib import Path
from typing import Any

from chunking.manifest import Manifest, ManifestEntry
from schemas.record import document_key
from streams.kafka.produce import OutRecord, produce_all
from streams.steps.settle_change import Seen
from tests.bench.pipeline.installation import Installation, again, first_revisions, installation, processor_seconds
from tests.bench.pipeline.pages import edited, pages
from tests.stack.scrape import free_port

SMALL = 1000
CHARACTERS = 400
CHUNKS = 5
"""Chunks of each document that is only remembered."""
ROUNDS = 3
STOP_SECONDS = 120


async def measure(documents: int, small: int = SMALL) -> dict[str, Any]:
    """Return cost of an event, memory and restart times; `documents` is the larger number."""
    async with installation() as bench:
        texts = pages(small, CHARACTERS)
        worker = _Worker(bench)
        await worker.start()
        await bench.settled(first_revisions(texts))
        few = await _cost(bench, worker, texts, revision=2)
        memory_few = worker.memory()
        await worker.stop()
        await asyncio.to_thread(_fill, bench, documents - small)
        catching_up = await worker.start()
        many = await _cost(bench, worker, texts, revision=2 + ROUNDS)
        memory_many = worker.memory()
        await worker.stop()
        restart = await worker.start()
        await worker.stop()
        shutil.rmtree(worker.state)
        rebuilt = await worker.start()
        return {
            "documents": [small, documents],
            "processor_ms_an_event": [few["processor"], many["processor"]],
            "seconds_an_event": [few["seconds"], many["seconds"]],
            "ratio": many["processor"] / few["processor"],
            "ratio_of_seconds": many["seconds"] / few["seconds"],
            "resident_mib": [memory_few, memory_many],
            "restart_seconds": restart,
            "restart_with_new_changelog_records_seconds": catching_up,
            "restart_without_local_state_seconds": rebuilt,
            "target": "ratio <= 1.2; resident <= 600 MiB; restart <= 20 s",
        }


class _Worker:
    """The measured worker: started until it is ready, stopped in good order."""

    def __init__(self, bench: Installation) -> None:
        self._bench = bench
        self._count = 0
        self.state = Path(bench.folder) / "state-measured"

    async def start(self) -> float:
        """Return the seconds from the start of the process until `/readyz` says yes."""
        self._count += 1
        port = free_port()
        began = time.perf_counter()
        environment = {"DOCDELTA_WORKER__METRICS_PORT": str(port), "DOCDELTA_WORKER__STATE_DIR": str(self.state)}
        self._process = self._bench.begin(f"w{self._count}", **environment)
        while not await asyncio.to_thread(_ready, port):
            assert self._process.poll() is None, self._bench.log(f"w{self._count}")[-3000:]
            assert time.perf_counter() - began < 300
            await asyncio.sleep(0.05)
        return time.perf_counter() - began

    async def stop(self) -> None:
        """End it as an operator does."""
        self._process.terminate()  # it is ready, and logs warnings only: nothing in its log says that it has started
        code = await asyncio.to_thread(self._process.wait, STOP_SECONDS)
        assert code == 0, self._bench.log(f"w{self._count}")[-3000:]

    def processor(self) -> float:
        """Return the processor seconds of the worker's process so far."""
        return processor_seconds(self._process.pid)

    def memory(self) -> float:
        """Return the resident MiB of the worker's process; its parser process is not in it."""
        lines = Path(f"/proc/{self._process.pid}/status").read_text().splitlines()
        return next(int(line.split()[1]) for line in lines if line.startswith("VmRSS")) / 1024


def _ready(port: int) -> bool:
    try:
        with urllib.request.urlopen(f"http://127.0.0.1:{port}/readyz", timeout=2) as answer:
            return bool(answer.status == 200)
    except (urllib.error.URLError, OSError):
        return False


async def _cost(bench: Installation, worker: _Worker, texts: dict[str, str], revision: int) -> dict[str, float]:
    """Return processor milliseconds and seconds of one edit: the best of some rounds of an edit a page."""
    rounds = []
    for number in range(revision, revision + ROUNDS):
        edits = first_revisions({name: edited(text, number) for name, text in texts.items()})
        edits = again(edits, f"edit-{number}", revision=number)
        processor = worker.processor()
        seconds = await bench.settled(edits)
        rounds.append({"processor": 1e3 * (worker.processor() - processor) / len(edits), "seconds": seconds / len(edits)})
    return {figure: min(each[figure] for each in rounds) for figure in ("processor", "seconds")}


def _fill(bench: Installation, documents: int) -> None:
    """Remember so many documents more, by the records that the worker itself would have written."""
    topics = bench.settings.topics
    seen = topics.changelog(topics.parser_group, topics.seen_table)
    manifests = topics.changelog(topics.batch_group(bench.policy.batch_id), topics.manifests_table)

    def records() -> Iterator[OutRecord]:
        for number in range(documents):
            key = document_key("acme", f"remembered-{number:07}")
            digest = sha256(key).hexdigest()
            entries = tuple(
                ManifestEntry("chk_" + sha256(key + bytes([place])).hexdigest(), digest[:32], (place + 1) << 20)
                for place in range(CHUNKS)
            )
            event = f"acme/{number}@1"
            yield OutRecord(seen, key, Seen(1, digest, event_id=event, offset=number).to_bytes())
            yield OutRecord(manifests, key, Manifest(1, entries, event_id=event, changed=1).to_bytes())

    assert produce_all(bench.kafka, records()) == 2 * documents
