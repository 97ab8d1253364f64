"""Status: batches with their documents and chunks, lag, the document that waits longest, dead letters."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

from chunking.manifest import Manifest
from schemas.batch import BUILD_STATES, LIVE_STATES, BatchRecord
from streams.batches.hosts import Hosts
from streams.batches.parser_versions import advice
from streams.controls.standing import Standing, pauses_json, read_standing
from streams.controls.state import Controls
from streams.kafka.client import cluster_topics, make_admin
from streams.kafka.members import group_members
from streams.kafka.read import read_topic
from streams.lag import LagReader, Reading
from streams.ports import InRecord, VectorIndex
from streams.reading.waiting import GroupLag, Waiting, oldest_waiting
from streams.repair.dead_letters import read_letters
from streams.settings import Settings


@dataclass(frozen=True, slots=True)
class Held:
    """What the manifests of one batch say the index should hold."""

    documents: int
    chunks: int
    deleted: int


@dataclass(frozen=True, slots=True)
class BatchStatus:
    """One batch. `held` None: not counted. `points` None: the index could not be asked, or has no such collection."""

    record: BatchRecord
    served: bool
    held: Held | None
    points: int | None


@dataclass(frozen=True, slots=True)
class IndexView:
    """What the index says: where the alias points, and points by collection. `problem`: why it could not be asked."""

    alias_target: str | None
    points: dict[str, int]
    problem: str = ""
    away: bool = False
    """Whether the problem is that it gives no answer, and not that none is named."""


@dataclass(frozen=True, slots=True)
class Status:
    """The whole state as `docdelta status` prints it."""

    batches: tuple[BatchStatus, ...]
    groups: tuple[GroupLag, ...]
    oldest: Waiting | None
    dead_letters: int
    """Open ones."""
    alias: str
    problems: tuple[str, ...]
    standing: Standing
    """What is paused, open and held."""
    hosts: tuple[Hosts, ...] = ()
    """Who hosts each build."""
    newest_reason: str = ""
    """Why the newest open dead letter was refused."""
    reading: Reading = field(default_factory=lambda: Reading((), {}, 0))
    members: Mapping[str, int] = field(default_factory=dict)
    """Workers in each group, as far as the broker tells."""

    @property
    def parser_changes(self) -> tuple[str, ...]:
        """What to tell of live batches whose documents were parsed otherwise than this release does."""
        live = [batch.record for batch in self.batches if batch.record.state in LIVE_STATES]
        return tuple(words for record in live if (words := advice(record)))

    @property
    def build_problems(self) -> tuple[str, ...]:
        """What keeps builds from going on. Nothing that is served waits for them."""
        return tuple(each.problem for each in self.hosts if each.problem)

    @property
    def lag(self) -> int:
        """Records ahead of all groups, by what they committed: what is done and not committed yet counts."""
        return sum(group.lag for group in self.groups)

    @property
    def build_lag(self) -> int:
        """Records ahead of builds; part of `lag`."""
        return sum(group.lag for group in self.groups if group.lane == "build")

    @property
    def bulk_lag(self) -> int:
        """Records of [bulk] that are not passed on yet; part of `lag`."""
        return sum(group.lag for group in self.groups if group.lane == "bulk")

    def as_json(self, now: datetime) -> dict[str, Any]:
        """Return the status as `docdelta status --json` prints it."""
        return {
            "batches": [_batch_json(batch) for batch in self.batches],
            "lag": self.lag,
            "bulk_lag": self.bulk_lag,
            "build_lag": self.build_lag,
            "build_problems": list(self.build_problems),
            "groups": [_group_json(group) for group in self.groups],
            "oldest_unsynced": _waiting_json(self.oldest, now),
            "dead_letters": self.dead_letters,
            "pauses": pauses_json(self.standing.controls),
            "breakers": [each.as_json() for each in self.standing.breakers()],
            "held": len(self.standing.held),
            "alias": self.alias,
            "problems": list(self.problems),
            "parser_changes": list(self.parser_changes),
        }


async def view_index(index: VectorIndex, alias: str, collections: Iterable[str]) -> IndexView:
    """Return what the index says of the alias and the collections. Errors are the index's own."""
    there = set(await index.collections())
    points = {name: await index.count(name) for name in collections if name in there}
    return IndexView(await index.alias_target(alias), points)


