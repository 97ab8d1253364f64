"""How far each consumer group is, and which document waits longest."""

from __future__ import annotations

import time
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime

from confluent_kafka import KafkaError, TopicPartition

from schemas.batch import LIVE_STATES, BatchRecord
from schemas.record import split_document_key
from streams.kafka.admin import PartitionLag, group_lag
from streams.kafka.client import make_consumer
from streams.settings import KafkaSettings, Settings

READ_SECONDS = 10.0
BUILDS = ("building", "ready")
"""States of batches that nobody is served from yet."""


@dataclass(frozen=True, slots=True)
class GroupLag:
    """One consumer group and how far it is in each partition it reads."""

    group: str
    partitions: tuple[PartitionLag, ...]
    lane: str = "live"
    """Whose work it is (`streams.metrics.GROUP_LANES`): edits that somebody waits for, what waits in [bulk], or a build."""

    @property
    def lag(self) -> int:
        """Records ahead of the group, over all its partitions."""
        return sum(partition.lag for partition in self.partitions)


@dataclass(frozen=True, slots=True)
class Waiting:
    """The record a group will take next in one partition. `since`: when it was written; None where the broker does not tell."""

    group: str
    topic: str
    partition: int
    offset: int
    tenant_id: str
    document_id: str
    since: datetime | None


def group_lags(settings: Settings, batches: Iterable[BatchRecord]) -> list[GroupLag]:
    """Return the lag of the parser's group, of each live batch's, and of the feeder's. NotPrepared when a topic is missing."""
    topics = settings.topics
    groups = [(topics.parser_group, [topics.documents], "live")]
    for batch in batches:
        if batch.state in LIVE_STATES:
            lane = "build" if batch.state in BUILDS else "live"
            groups.append((topics.batch_group(batch.batch), [topics.parsed, topics.changes(batch.batch)], lane))
    groups.append((topics.feeder_group, [topics.bulk], "bulk"))
    return [GroupLag(group, tuple(group_lag(settings.kafka, group, names)), lane) for group, names, lane in groups]


def oldest_waiting(settings: KafkaSettings, groups: Sequence[GroupLag]) -> Waiting | None:
    """Return the record that has waited longest for its group, or None when nothing waits. Records of [bulk] come last."""
    others = [group for group in groups if group.lane != "bulk"]
    waiting = [found for group in others for found in _next_records(settings, group)]
    if not waiting:
        waiting = [found for group in groups if group.lane == "bulk" for found in _next_records(settings, group)]
    dated = [found for found in waiting if found.since is not None]
    if dated:
        return min(dated, key=lambda found: found.since or datetime.max.replace(tzinfo=UTC))
    return waiting[0] if waiting else None


def _next_records(settings: KafkaSettings, group: GroupLag) -> list[Waiting]:
    """Return the first record ahead of the group in each partition where it is behind."""
    behind = {(each.topic, each.partition): max(each.begin, each.committed or 0) for each in group.partitions if each.lag}
    if not behind:
        return []
    consumer = make_consumer(settings)
    found: list[Waiting] = []
    try:
        consumer.assign([TopicPartition(topic, partition, offset) for (topic, partition), offset in behind.items()])
        deadline = time.monotonic() + READ_SECONDS
        while behind and time.monotonic() < deadline:
            for message in consumer.consume(100, timeout=0.2):
                place = (message.topic(), message.partition())
                error = message.error()
                if error is not None and error.code() != KafkaError._PARTITION_EOF:
                    continue
                if behind.pop(place, None) is None or error is not None:
                    continue
                found.append(_waiting(group.group, place, message.offset(), message.key(), message.timestamp()))
    finally:
        consumer.close()
    return found


def _waiting(group: str, place: tuple[str, int], offset: int, key: bytes | None, timestamp: tuple[int, int]) -> Waiting:
    try:
        tenant, document = split_document_key(key or b"")
    except ValueError:
        tenant, document = "", repr(key)
    kind, milliseconds = timestamp
    try:
        since = datetime.fromtimestamp(milliseconds / 1000, UTC) if kind else None
    except (ValueError, OverflowError, OSError):  # a time that no calendar has: the producer's clock
        since = None
    return Waiting(group, place[0], place[1], offset, tenant, document, since)
