"""What an audit holds the index against, read from the broker: manifests, newest events, and what is not settled yet.

Two looks at a document make a verdict. The order within a look keeps it free of false alarms while editors work: newest events
first, then what is on its way ([documents], [parsed], [changes], in the order an event travels), then manifests, and only then (by
the caller) points. Whatever reached the index before the points were read is then in the manifests, or was on its way.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

from chunking.manifest import Manifest
from schemas.batch import BatchRecord
from schemas.record import split_document_key
from streams.errors import NotPrepared
from streams.kafka.offsets import end_offsets, group_lag
from streams.kafka.partitioner import partition_of
from streams.kafka.read import read_partitions
from streams.ports import InRecord
from streams.repair.dead_letters import read_letters
from streams.repair.newest import Newest, NewestEvents
from streams.repair.rejected import rejected
from streams.settings import Settings

NOTHING = b""


@dataclass(frozen=True, slots=True)
class Unsettled:
    """Documents that can't be judged at this moment, by key."""

    in_flight: frozenset[bytes] = frozenset()
    """An event or delta of it is written and not yet committed by the group that is to take it."""
    refused: frozenset[bytes] = frozenset()
    """A dead letter of it is open: the last good revision serves."""
    held: frozenset[bytes] = frozenset()
    """Its newest event waits for a person."""
    rejected: frozenset[bytes] = frozenset()
    """Its newest event is a delete that a person decided against: it stays."""


@dataclass(slots=True)
class Sources:
    """The broker's side of one batch. Blocking; for one thread at a time."""

    settings: Settings
    batch: BatchRecord
    manifests: dict[bytes, bytes] = field(default_factory=dict)
    """Key to the newest manifest as it is stored: 75 bytes a chunk."""
    events: NewestEvents = field(default_factory=NewestEvents)
    partitions: int = 0
    _read: dict[str, dict[int, int]] = field(default_factory=dict)

    @property
    def group(self) -> str:
        """The batch's consumer group."""
        return self.settings.topics.batch_group(self.batch.batch)

    @property
    def newest(self) -> Mapping[bytes, Newest]:
        """The newest word on each document."""
        return self.events.last_words

    def event(self, key: bytes) -> Newest | None:
        """Return the newest word on a document, or None."""
        return self.events.found.get(key) or self.events.ends_alone.get(key)

    def documents(self) -> set[bytes]:
        """Return the documents of manifests and events."""
        return {*self.manifests, *self.events.found, *self.events.ends_alone}

    def manifest(self, key: bytes) -> Manifest | None:
        """Return a document's manifest, or None."""
        value = self.manifests.get(key)
        return Manifest.from_bytes(value) if value else None

    def refresh_events(self) -> None:
        """Read on in [documents]."""
        for record in self._on(self.settings.topics.documents):
            self.events.take(record)

    def refresh_manifests(self) -> None:
        """Read on in the changelog of the manifests."""
        topics = self.settings.topics
        topic = topics.changelog(self.group, topics.manifests_table)
        for record in self._on(topic):
            if record.key is None:
                continue
            if record.value:
                self.manifests[record.key] = record.value
            else:
                self.manifests.pop(record.key, None)
        self.partitions = len(self._read[topic])

    def unsettled(self) -> Unsettled:
        """Return what is on its way, refused, held or rejected now."""
        topics = self.settings.topics
        flying: set[bytes] = set()
        for group, topic in (
            (topics.parser_group, topics.documents),
            (self.group, topics.parsed),
            (self.group, topics.changes(self.batch.batch)),
        ):
            places = [place for place in group_lag(self.settings.kafka, group, [topic]) if place.lag]
            ends = {place.partition: place.end for place in places}
            begins = {place.partition: max(place.begin, place.committed or 0) for place in places}
            flying |= {record.key for record in read_partitions(self.settings.kafka, topic, ends, begins) if record.key}
        return Unsettled(frozenset(flying), self._refused(), self._held(), self._rejected())

    def _refused(self) -> frozenset[bytes]:
        try:
            return frozenset(read_letters(self.settings).open_keys)
        except NotPrepared:  # a cluster from before there was an index of letters: nothing is excused then
            return frozenset()

    def _held(self) -> frozenset[bytes]:
        waiting: set[bytes] = set()
        try:
            ends = _ends(self.settings, self.settings.topics.held)
        except NotPrepared:
            return frozenset()
        for record in read_partitions(self.settings.kafka, self.settings.topics.held, ends):
            if record.key is not None:
                (waiting.discard if record.value is None else waiting.add)(record.key)
        return frozenset(waiting)

    def _rejected(self) -> frozenset[bytes]:
        """Return the documents that the log deletes and the batch has, since the parser dropped their delete."""
        deletes = {
            key: event
            for key, event in self.newest.items()
            if event.op == "delete" and (manifest := self.manifest(key)) is not None and not manifest.deleted
        }
        return frozenset(rejected(self.settings, deletes))

    def _on(self, topic: str) -> Iterator[InRecord]:
        """Yield the records of a topic that were not read before."""
        ends = _ends(self.settings, topic)
        begins = self._read.get(topic, {})
        yield from read_partitions(self.settings.kafka, topic, ends, begins)
        self._read[topic] = ends

    def partition(self, key: bytes) -> int:
        """Return the partition that a document travels in."""
        return partition_of(key, self.partitions)


def _ends(settings: Settings, topic: str) -> dict[int, int]:
    return {partition: end for (_, partition), end in end_offsets(settings.kafka, [topic]).items()}


def tenant_of(key: bytes) -> str:
    """Return the tenant of a key, or nothing for a key that is none."""
    try:
        return split_document_key(key)[0]
    except ValueError:
        return ""
