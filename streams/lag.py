"""Lag as the broker tells it: of every group, in records and as the age of the oldest event ahead of it.

Every worker reads it on a timer, for all groups and not only its own: a worker that has stopped can't tell that it has, the others
can. The fetcher's own figures are stale under backpressure, so offsets are asked from the broker. Ages need the record itself: one
short read from where a group stands, for partitions where it is behind and has moved since the last time.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from functools import partial

import structlog
from confluent_kafka import KafkaError, TopicPartition

from schemas.batch import BatchRecord
from schemas.record import split_document_key
from streams import metrics
from streams.daemon import in_daemon_thread
from streams.errors import DocdeltaError
from streams.kafka.client import make_consumer
from streams.kafka.offsets import PartitionLag
from streams.reading.waiting import BUILDS as BUILDS
from streams.reading.waiting import GroupLag, group_lags
from streams.repair.letter_reader import LetterReader
from streams.settings import KafkaSettings, Settings

log = structlog.get_logger(__name__)
LOOK_AHEAD_RECORDS = 200
LOOK_AHEAD_BYTES = 8 << 20
LOOK_AHEAD_SECONDS = 5.0
"""How far ahead of a group tenants are looked for: per partition, in all, and in time. A tenant further back waits less long than
those who are seen."""


@dataclass(frozen=True, slots=True)
class Ahead:
    """What lies ahead of a group in one partition: when the first record was written, and the first of each tenant seen."""

    position: int
    """Offset from which was read."""
    oldest: float | None = None
    """Seconds since 1970; None where there is no record any more (compacted away) or the broker does not tell."""
    tenants: Mapping[str, float] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Reading:
    """One reading: what the gauges show."""

    groups: tuple[GroupLag, ...]
    ahead: Mapping[tuple[str, str, int], Ahead]
    """By (group, topic, partition), where the group is behind."""
    dead_letters: int
    """Open ones."""

    def seconds(self, group: str, partition: PartitionLag, now: float) -> float:
        """Return the age of the oldest record ahead of a group in a partition; 0 where there is none."""
        ahead = self.ahead.get((group, partition.topic, partition.partition))
        return 0.0 if ahead is None or ahead.oldest is None else max(0.0, now - ahead.oldest)

    def oldest_by_tenant(self, builds: Iterable[str], top: int = metrics.TOP_TENANTS, lane: str = "live") -> dict[str, float]:
        """Return the tenants that wait longest in a lane, and since when, without those that wait for groups in `builds` only."""
        skipped, lanes = set(builds), {group.group: group.lane for group in self.groups}
        since: dict[str, float] = {}
        for (group, _, _), ahead in self.ahead.items():
            if group not in skipped and lanes.get(group, "live") == lane:
                for tenant, when in ahead.tenants.items():
                    since[tenant] = min(when, since.get(tenant, when))
        return dict(sorted(since.items(), key=lambda found: found[1])[:top])


@dataclass(slots=True)
class LagReader:
    """Reads lag. Blocking, for one thread at a time; remembers what it read ahead where a group has not moved."""

    settings: Settings
    count_letters: bool = True
    """False: dead letters are counted elsewhere; their index is neither read nor kept."""
    _ahead: dict[tuple[str, str, int], Ahead] = field(default_factory=dict)
    _letters: LetterReader | None = None

    def read(self, batches: Iterable[BatchRecord]) -> Reading:
        """Return how far the parser and each live batch are. NotPrepared, NotReachable and their like."""
        batches = list(batches)
        groups = group_lags(self.settings, batches)
        behind: dict[tuple[str, str, int], int] = {
            (group.group, each.topic, each.partition): max(each.begin, each.committed or 0)
            for group in groups
            for each in group.partitions
            if each.lag
        }
        known = {place: self._ahead[place] for place, start in behind.items() if self._still(place, start)}
        self._ahead = known
        for group in groups:
            fresh = {place: start for place, start in behind.items() if place[0] == group.group and place not in known}
            self._ahead |= look_ahead(self.settings.kafka, fresh)
        retired = [batch.batch for batch in batches if batch.state == "retired"]
        return Reading(tuple(groups), dict(self._ahead), self._open_letters(retired) if self.count_letters else 0)

    def _open_letters(self, retired: list[str]) -> int:
        """Return how many dead letters are open, and keep their index, so that nobody need find out again."""
        if self._letters is None:
            self._letters = LetterReader(self.settings)
        book, now = self._letters.refresh(), datetime.now(UTC)
        book.retire(retired, now)
        try:
            self._letters.keep(now)
        except DocdeltaError as error:  # a reader without it only reads more
            log.warning("the index of dead letters can't be kept", reason=str(error))
        return book.open_count

    def _still(self, place: tuple[str, str, int], start: int) -> bool:
        found = self._ahead.get(place)
        return found is not None and found.position == start and found.oldest is not None


def look_ahead(settings: KafkaSettings, starts: Mapping[tuple[str, str, int], int]) -> dict[tuple[str, str, int], Ahead]:
    """Return what lies from `starts` on, at (one group, topic, partition)."""
    if not starts:
        return {}
    group = next(iter(starts))[0]
    firsts: dict[tuple[str, int], float | None] = {}
    tenants: dict[tuple[str, int], dict[str, float]] = {(topic, partition): {} for _, topic, partition in starts}
    unread = dict.fromkeys(tenants, LOOK_AHEAD_RECORDS)
    room = LOOK_AHEAD_BYTES
    deadline = time.monotonic() + LOOK_AHEAD_SECONDS
    consumer = make_consumer(settings)
    try:
        consumer.assign([TopicPartition(topic, partition, start) for (_, topic, partition), start in starts.items()])
        while unread and time.monotonic() < deadline and (room > 0 or len(firsts) < len(tenants)):
            for message in consumer.consume(100, timeout=0.2):
                place = (message.topic(), message.partition())
                error = message.error()
                if error is not None:
                    if error.code() == KafkaError._PARTITION_EOF:
                        unread.pop(place, None)
                    continue
                if place not in unread:
                    continue
                room -= len(message.value() or b"")
                kind, milliseconds = message.timestamp()
                when = milliseconds / 1000 if kind and milliseconds > 0 else None
                firsts.setdefault(place, when)
                if when is not None and (tenant := _tenant(message.key())):
                    tenants[place].setdefault(tenant, when)
                unread[place] -= 1
                if not unread[place]:
                    del unread[place]
    finally:
        consumer.close()
    return {
        (group, topic, partition): Ahead(start, firsts.get((topic, partition)), tenants[topic, partition])
        for (_, topic, partition), start in starts.items()
    }


def _tenant(key: bytes | None) -> str:
    try:
        return split_document_key(key or b"")[0]
    except ValueError:
        return ""


def show(reading: Reading, batches: Iterable[BatchRecord], settings: Settings, now: float) -> None:
    """Set the gauges to a reading. Groups that are gone go with it."""
    batches = list(batches)
    metrics.LAG_RECORDS.clear()
    metrics.LAG_SECONDS.clear()
    for group in reading.groups:
        for each in group.partitions:
            labels = (group.group, each.topic, str(each.partition), group.lane)
            metrics.LAG_RECORDS.labels(*labels).set(each.lag)
            metrics.LAG_SECONDS.labels(*labels).set(reading.seconds(group.group, each, now))
    builds = [settings.topics.batch_group(batch.batch) for batch in batches if batch.state in BUILDS]
    metrics.OLDEST_UNSYNCED.clear()
    for lane in metrics.EVENT_LANES:
        for tenant, since in reading.oldest_by_tenant(builds, lane=lane).items():
            metrics.OLDEST_UNSYNCED.labels(tenant, lane).set(max(0.0, now - since))
    metrics.DEAD_LETTER_RECORDS.set(reading.dead_letters)
    metrics.batch_states({batch.batch: batch.state for batch in batches})
    metrics.BUILD_PROGRESS.clear()
    metrics.BUILD_REMAINING.clear()
    positions = {group.group: group.partitions for group in reading.groups}
    for batch in batches:
        if batch.state in BUILDS and batch.launch is not None:
            places = positions.get(settings.topics.batch_group(batch.batch), ())
            parsed = [each for each in places if each.topic == settings.topics.parsed]
            passed, whole = build_progress(batch.launch.parsed, parsed)
            metrics.BUILD_REMAINING.labels(batch.batch).set(whole - passed)
            metrics.BUILD_PROGRESS.labels(batch.batch).set(passed / whole if whole else 1.0)
    metrics.LAG_READ.set(now)


def build_progress(launch: Mapping[int, int], parsed: Iterable[PartitionLag]) -> tuple[int, int]:
    """Return how many of the records that stood in [parsed] at launch are passed, and how many there are. Gaps that compaction left
    count as records on both sides."""
    passed = whole = 0
    for each in parsed:
        end = launch.get(each.partition, 0)
        share = max(0, end - each.begin)
        whole += share
        passed += min(share, max(0, (each.committed or 0) - each.begin))
    return passed, whole


async def watch_lag(settings: Settings, batches: Callable[[], list[BatchRecord]], seconds: float) -> None:
    """Read lag every `seconds`, for ever. A reading that fails is counted and said; the gauges keep the last one and its time."""
    reader = LagReader(settings)
    while True:
        now_known = batches()
        try:
            reading = await in_daemon_thread(partial(reader.read, now_known), "reads lag")
            show(reading, now_known, settings, time.time())
        except Exception as error:  # noqa: BLE001 - a figure that can't be had must not take the worker down
            metrics.LAG_READ_FAILURES.inc()
            log.warning("lag can't be read", reason=repr(error))
        await asyncio.sleep(seconds)
