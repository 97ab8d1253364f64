"""Every topic and table: name, key, partitions, compaction or retention, size limit. Names are deployed contracts.

All topics that one document passes through have the same number of partitions and the same key, so that its records stay together.
"""

from __future__ import annotations

from dataclasses import dataclass, field

MEBIBYTE = 1 << 20
MAX_EVENT_BYTES = 4 * MEBIBYTE
"""Largest DocumentChange on the wire. A larger body travels as `content.ref`."""
MAX_RECORD_BYTES = 16 * MEBIBYTE
"""Largest record the pipeline itself writes (parsed documents, dead letters with their original bytes)."""
MAX_PARSED_BYTES = 11 * MEBIBYTE
"""Largest ParsedDocument: as base64 inside a dead letter it still fits MAX_RECORD_BYTES."""
FRAME_BYTES = 64 << 10
"""Room for key, headers and Kafka's own frame beside a value: topics allow so much more than the largest value."""
UNCOMPACTED = "min.compaction.lag.ms"
"""How long a record stays whatever comes behind it. A topic that was made without it is taken as it is."""
MAX_PART_BYTES = 2 * MEBIBYTE
"""A ChunkChanges record is cut into parts of about this size."""


@dataclass(frozen=True, slots=True)
class Topic:
    """One topic as it must be in the cluster."""

    name: str
    partitions: int
    config: dict[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class TopicNames:
    """Names under one prefix (``docdelta`` by default), so that several installations can share a cluster."""

    prefix: str = "docdelta"

    @property
    def documents(self) -> str:
        """DocumentChange, key tenant/document: the front door."""
        return f"{self.prefix}.documents"

    @property
    def bulk(self) -> str:
        """DocumentChange, key tenant/document: the door for many at once. Its feeder passes them on to [documents]."""
        return f"{self.prefix}.bulk"

    @property
    def parsed(self) -> str:
        """ParsedDocument, key tenant/document: replayed in full by every new batch."""
        return f"{self.prefix}.parsed"

    @property
    def receipts(self) -> str:
        """Receipt, key tenant/document."""
        return f"{self.prefix}.receipts"

    @property
    def dead_letters(self) -> str:
        """DeadLetter, key of the refused record (or ``-``)."""
        return f"{self.prefix}.dead-letters"

    @property
    def letter_index(self) -> str:
        """LetterEntry, LetterClosing, LetterCheckpoint (keys ``open/…``, ``closed/…``, ``checkpoint``): what is open."""
        return f"{self.prefix}.letter-index"

    @property
    def batches(self) -> str:
        """BatchRecord, key batch id."""
        return f"{self.prefix}.batches"

    @property
    def controls(self) -> str:
        """Control, key of the thing it is about: pauses, breakers, what was decided."""
        return f"{self.prefix}.controls"

    @property
    def held(self) -> str:
        """HeldChange, key tenant/document: events that wait for a person."""
        return f"{self.prefix}.held"

    def changes(self, batch: str) -> str:
        """ChunkChanges of one batch, key tenant/document."""
        return f"{self.prefix}.changes.{batch}"

    @property
    def parser_group(self) -> str:
        """Consumer group (= Faust app id) of the parser app."""
        return f"{self.prefix}-parser"

    @property
    def feeder_group(self) -> str:
        """Consumer group (= Faust app id) of the feeder of [bulk]."""
        return f"{self.prefix}-feeder"

    def batch_group(self, batch: str) -> str:
        """Consumer group (= Faust app id) of one batch app."""
        return f"{self.prefix}-batch-{batch}"

    @property
    def seen_table(self) -> str:
        """Table of the parser app: newest revision and content fingerprint of each document."""
        return "seen"

    @property
    def manifests_table(self) -> str:
        """Table of a batch app: manifest of each document."""
        return "manifests"

    def changelog(self, group: str, table: str) -> str:
        """Changelog topic of a table, as Faust names it."""
        return f"{group}-{table}-changelog"


def _compacted(size: int = MAX_RECORD_BYTES) -> dict[str, str]:
    return {"cleanup.policy": "compact", "max.message.bytes": str(size + FRAME_BYTES)}


def _front_door() -> dict[str, str]:
    """Other people write here, and out of order too: what a late event stands behind must stay until the parser has met it."""
    return {**_compacted(MAX_EVENT_BYTES), UNCOMPACTED: str(86_400_000)}


def _kept(milliseconds: int, size: int = MAX_RECORD_BYTES) -> dict[str, str]:
    return {"cleanup.policy": "delete", "retention.ms": str(milliseconds), "max.message.bytes": str(size + FRAME_BYTES)}


def shared_topics(names: TopicNames, partitions: int) -> list[Topic]:
    """Return the topics that every installation has, the parser's changelog included."""
    day = 86_400_000
    return [
        Topic(names.documents, partitions, _front_door()),
        Topic(names.bulk, partitions, _front_door()),
        Topic(names.parsed, partitions, {**_compacted(), UNCOMPACTED: "3600000"}),  # a paused owner may have records in hand
        Topic(names.receipts, partitions, _kept(30 * day)),
        Topic(names.dead_letters, partitions, _kept(-1)),
        Topic(names.batches, 1, _compacted()),
        Topic(names.controls, 1, _compacted()),
        Topic(names.held, partitions, {**_compacted(), UNCOMPACTED: "3600000"}),  # as above: what it let go of is asked again
        Topic(names.letter_index, 1, _compacted()),
        Topic(names.changelog(names.parser_group, names.seen_table), partitions, _compacted()),
    ]


def batch_topics(names: TopicNames, batch: str, partitions: int) -> list[Topic]:
    """Return the topics of one batch. Changes are deltas: they may only go once the indexer is past them, so never by age."""
    return [
        Topic(names.changes(batch), partitions, _kept(-1)),
        Topic(names.changelog(names.batch_group(batch), names.manifests_table), partitions, _compacted()),
    ]