def read_status(settings: Settings, batches: list[BatchRecord], view: IndexView, count_documents: bool = True) -> Status:
    """Return the status. Reads offsets and, unless told not to, the manifests' changelog of each live batch to its end."""
    live = [batch for batch in batches if batch.state in LIVE_STATES]
    reading = LagReader(settings, count_letters=False).read(live)
    groups = reading.groups
    members = group_members(settings.kafka, [group.group for group in groups])
    letters = read_letters(settings)
    problems = [view.problem] if view.problem else []
    standing = read_standing(settings)
    if not batches:
        problems.append("no batch yet: run docdelta init --policy FILE")
    return Status(
        batches=tuple(
            BatchStatus(
                batch,
                served=view.alias_target == batch.collection,
                held=read_held(settings, batch.batch) if count_documents and batch in live else None,
                points=view.points.get(batch.collection),
            )
            for batch in batches
        ),
        groups=groups,
        oldest=oldest_waiting(settings.kafka, [group for group in groups if group.lane != "build"]),
        dead_letters=letters.open_count,
        newest_reason=letters.newest_reason,
        reading=reading,
        members=members,
        alias=settings.qdrant.alias,
        problems=tuple(problems),
        standing=standing,
        hosts=_hosts(settings, batches, groups, members, standing.controls),
    )


def _hosts(
    settings: Settings, batches: list[BatchRecord], groups: Iterable[GroupLag], members: Mapping[str, int], controls: Controls
) -> tuple[Hosts, ...]:
    """Return who hosts each build that is not through."""
    named = {settings.topics.batch_group(batch.batch): batch for batch in batches if batch.state in BUILD_STATES}
    behind = [group for group in groups if group.group in named and group.lag]
    return tuple(
        Hosts(
            named[group.group].batch,
            members.get(group.group),
            controls.refusals_of(named[group.group]),
            began=any(each.committed is not None for each in group.partitions),
        )
        for group in behind
    )


def read_held(settings: Settings, batch: str) -> Held | None:
    """Return what the manifests of a batch say, or None where their changelog does not exist."""
    topics = settings.topics
    changelog = topics.changelog(topics.batch_group(batch), topics.manifests_table)
    if changelog not in cluster_topics(make_admin(settings.kafka)):
        return None
    return count_held(read_topic(settings.kafka, changelog))


def count_held(records: Iterable[InRecord]) -> Held:
    """Return documents, chunks and deleted marks by the newest manifest of each document."""
    chunks: dict[bytes, int | None] = {}
    for record in records:
        if record.key is None or not record.value:
            continue
        manifest = Manifest.from_bytes(record.value)
        chunks[record.key] = None if manifest.deleted else len(manifest.entries)
    live = [count for count in chunks.values() if count is not None]
    return Held(documents=len(live), chunks=sum(live), deleted=len(chunks) - len(live))


def _batch_json(batch: BatchStatus) -> dict[str, Any]:
    return {
        "batch": batch.record.batch,
        "state": batch.record.state,
        "collection": batch.record.collection,
        "served": batch.served,
        "documents": batch.held.documents if batch.held else None,
        "deleted_documents": batch.held.deleted if batch.held else None,
        "chunks": batch.held.chunks if batch.held else None,
        "points": batch.points,
        "model": batch.record.embedding.model,
        "updated_at": batch.record.updated_at.isoformat(),
    }


def _group_json(group: GroupLag) -> dict[str, Any]:
    return {
        "group": group.group,
        "lane": group.lane,
        "lag": group.lag,
        "partitions": [
            {
                "topic": each.topic,
                "partition": each.partition,
                "committed": each.committed,
                "end": each.end,
                "lag": each.lag,
            }
            for each in group.partitions
        ],
    }


def _waiting_json(waiting: Waiting | None, now: datetime) -> dict[str, Any] | None:
    if waiting is None:
        return None
    return {
        "tenant_id": waiting.tenant_id,
        "document_id": waiting.document_id,
        "group": waiting.group,
        "topic": waiting.topic,
        "partition": waiting.partition,
        "offset": waiting.offset,
        "since": waiting.since.isoformat() if waiting.since else None,
        "waiting_seconds": max(0.0, (now - waiting.since).total_seconds()) if waiting.since else None,
    }
