"""Watch: the continuous audit of one batch within a worker. Gentle, only of the partitions it owns, and it changes nothing.

Partition by partition, its manifests are held against counts of digests (`walk.py`); documents that differ are looked at again with
a pause between, and count as drift when two looks agree and nothing of them is on its way. What drifted is looked at again until
it is mended. Facets and points are charged to a rate (`audit.points_per_second`), and live work goes first.

A round takes as long as the rate asks for. What takes longer than QUICK_SECONDS is looked at otherwise between two groups, each
time `audit.every_seconds` are over: what should stand in a partition (`expected.py`) is held against one count of the index. Points
that are missing or left over show so at once, whatever the size; points that are written otherwise (payload, order) change no count
and wait for the round.

It sees what marks can see. Vectors, payloads edited under their own hash, points without marks, and documents that the batch has
never heard of, are for `docdelta audit`, which has the whole log before it.
"""

from __future__ import annotations

import asyncio
import time
from collections import Counter
from collections.abc import Awaitable, Callable, Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from itertools import islice
from typing import Protocol

import structlog

from chunking.manifest import Manifest
from schemas.record import split_document_key
from streams import metrics
from streams.audit.compare import Group, chunks_in, groups
from streams.audit.expected import BLOCKS, FAN, Expected, OnRow
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
NAMED = 20
"""Documents that the log names while anything drifts; the others are counted by the metric and named by `docdelta audit`."""
ROWS = 2_000
"""Rows of a table that are read before the loop may do something else."""
QUICK_SECONDS = 5.0
"""A round that takes no longer needs no quick look."""
COUNT_AGAIN_SECONDS = 2.0
"""A count that differs is taken again after that: what was on its way has mostly arrived."""
TOO_FAR_BEHIND = 5_000
"""With so many records ahead of the batch in a partition nothing of it is judged."""


