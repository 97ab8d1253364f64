"""Watch: the continuous audit of one batch within a worker. Gentle, only of the partitions it owns, and it changes nothing.

Partition by partition, its manifests are held against counts of digests (`walk.py`); documents that differ are looked at again with
a pause between, and count as drift when two looks agree and nothing of them is on its way. What drifted is looked at again until
it is mended. Facets and points are charged to a rate (`audit.points_per_second`), and live work goes first.

It sees what marks can see. Vectors, payloads edited under their own hash, points without marks, and documents that the batch has
never heard of, are for `docdelta audit`, which has the whole log before it.
"""

from __future__ import annotations

import asyncio
import time
from collections import Counter
from collections.abc import Awaitable, Callable, Iterator, Mapping
from dataclasses import dataclass, field
from itertools import islice
from typing import Protocol

import structlog

from chunking.manifest import Manifest
from schemas.record import split_document_key
from streams import metrics
from streams.audit.compare import Group, chunks_in, groups
from streams.audit.findings import POINT_KINDS, Finding
from streams.audit.walk import Walk
from streams.errors import DocdeltaError
from streams.index.marks import BUCKETS, bucket_of
from streams.kafka.partitioner import partition_of
from streams.ports import VectorIndex

log = structlog.get_logger(__name__)
LOOK_AGAIN_SECONDS = 10.0
AT_ONCE = 200
"""Documents that are looked at in one go."""
ROWS = 2_000
"""Rows of a table that are read before the loop may do something else."""
TOO_FAR_BEHIND = 5_000
"""With so many records ahead of the batch in a partition nothing of it is judged."""


class Owned(Protocol):
    """What a watch sees of its batch app."""

    def partitions(self) -> tuple[int, ...]:
        """Return the partitions that this worker owns and that are recovered; none while they move."""
        ...

    def rows(self, partition: int) -> Iterator[tuple[bytes, bytes]]:
        """Yield the manifests of a partition as they are stored."""
        ...

    def manifest(self, partition: int, key: bytes) -> Manifest | None:
        """Return a manifest as it is now."""
        ...

    async def in_flight(self, partition: int, limit: int) -> frozenset[bytes] | None:
        """Return the documents with an event or delta that is not committed, or None where these are more than `limit`."""
        ...


@dataclass(slots=True)
class _Suspect:
    partition: int
    manifest: Manifest | None = None
    found: tuple[Finding, ...] = ()
    judged: bool = False
    confirmed: bool = False


