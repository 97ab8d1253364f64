"""One worker against two on two cores: throughput of parse + chunk.

Pages that stand in the index are sent again with another attribute, which the policy does not store: each is parsed, passed on and
chunked, and nothing is left to index. A worker has one core: each (with its parser process) is bound to its own, since a single one
would else take part of the second core too, and the question is what a second machine of the same size brings. The broker runs on
both cores and takes its share.
"""

from __future__ import annotations

import asyncio
import os
import subprocess
from typing import Any

from tests.bench.pipeline.installation import Installation, again, first_revisions, installation
from tests.bench.pipeline.pages import pages

CHARACTERS = 16_384
ROUNDS = 4


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
        first = first_revisions(pages(documents, CHARACTERS))
        await bench.settled(first)  # partitions are shared out, parsers run
        for number, worker in enumerate(bench.workers.values()):
            _bind(worker.pid, number % (os.cpu_count() or 1))
        written = bench.wire.written
        seconds = []
        for revision in range(2, 2 + ROUNDS):
            touched = again(first, f"touched-{revision}", revision=revision, attributes={"touched": revision})
            seconds.append(await bench.settled(touched))
        assert bench.wire.written == written, "an attribute that the policy does not name was written"
        await _end(bench)
        return documents / min(seconds)


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
