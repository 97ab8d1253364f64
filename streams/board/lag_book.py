"""LagBook: readings of lag as the page shows them, with how long each group has stood still."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from schemas.batch import BatchRecord
from streams.kafka.offsets import PartitionLag
from streams.lag import BUILDS, Reading, build_progress
from streams.reading.waiting import GroupLag, Waiting
from streams.topics import TopicNames

SHOWN_PARTITIONS = 48
"""Partitions of a group that are listed, those furthest behind first."""


@dataclass(frozen=True, slots=True)
class PartitionRow:
    """One partition of one group. `since`: when the oldest record ahead was written, seconds since 1970."""

    topic: str
    partition: int
    end: int
    lag: int
    since: float | None


@dataclass(frozen=True, slots=True)
class GroupRow:
    """One consumer group. `batch` is empty for one that serves all batches; `lane`: live, bulk or build, whose work it is."""

    group: str
    batch: str
    lane: str
    lag: int
    since: float | None
    """When the oldest record ahead of it was written."""
    stands: float | None
    """Since when its offsets have not moved although records are ahead; None while they move."""
    members: int | None
    """Workers in the group; None where the broker does not tell."""
    partitions: tuple[PartitionRow, ...]
    hidden: int
    """Partitions that are not listed."""

    @property
    def is_live(self) -> bool:
        """True for a group whose work somebody waits for."""
        return self.lane == "live"


@dataclass(frozen=True, slots=True)
class Progress:
    """How far a build is: records of [parsed] at launch that are passed, and all of them."""

    passed: int
    whole: int


class LagBook:
    """The newest reading. One `take` a reading; groups that are gone are forgotten."""

    def __init__(self, topics: TopicNames) -> None:
        self._topics = topics
        self._moved: dict[str, tuple[int, float]] = {}
        self.at: float | None = None
        self.rows: tuple[GroupRow, ...] = ()
        self.progress: dict[str, Progress] = {}
        self.oldest: Waiting | None = None
        self.tenants: dict[str, float] = {}
        """Tenants that wait longest for what is served, and since when."""

    def take(
        self,
        reading: Reading,
        oldest: Waiting | None,
        members: Mapping[str, int],
        batches: Iterable[BatchRecord],
        now: float,
    ) -> None:
        """Take a reading of `now`."""
        batches = list(batches)
        by_group = {self._topics.batch_group(batch.batch): batch for batch in batches}
        rows, moved = [], {}
        for group in reading.groups:
            moved[group.group] = self._last_move(group, now)
            rows.append(self._row(group, reading, by_group.get(group.group), moved[group.group][1], members.get(group.group)))
        self._moved = moved
        self.rows, self.oldest, self.at = tuple(rows), oldest, now
        builds = [name for name, batch in by_group.items() if batch.state in BUILDS]
        self.tenants = reading.oldest_by_tenant(builds)
        self.progress = {
            batch.batch: Progress(*build_progress(batch.launch.parsed, self._parsed(group)))
            for group in reading.groups
            if (batch := by_group.get(group.group)) is not None and batch.launch is not None
        }

    def _parsed(self, group: GroupLag) -> list[PartitionLag]:
        return [each for each in group.partitions if each.topic == self._topics.parsed]

    def _last_move(self, group: GroupLag, now: float) -> tuple[int, float]:
        place = sum(each.committed or 0 for each in group.partitions)
        before = self._moved.get(group.group)
        stood = before is not None and before[0] == place and group.lag
        return (place, before[1] if stood and before is not None else now)

    def _row(
        self, group: GroupLag, reading: Reading, batch: BatchRecord | None, moved: float, members: int | None
    ) -> GroupRow:
        parts = [
            PartitionRow(
                each.topic,
                each.partition,
                each.end,
                each.lag,
                ahead.oldest if (ahead := reading.ahead.get((group.group, each.topic, each.partition))) else None,
            )
            for each in group.partitions
        ]
        parts.sort(key=lambda part: (-part.lag, part.topic, part.partition))
        ages = [part.since for part in parts if part.lag and part.since is not None]
        return GroupRow(
            group=group.group,
            batch=batch.batch if batch else "",
            lane=group.lane,
            lag=group.lag,
            since=min(ages) if ages else None,
            stands=moved if group.lag else None,
            members=members,
            partitions=tuple(parts[:SHOWN_PARTITIONS]),
            hidden=max(0, len(parts) - SHOWN_PARTITIONS),
        )
