"""The newest event of each document in [documents], and the law that the last record of a key says it.

Compaction keeps the last record of a key, not the newest revision. Whoever sends an old event again while somebody edits that
document may come behind the edit: the agents ignore it as stale, but the log would forget the edit. So `mend_order` looks at what
came meanwhile and sends the newer record once more, as it is.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Literal

from schemas.codec import UndecodableRecord, decode, encode
from schemas.document_change import FORGET, DocumentChange
from schemas.record import document_key
from streams.kafka.partitioner import partition_of
from streams.kafka.produce import OutRecord
from streams.ports import InRecord
from streams.repair.broker import Broker

TRACE = ("traceparent", "tracestate")
"""Headers that go on with an event that is sent again."""
SENT_AGAIN = re.compile(r"#([0-9]+-[0-9]+#replay|reindex-[0-9a-z]+)$")
"""How the ids of such events end: in the letter, or in the run."""


@dataclass(frozen=True, slots=True)
class Newest:
    """The newest word on one document. Its record stands at `partition`, `offset`; `null`: it was ended by a null value there."""

    revision: int
    op: Literal["upsert", "delete"]
    partition: int
    offset: int
    event_id: str = ""
    null: bool = False


@dataclass(slots=True)
class NewestEvents:
    """Folds records of [documents], in the order of their partition, into the newest event of each key."""

    keys: Collection[bytes] | None = None
    """Only these; None: all."""
    found: dict[bytes, Newest] = field(default_factory=dict)
    unreadable: int = 0
    ends_alone: dict[bytes, Newest] = field(default_factory=dict)
    """Documents of which only a null value is left: their revision is not told here."""
    before_end: dict[bytes, Newest] = field(default_factory=dict)
    """Of documents whose newest event is a delete: the newest upsert that is left."""

    @property
    def last_words(self) -> dict[bytes, Newest]:
        """The newest word on each document, those of which only a null value is left included (their revision counts as 0)."""
        return {**self.ends_alone, **self.found}

    def take(self, record: InRecord) -> None:
        """Take one record. What the parser would refuse as unreadable counts as no event."""
        key = record.key
        if key is None or (self.keys is not None and key not in self.keys):
            return
        before = self.found.get(key)
        if record.value is None and FORGET in record.headers:
            if before is not None and before.op == "delete":
                del self.found[key]
            return
        if record.value is None:
            if before is not None:
                self._ends(key, before)
                self.found[key] = Newest(before.revision, "delete", record.partition, record.offset, null=True)
            else:
                self.ends_alone[key] = Newest(0, "delete", record.partition, record.offset, null=True)
            return
        change = readable(record)
        if change is None:
            self.unreadable += 1
            return
        if before is None or change.revision > before.revision or _has_last_word(change, before):
            self.ends_alone.pop(key, None)
            if change.op == "delete" and before is not None:
                self._ends(key, before)
            elif change.op == "upsert":
                self.before_end.pop(key, None)
            self.found[key] = Newest(change.revision, change.op, record.partition, record.offset, change.event_id)
        elif before.op == "delete" and change.op == "upsert":
            self._ends(key, Newest(change.revision, "upsert", record.partition, record.offset, change.event_id))

    def _ends(self, key: bytes, ended: Newest) -> None:
        known = self.before_end.get(key)
        if ended.op == "upsert" and (known is None or ended.revision >= known.revision):
            self.before_end[key] = ended


def _has_last_word(change: DocumentChange, before: Newest) -> bool:
    """Return whether an event of equal revision stands for the document: a delete wins over an upsert, otherwise the later one."""
    return change.revision == before.revision and (change.op == "delete" or before.op == "upsert")


def readable(record: InRecord) -> DocumentChange | None:
    """Return the event in a record, or None where the parser would refuse it: unreadable, or under another document's key."""
    try:
        change = decode(record.value or b"", DocumentChange)
    except UndecodableRecord:
        return None
    return change if record.key == document_key(change.tenant_id, change.document_id) else None


def newest_events(broker: Broker, topic: str, keys: Collection[bytes]) -> NewestEvents:
    """Return the newest events of some documents: one pass over the partitions that their keys lie in."""
    events = NewestEvents(frozenset(keys))
    ends = broker.ends(topic)
    wanted = {partition_of(key, len(ends)) for key in keys}
    for record in broker.read(topic, {partition: ends[partition] for partition in sorted(wanted)}):
        events.take(record)
    return events


def records_at(broker: Broker, topic: str, places: Iterable[tuple[int, int]]) -> Iterator[InRecord]:
    """Yield the records at (partition, offset), as far as they are still kept, in one pass over each partition."""
    wanted = set(places)
    by_partition: dict[int, list[int]] = {}
    for partition, offset in wanted:
        by_partition.setdefault(partition, []).append(offset)
    ends = {partition: max(offsets) + 1 for partition, offsets in by_partition.items()}
    begins = {partition: min(offsets) for partition, offsets in by_partition.items()}
    for record in broker.read(topic, ends, begins):
        if (record.partition, record.offset) in wanted:
            yield record


def sent_again(change: DocumentChange, suffix: str) -> DocumentChange:
    """Return an event to be sent once more, through every stage, under an id that names the first and says that it is another."""
    first = SENT_AGAIN.sub("", change.event_id)[:80]
    return change.model_copy(update={"reindex": True, "event_id": f"{first}#{suffix}"})


def trace_of(headers: Mapping[str, bytes | str]) -> dict[str, bytes]:
    """Return the trace headers of a record."""
    return {name: value.encode() if isinstance(value, str) else value for name, value in headers.items() if name in TRACE and value}


def overtaken(records: Iterable[InRecord], ours: str) -> dict[bytes, bytes]:
    """Return, by key, the value that must be sent once more, because an older record of ours came behind it.

    ours: what the event ids of those that we sent end in. A null value that was overtaken becomes a delete at the revision that it
    ended: sent as null once more it would end what may have come since.
    """
    said: dict[bytes, tuple[int, bytes | None]] = {}
    behind: dict[bytes, bytes] = {}
    for record in records:
        if record.key is None or (record.value is None and FORGET in record.headers):
            continue
        known = said.get(record.key)
        if record.value is None:
            said[record.key] = (known[0] if known else -1, None)
            behind.pop(record.key, None)
            continue
        change = readable(record)
        if change is None:
            continue
        if not change.event_id.endswith(ours):
            if known is None or change.revision > known[0] or (change.revision == known[0] and known[1] is not None):
                said[record.key] = (change.revision, record.value)
                behind.pop(record.key, None)
        elif known is not None and known[1] is None:
            end = change.model_copy(update={"op": "delete", "content": None, "revision": max(known[0], change.revision)})
            behind[record.key] = encode(end.model_copy(update={"event_id": change.event_id.removesuffix(ours)[:110] + "#ended"}))
        elif known is not None and known[1] is not None and change.revision < known[0]:
            behind[record.key] = known[1]
    return behind


def mend_order(broker: Broker, topic: str, begins: Mapping[int, int], ours: str) -> int:
    """Make the last record of every key written since `begins` its newest revision again. Returns how many records that took."""
    mended = 0
    while True:
        ends = broker.ends(topic)
        behind = overtaken(broker.read(topic, ends, begins), ours)
        if not behind:
            return mended
        mended += broker.write([OutRecord(topic, key, value, sends="again") for key, value in behind.items()])
        begins = ends
