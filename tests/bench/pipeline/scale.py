"""One worker against two on two cores: throughput of parse + chunk, from [documents] to [changes].

A worker has one core: each process (with its parsers) is bound to its own, since a single worker would else take part of the second
core too (its parser runs beside it), and the question is what a second machine of the same size brings. The index refuses writes
meanwhile, as during an outage, so that nothing is indexed; the broker runs on both cores and takes its share.
"""

from __future__ import annotations

import asyncio
import os
import subprocess
import time
from typing import Any

from streams.kafka.admin import describe_topics
from streams.kafka.client import make_admin
from tests.bench.pipeline.installation import Installation, first_revisions, installation
from tests.bench.pipeline.pages import pages

CHARACTERS = 16_384


async def measure(documents: int) -> dict[str, Any]:
    """Return documents per second of one worker and of two, and their ratio."""
    one = await _throughput(1, documents)
    two = await _throughput(2, documents)
    return {
        "documents": documents,
        "characters": CHARACTERS,
        "one_worker_documents_per_second": one,
        "two_workers_documents_per_second": two,
        "ratio": two / one,
        "target": "ratio >= 1.7",
    }


async def _throughput(workers: int, documents: int) -> float:
    async with installation() as bench:
        for number in range(workers):
            bench.begin(f"w{number}")
        changes = first_revisions(pages(documents, CHARACTERS))
        warm, rest = changes[: documents // 5], changes[documents // 5 :]
        topic = bench.settings.topics.changes(bench.policy.batch_id)
        assert topic in describe_topics(make_admin(bench.kafka), [topic])
        chunked = bench.ended(topic)
        await bench.settled(warm)  # partitions are shared out, parsers run
        for number, worker in enumerate(bench.workers.values()):
            _bind(worker.pid, number % (os.cpu_count() or 1))
        bench.wire.writable = False
        before = chunked.now()
        await bench.send(*rest[:8])  # the indexers meet the outage
        await chunked.reach(before + 8)
        began = time.perf_counter()
        await bench.send(*rest[8:])
        await chunked.reach(before + len(rest))
        seconds = time.perf_counter() - began
        await _end(bench)
        return (len(rest) - 8) / seconds


async def _end(bench: Installation) -> None:
    for worker in bench.workers.values():
        worker.kill()
        await asyncio.to_thread(worker.wait)
    bench.workers.clear()


def _bind(pid: int, core: int) -> None:
    """Bind a worker's threads and its parser processes to a core."""
    children = subprocess.run(["pgrep", "-P", str(pid)], capture_output=True, text=True, check=False).stdout.split()
    for process in [pid, *map(int, children)]:
        for thread in os.listdir(f"/proc/{process}/task"):
            os.sched_setaffinity(int(thread), {core})
