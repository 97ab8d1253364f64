"""Freshness of live edits beside a build: event to searchable in the served batch, first alone, then while another batch is built.

The same small page as in `latency`, edited at uneven times. The build is an ordinary `docdelta rollout` of a policy that cuts all
pages anew, so that nothing is borrowed. One that ends before there are enough samples is retired, and the next version is rolled
out. A sample counts only if the build still had records before it when the edit was found.
"""

from __future__ import annotations

import asyncio
import sys
import time
from typing import Any

from chunking.policy import load_policy
from schemas.codec import encode
from schemas.document_change import DocumentChange
from schemas.record import document_key
from streams.kafka.admin import group_lag
from streams.kafka.client import make_producer
from tests.bench.pipeline.installation import PATIENCE, POLICY, Installation, first_revisions, installation
from tests.bench.pipeline.latency import TENANT, a_small_page, edits_found, quantiles
from tests.bench.pipeline.pages import pages
from tests.stack.rig import upsert

PAGES = 1_500
STILL_BUILDING = 8
"""Records that the build must have before it for a sample to count: fewer may be the sample's own."""
_FEWER_TOKENS = 10
"""By which each further version's chunks are smaller."""


async def measure(samples: int) -> dict[str, Any]:
    """Return quantiles without and with a build, in seconds, and the ratio of their p99."""
    async with installation() as bench:
        bench.begin()
        await bench.settled([*first_revisions(pages(PAGES)), upsert("small", 1, a_small_page(0), TENANT)])
        producer = make_producer(bench.kafka, 60)

        def send(change: DocumentChange) -> None:
            key = document_key(change.tenant_id, change.document_id)
            producer.produce(bench.settings.topics.documents, key=key, value=encode(change))
            producer.poll(0)

        await edits_found(bench, send, range(1, 6))  # the producer's id, first connections
        alone = await edits_found(bench, send, range(6, 6 + samples))
        beside: list[float] = []
        builds: list[dict[str, Any]] = []
        edit, version = 6 + samples, 1
        while len(beside) < samples:
            version += 1
            build = await _Build.begin(bench, version)
            before = len(beside)
            while len(beside) < samples and await build.runs():
                (seconds,) = await edits_found(bench, send, range(edit, edit + 1))
                edit += 1
                if await build.runs():
                    beside.append(seconds)
            builds.append({**await build.end(), "samples": len(beside) - before})
        producer.flush(10)
        without, with_build = quantiles(alone), quantiles(beside)
        return {
            "samples": samples,
            "pages": PAGES,
            "without": without,
            "with_build": with_build,
            "p50_ratio": with_build["p50"] / without["p50"],
            "p99_ratio": with_build["p99"] / without["p99"],
            "builds": builds,
            "target": "p99_ratio <= 2",
        }


class _Build:
    """A rollout under way in a process of its own. Nobody agrees to its switch, so the batch stays a build."""

    def __init__(self, bench: Installation, batch: str, rolling: asyncio.subprocess.Process) -> None:
        self._bench = bench
        self._batch = batch
        self._rolling = rolling
        self._began = time.monotonic()

    @classmethod
    async def begin(cls, bench: Installation, version: int) -> _Build:
        """Start the rollout and return as soon as the first chunks of the build are in the index."""
        tokens = 300 - _FEWER_TOKENS * version
        text = POLICY.replace("version: 1", f"version: {version}").replace("max_tokens: 300", f"max_tokens: {tokens}")
        await asyncio.to_thread((bench.folder / "next.yaml").write_text, text, encoding="utf-8")
        pipe = asyncio.subprocess.PIPE
        rolling = await asyncio.create_subprocess_exec(
            sys.executable, "-m", "streams.cli", "rollout", "next.yaml",
            env=bench.environment, cwd=bench.folder, stdin=asyncio.subprocess.DEVNULL, stdout=pipe, stderr=pipe,
        )  # fmt: skip
        made = cls(bench, load_policy(text).batch_id, rolling)
        while not await made._points():
            assert rolling.returncode is None, await made._said()
            assert time.monotonic() - made._began < PATIENCE, bench.log()[-2000:]
            await asyncio.sleep(0.1)
        return made

    async def runs(self) -> bool:
        """Return whether records are still before the build."""
        topics = self._bench.settings.topics
        places = [topics.parsed, topics.changes(self._batch)]
        parts = await asyncio.to_thread(group_lag, self._bench.kafka, topics.batch_group(self._batch), places)
        return sum(part.lag for part in parts) >= STILL_BUILDING

    async def end(self) -> dict[str, Any]:
        """Wait until the gate is passed, and retire the batch. Returns what was built."""
        said = await asyncio.wait_for(self._said(), PATIENCE)
        assert self._rolling.returncode == 0, said
        points, seconds = await self._points(), time.monotonic() - self._began
        done = await self._bench.docdelta("retire", self._batch, "--yes", "--force")
        assert done.returncode == 0, done.stderr
        return {"chunks": points, "seconds_to_gate": seconds}

    async def _points(self) -> int:
        index = self._bench.shim.index
        return await index.count(self._batch) if self._batch in await index.collections() else 0

    async def _said(self) -> str:
        out, errors = await self._rolling.communicate()
        return (out + errors).decode(errors="replace")[-3000:]