class Owned(Protocol):
    """What a watch sees of its batch app."""

    def partitions(self) -> tuple[int, ...]:
        """Return the partitions that this worker owns and that are recovered; none while they move."""
        ...

    def generation(self) -> int:
        """Return a number that changes whenever partitions are given out anew."""
        ...

    def follow(self, on_row: OnRow) -> None:
        """Have a function called with each row that is written from now on."""
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
    _named: int = 0
    _counted: int = 0
    _expected: dict[int, Expected] = field(default_factory=dict)
    _generation: int = -1
    _explained: dict[tuple[int, int], int] = field(default_factory=dict)
    """By partition and block: a difference of counts that was looked at. It tells nothing new until it changes."""
    _quick_at: float = 0.0
    _judged_at: float = 0.0
    _ahead: int = 0
    """Points of this round that are not compared yet."""

    def __post_init__(self) -> None:
        self.owned.follow(self._row_written)
        self._judged_at = self._quick_at = self.elapsed()

    async def run(self) -> None:
        """Watch for ever. Errors of index and broker end a round, not the watch."""
        metrics.AUDIT_ROUND.labels(self.batch).set(self.now())
        metrics.AUDIT_COMPARED.labels(self.batch)
        metrics.AUDIT_READ.labels(self.batch)
        self.show()
        self._show_pass()
        try:
            while True:
                await self._rest(self.every_seconds)
                if not self.is_live():
                    metrics.AUDIT_ROUND.labels(self.batch).set(self.now())  # a build is proven by its gate
                    continue
                if await self._tried(self.round):
                    self._ahead = 0
                    self._show_pass()
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
        await self._expect()
        await self._quick_look()
        partitions = self.owned.partitions()
        self._ahead = sum(self._expected[each].total for each in partitions if each in self._expected)
        for partition in partitions:
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
            weight = sum(weights[key] for key in group.keys)
            await self._turn(weight)
            self._ahead = max(0, self._ahead - weight)
            if self.elapsed() - self._quick_at >= self.every_seconds:
                await self._quick_look()
            elif self.suspects and self.elapsed() - self._judged_at >= LOOK_AGAIN_SECONDS:
                await self.look_again()
            self._show_pass()
            if partition not in self.owned.partitions():
                return False
            self._suspect(await self._differing(walk, partition, group))
        return True

    def _row_written(self, partition: int, key: bytes, before: bytes | None, after: bytes) -> None:
        expected = self._expected.get(partition)
        if expected is not None:
            expected.change(key, before, after)

    async def _expect(self) -> None:
        """Know what should stand in each owned partition: its rows are read once, as long as partitions stay where they are."""
        generation = self.owned.generation()
        if generation != self._generation:
            self._expected, self._explained, self._generation = {}, {}, generation
        for partition in self.owned.partitions():
            if partition in self._expected and self._expected[partition].loaded:
                continue
            made = self._expected[partition] = Expected(partition)
            for number, _ in enumerate(made.load(self.owned.rows(partition))):
                if number % ROWS == ROWS - 1:
                    await self.sleep(0)
                    if self.owned.generation() != generation:
                        self._generation = -1
                        return

    async def _quick_look(self) -> None:
        """Hold counts of whole partitions against what should be there, and have what differs looked at now."""
        self._quick_at = self.elapsed()
        await self._expect()
        known = {each: self._expected[each] for each in self.owned.partitions() if self._is_known(each)}
        if sum(each.total for each in known.values()) <= QUICK_SECONDS * self.points_per_second:
            return
        await self.quiet()
        for partition, expected in known.items():
            if not await self._counts_differ(expected):
                continue
            await self.sleep(COUNT_AGAIN_SECONDS)
            differing = await self._blocks_that_differ(expected)
            if differing and self._is_known(partition):
                await self._look_at(expected, differing)
        await self.look_again()

    def _is_known(self, partition: int) -> bool:
        expected = self._expected.get(partition)
        same = self.owned.generation() == self._generation and partition in self.owned.partitions()
        return same and expected is not None and expected.loaded

    async def _counts_differ(self, expected: Expected) -> bool:
        """Return whether a partition as a whole holds other than it should, what was looked at already left out."""
        there = await self.index.count(self.collection, expected.buckets(0, BLOCKS))
        explained = sum(more for (partition, _), more in self._explained.items() if partition == expected.partition)
        return there - expected.total != explained

    async def _blocks_that_differ(self, expected: Expected) -> dict[int, int]:
        """Return the blocks that hold other than they should and were not looked at so, and by how many points."""
        found: dict[int, int] = {}
        for first in range(0, BLOCKS, FAN):
            explained = sum(self._explained.get((expected.partition, block), 0) for block in range(first, first + FAN))
            if await self._more(expected, first, first + FAN) == explained:
                continue
            for block in range(first, first + FAN):
                more, known = await self._more(expected, block, block + 1), self._explained.get((expected.partition, block), 0)
                if not more:
                    self._explained.pop((expected.partition, block), None)
                elif more != known:
                    found[block] = more
        return found

    async def _more(self, expected: Expected, first: int, end: int) -> int:
        return await self.index.count(self.collection, expected.buckets(first, end)) - expected.within(first, end)

    async def _look_at(self, expected: Expected, differing: Mapping[int, int]) -> None:
        """Take the documents of these blocks that differ as suspects. One that is sound is let go at its first judgement."""
        partition = expected.partition
        keys: dict[int, list[bytes]] = {block: [] for block in differing}
        for number, (key, _) in enumerate(self.owned.rows(partition)):
            if (block := expected.block_of(key)) in keys:
                keys[block].append(key)
            if number % ROWS == ROWS - 1:
                await self.sleep(0)
                if not self._is_known(partition):
                    return
        walk = Walk(self.index, self.collection, self.partitions)
        for block, more in differing.items():
            group = Group(*expected.buckets(block, block + 1), tuple(keys[block]))
            self._suspect(await self._differing(walk, partition, group))
            self._explained[partition, block] = more
            await self._turn(0)

    def _suspect(self, keys: Collection[bytes]) -> None:
        for key in keys:
            home = partition_of(key, self.partitions)  # a mark may stand in the wrong place
            if home in self.owned.partitions():
                self.suspects.setdefault(key, _Suspect(home))

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
        owned, self._judged_at = self.owned.partitions(), self.elapsed()
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
                    self._name(key, found)
                suspect.confirmed = True
            else:
                suspect.manifest, suspect.found, suspect.judged = manifest, found, True

    def _name(self, key: bytes, found: Iterable[Finding]) -> None:
        """Name a document in the log, unless enough were."""
        self._named += 1
        if self._named <= NAMED:
            kinds = dict(Counter(finding.kind for finding in found))
            log.warning("drift found", batch=self.batch, document=key.decode("utf-8", "replace"), kinds=kinds)
        elif self._named == NAMED + 1:
            log.warning("drift found in more documents", batch=self.batch, see="docdelta audit")

    def _show_pass(self) -> None:
        metrics.AUDIT_LEFT.labels(self.batch).set(self._ahead / self.points_per_second)

    def show(self) -> None:
        """Set the gauges to what drifts now."""
        kinds = Counter(finding.kind for suspect in self.suspects.values() if suspect.confirmed for finding in suspect.found)
        if not kinds:
            self._named = 0
        for kind in POINT_KINDS:
            metrics.DRIFT.labels(self.batch, kind).set(kinds[kind])
