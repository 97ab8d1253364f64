"""progress: how far a build is, as receipts and the group's offsets tell it, until it may be put before the gate."""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import AsyncIterator
from dataclasses import dataclass

from schemas.batch import BatchRecord
from streams.batches.hosts import Hosts
from streams.batches.ledger import read_ledger
from streams.batches.outcomes import Outcomes
from streams.controls.standing import read_controls
from streams.controls.state import Controls
from streams.errors import NotPrepared
from streams.kafka.admin import group_lag
from streams.kafka.members import group_members
from streams.kafka.offsets import PartitionLag
from streams.kafka.read import Follower
from streams.settings import Settings
from streams.words import counted

LOOK_SECONDS = 1.0
STALLED_SECONDS = 30.0
"""So long without a step is worth a word."""
REFUSED_SECONDS = 15.0
"""So long without a step, a build that workers refuse and none has is given up: time for one that was mended to start."""
HOSTS_SECONDS = 5.0
"""So long without a step, it is looked who hosts the build, and again as often."""


@dataclass(frozen=True, slots=True)
class Progress:
    """One look at a build. `stalled`: seconds since anything moved."""

    documents: int
    of_documents: int
    chunks: int
    embedded: int
    borrowed: int
    refused: int
    lag: int
    left: int
    """Offsets of [parsed] that stood at launch and are not past yet."""
    eta_seconds: float | None
    stalled: float
    hosts: Hosts | None = None
    """Who hosts the build; looked up only while nothing moves."""

    @property
    def given_up(self) -> bool:
        """True when nothing will move: workers refuse the build, none has it, and that for a while."""
        return self.hosts is not None and self.hosts.refused and self.stalled > REFUSED_SECONDS

    def __str__(self) -> str:
        eta = f", about {self.eta_seconds:,.0f} s to go" if self.eta_seconds is not None and self.left else ""
        refused = f", {self.refused:,} refused" if self.refused else ""
        quiet = "; nothing moves: do workers run, and what do their logs say?" if self.stalled > STALLED_SECONDS else ""
        if self.hosts is not None and self.hosts.problem:
            quiet = f"; {self.hosts.problem}"
        return (
            f"{self.documents:,} of {counted(max(self.of_documents, self.documents), 'document')}, {counted(self.chunks, 'chunk')} "
            f"({self.embedded:,} embedded, {self.borrowed:,} borrowed){refused}, lag {self.lag:,}{eta}{quiet}"
        )


async def follow_build(settings: Settings, batch: BatchRecord) -> AsyncIterator[Progress]:
    """Yield a look about every second. Never ends by itself. Raises NotPrepared when the batch's topics are gone."""
    outcomes = Outcomes(batch.batch)
    follower = Follower(settings.kafka, settings.topics.receipts)
    await follower.start()

    async def read() -> None:
        async for record in follower:
            outcomes.take(record)

    reading = asyncio.create_task(read())
    began, moved, last = time.monotonic(), time.monotonic(), (-1, -1)
    first: int | None = None
    hosts, asked = None, 0.0
    try:
        while True:
            offsets = await asyncio.to_thread(
                group_lag,
                settings.kafka,
                settings.topics.batch_group(batch.batch),
                [settings.topics.parsed, settings.topics.changes(batch.batch)],
            )
            if reading.done():
                reading.result()  # raises what ended it
            left, lag = left_of_launch(batch, settings.topics.parsed, offsets), sum(each.lag for each in offsets)
            now = time.monotonic()
            if (len(outcomes.events), left) != last:
                last, moved = (len(outcomes.events), left), now
            if not lag or now - moved < HOSTS_SECONDS:
                hosts = None
            elif hosts is None or now - asked > HOSTS_SECONDS:
                hosts, asked = await asyncio.to_thread(_hosts, settings, batch, offsets), now
            first = left if first is None else first
            done = first - left
            yield Progress(
                documents=outcomes.documents,
                of_documents=batch.launch.documents if batch.launch else 0,
                chunks=outcomes.chunks,
                embedded=outcomes.embedded,
                borrowed=outcomes.borrowed,
                refused=len(outcomes.of("dead_lettered")),
                lag=lag,
                left=left,
                eta_seconds=left * (now - began) / done if done > 0 else None,
                stalled=now - moved if lag else 0.0,
                hosts=hosts,
            )
            await asyncio.sleep(LOOK_SECONDS)
    finally:
        reading.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await reading
        await follower.stop()


def _hosts(settings: Settings, batch: BatchRecord, offsets: list[PartitionLag]) -> Hosts:
    """Return who hosts a build, whatever its state was when it began to be followed."""
    group = settings.topics.batch_group(batch.batch)
    try:
        controls = read_controls(settings)
    except NotPrepared:  # a cluster from before there was [controls]
        controls = Controls()
    newest = read_ledger(settings).batches.get(batch.batch, batch)  # its pace may have been changed: that is another claim
    members = group_members(settings.kafka, [group]).get(group)
    began = any(each.committed is not None for each in offsets)
    return Hosts(batch.batch, members, controls.refusals_of(newest), began)


def left_of_launch(batch: BatchRecord, parsed_topic: str, offsets: list[PartitionLag]) -> int:
    """Return how many offsets of [parsed] that stood at launch the batch has not passed."""
    ends = batch.launch.parsed if batch.launch else {}
    behind = (
        ends[each.partition] - max(each.begin, each.committed or 0)
        for each in offsets
        if each.topic == parsed_topic and each.partition in ends
    )
    return sum(max(0, records) for records in behind)