@dataclass(slots=True)
class Watch:
    """One batch under watch. `quiet` returns when live work allows; `is_live` is false while the batch is built."""

    batch: str
    collection: str
    index: VectorIndex
    owned: Owned
    partitions: int
    points_per_second: float
    every_seconds: float
    quiet: Callable[[], Awaitable[None]]
    is_live: Callable[[], bool] = lambda: True
    sleep: Callable[[float], Awaitable[None]] = asyncio.sleep
    now: Callable[[], float] = time.time
    """For the metric."""
    elapsed: Callable[[], float] = time.monotonic
    """For waits: a clock that is set back must not stop the watch."""
    suspects: dict[bytes, _Suspect] = field(default_factory=dict)
    _counted: int = 0

    async def run(self) -> None:
        """Watch for ever. Errors of index and broker end a round, not the watch."""
        metrics.AUDIT_ROUND.labels(self.batch).set(self.now())
        metrics.AUDIT_COMPARED.labels(self.batch)
        metrics.AUDIT_READ.labels(self.batch)
        self.show()
        try:
            while True:
                await self._rest(self.every_seconds)
                if not self.is_live():
                    metrics.AUDIT_ROUND.labels(self.batch).set(self.now())  # a build is proven by its gate
                    continue
                if await self._tried(self.round):
                    metrics.AUDIT_ROUND.labels(self.batch).set(self.now())
        finally:
            metrics.forget_audit(self.batch)

    async def _rest(self, seconds: float) -> None:
        """Wait, looking after what drifted meanwhile."""
        until = self.elapsed() + seconds
        while (left := until - self.elapsed()) > 0:
            await self.sleep(min(left, LOOK_AGAIN_SECONDS))
            if self.suspects:
                await self._tried(self.look_again)

    async def _tried(self, work: Callable[[], Awaitable[bool]]) -> bool:
        try:
            return await work()
        except DocdeltaError as error:
            log.warning("audit waits", batch=self.batch, reason=str(error))
        except Exception:  # the watch must not take the worker down
            log.exception("audit round given up", batch=self.batch)
        return False

    async def round(self) -> bool:
        """Look at all owned partitions once. False where they moved meanwhile."""
        walk = Walk(self.index, self.collection, self.partitions)
        complete = True
        for partition in self.owned.partitions():
            complete &= await self._walk(walk, partition)
        await self.look_again()
        if complete:
            log.debug("audit round", batch=self.batch, facets=walk.reads.facets, points=walk.reads.points)
        return complete

    async def _walk(self, walk: Walk, partition: int) -> bool:
        rows: list[tuple[int, bytes, int]] = []
        stored = self.owned.rows(partition)
        while some := list(islice(stored, ROWS)):
            rows += [(bucket_of(partition, *split_document_key(key)), key, chunks_in(value)) for key, value in some]
            await self.sleep(0)
            if partition not in self.owned.partitions():
                return False
        rows.sort()
        weights = {key: weight for _, key, weight in rows}
        for group in groups(rows, partition * BUCKETS, (partition + 1) * BUCKETS):
            await self._turn(sum(weights[key] for key in group.keys))
            if partition not in self.owned.partitions():
                return False
            for key in await self._differing(walk, partition, group):
                home = partition_of(key, self.partitions)  # a mark may stand in the wrong place
                if home in self.owned.partitions():
                    self.suspects.setdefault(key, _Suspect(home))
        return True

    async def _differing(self, walk: Walk, partition: int, group: Group) -> set[bytes]:
        manifests: Mapping[bytes, Manifest] = {
            key: manifest for key in group.keys if (manifest := self.owned.manifest(partition, key)) is not None
        }
        before = walk.reads.points
        differing, _ = await walk.look(group, manifests)
        metrics.AUDIT_COMPARED.labels(self.batch).inc(sum(len(manifest.entries) for manifest in manifests.values()))
        self._charge(walk.reads.points - before)
        return differing

    def _charge(self, points: int) -> None:
        metrics.AUDIT_READ.labels(self.batch).inc(points)
        self._counted += points

    async def _turn(self, points: int) -> None:
        """Wait as long as the rate asks for `points` and what was read since, and until live work allows."""
        cost, self._counted = points + self._counted, 0
        await self.sleep(cost / self.points_per_second)
        await self.quiet()

    async def look_again(self) -> bool:
        """Judge the documents that differed or drifted, and show what drifts now."""
        owned = self.owned.partitions()
        for key in [key for key, suspect in self.suspects.items() if suspect.partition not in owned]:
            del self.suspects[key]  # whoever owns it now looks at it
        for partition in owned:
            keys = [key for key, suspect in self.suspects.items() if suspect.partition == partition][:AT_ONCE]
            if keys:
                await self._judge(partition, keys)
        self.show()
        return True

    async def _judge(self, partition: int, keys: list[bytes]) -> None:
        in_flight = await self.owned.in_flight(partition, TOO_FAR_BEHIND)
        if in_flight is None:
            return
        walk = Walk(self.index, self.collection, self.partitions)
        for key in keys:
            if partition not in self.owned.partitions():
                return
            suspect, manifest = self.suspects.pop(key), self.owned.manifest(partition, key)
            self.suspects[key] = suspect  # behind the others: each gets its turn
            if key in in_flight or (manifest is not None and manifest.suspect):
                suspect.judged = False
                continue
            before = walk.reads.points
            found = await walk.judge(key, manifest)
            self._charge(walk.reads.points - before)
            await self._turn(0)
            if not found:
                del self.suspects[key]
            elif suspect.judged and (suspect.manifest, suspect.found) == (manifest, found):
                if not suspect.confirmed:
                    kinds = dict(Counter(finding.kind for finding in found))
                    log.warning("drift found", batch=self.batch, document=key.decode("utf-8", "replace"), kinds=kinds)
                suspect.confirmed = True
            else:
                suspect.manifest, suspect.found, suspect.judged = manifest, found, True

    def show(self) -> None:
        """Set the gauges to what drifts now."""
        kinds = Counter(finding.kind for suspect in self.suspects.values() if suspect.confirmed for finding in suspect.found)
        for kind in POINT_KINDS:
            metrics.DRIFT.labels(self.batch, kind).set(kinds[kind])
