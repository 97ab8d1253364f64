"""Forgetting what nobody needs any more: dead letters that were closed long ago, and old deletes in [documents].

Dead letters: [dead-letters] is kept for ever, bytes and all. Of each partition the records before the first one that is open, or
was closed lately, are removed from the broker; then their entries in the index.

Deletes: a document's end stays in [documents] as its last record. Once it is old and the parser has passed it, a null value with
the header `FORGET` follows it, and compaction drops both. The parser takes such a record for nothing at all, so that it may come
twice, late, or beside a newer event. What is *not* forgotten is what keeps the document away: the rows in the tables `seen` and
`manifests`, and the end in [parsed], which every batch must meet, one that is built later too. That is some 500 bytes a document.

Order of effects, and what a crash in between leaves:
  ① letters' bytes are removed           the index names letters that are gone; running it again removes those entries
  ② their entries in the index; their closings stay until the next run
  ③ null values in [documents]           running it again sends the rest
  ④ where somebody revived a document in the very moment, its newest event is sent once more, so that compaction keeps it
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field
from datetime import datetime

from schemas.document_change import FORGET
from schemas.letter_index import CLOSED, OPEN
from streams.crash_points import reached
from streams.kafka.offsets import PartitionLag
from streams.kafka.produce import OutRecord
from streams.ports import InRecord
from streams.repair.broker import Broker, KafkaBroker
from streams.repair.dead_letters import read_letters
from streams.repair.letters import LetterBook
from streams.repair.newest import Newest, readable
from streams.repair.rejected import rejected
from streams.settings import Settings


@dataclass(frozen=True, slots=True)
class LetterTrim:
    """What goes of the dead letters: records before `keep` (offset by partition), the letters whose entries go, and those of which
    an earlier run left nothing but the closing."""

    keep: dict[int, int]
    forget: tuple[str, ...]
    closings: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Forgettable:
    """A document whose last record in [documents] is an old delete."""

    key: bytes
    partition: int
    offset: int
    revision: int


@dataclass(slots=True)
class Forgotten:
    """What a run forgot, or would forget."""

    letters: int = 0
    letter_records: int = 0
    deletes: int = 0
    deletes_waiting: int = 0
    """Old enough, but the parser has not passed them yet."""
    kept: int = 0
    """Old deletes that a person decided against: their documents are there."""
    mended: int = 0
    notes: list[str] = field(default_factory=list)


@dataclass(slots=True)
class _Last:
    """The last word on a key in one partition, while it is read."""

    offset: int
    time: float
    revision: int
    deleted: bool
    value: bytes | None
    """Of an upsert that a forgetting came behind: to be sent once more."""
    forgotten: bool = False


def forget(settings: Settings, older_than: datetime, dry_run: bool = False, broker: Broker | None = None) -> Forgotten:
    """Forget what was settled before `older_than`; return what went, or with `dry_run` what would. Safe to repeat."""
    done, broker = Forgotten(), broker or KafkaBroker(settings.kafka)
    _forget_letters(settings, broker, older_than, dry_run, done)
    _forget_deletes(settings, broker, older_than, dry_run, done)
    return done


def plan_letters(book: LetterBook, begins: Mapping[int, int], ends: Mapping[int, int], older_than: datetime) -> LetterTrim:
    """Return what may go: all letters of a partition up to the first that is open or was closed since `older_than`."""
    keep = dict(ends)
    places: dict[str, list[tuple[int, int]]] = {name: [_place(name)] for name in book.entries}
    for repeat, first in book.repeats.items():
        places.setdefault(first, []).append(_place(repeat))
    for name in book.entries:
        closing = book.closings.get(name)
        if closing is None or closing.at >= older_than or book.entries[name].failed_at >= older_than:
            for partition, offset in places[name]:
                keep[partition] = min(keep.get(partition, offset), offset)
    gone = [name for name in book.entries if all(offset < keep.get(partition, 0) for partition, offset in places[name])]
    alone = [name for name in book.closings if name not in book.entries and _place(name)[1] < begins.get(_place(name)[0], 0)]
    trimmed = {number: offset for number, offset in keep.items() if offset > begins.get(number, 0)}
    return LetterTrim(trimmed, tuple(sorted(gone)), tuple(sorted(alone)))


def _place(name: str) -> tuple[int, int]:
    partition, _, offset = name.partition("-")
    return int(partition), int(offset)


def _forget_letters(settings: Settings, broker: Broker, older_than: datetime, dry_run: bool, done: Forgotten) -> None:
    topics = settings.topics
    if not broker.can_trim:
        done.notes.append("dead letters stay: this broker can't remove records")
        return
    places = broker.places(f"{settings.kafka.topic_prefix}-gc", topics.dead_letters)  # a group that never commits: begins and ends
    begins, ends = {each.partition: each.begin for each in places}, {each.partition: each.end for each in places}
    plan = plan_letters(read_letters(settings, broker), begins, ends, older_than)
    done.letters = len(plan.forget)
    done.letter_records = sum(offset - _begin(places, partition) for partition, offset in plan.keep.items())
    if dry_run:
        return
    broker.delete_before(topics.dead_letters, plan.keep)
    reached("gc.letters")
    # A closing goes with the next run: a worker that keeps the index may write the entry once more behind what is written here, and
    # an entry without its closing would be open again.
    names = [OPEN + name for name in plan.forget] + [CLOSED + name for name in plan.closings]
    gone = [OutRecord(topics.letter_index, name.encode(), None) for name in names]
    if gone:
        broker.write(gone)


def _begin(places: Iterable[PartitionLag], partition: int) -> int:
    return next(each.begin for each in places if each.partition == partition)


def _forget_deletes(settings: Settings, broker: Broker, older_than: datetime, dry_run: bool, done: Forgotten) -> None:
    topic = settings.topics.documents
    passed = _passed(settings, broker)
    ends = broker.ends(topic)
    sent: dict[bytes, int] = {}
    for partition, end in sorted(ends.items()):
        last = last_words(broker.read(topic, {partition: end}))
        old = [
            Forgettable(key, partition, each.offset, each.revision)
            for key, each in last.items()
            if each.deleted and not each.forgotten and 0 < each.time < older_than.timestamp()
        ]
        ready = [each for each in old if each.offset < passed.get(partition, 0)]
        kept = rejected(settings, {e.key: Newest(e.revision, "delete", partition, e.offset) for e in ready}, [partition], broker)
        ready = [each for each in ready if each.key not in kept]
        done.kept += len(kept)
        done.deletes += len(ready)
        done.deletes_waiting += len(old) - len(ready)
        revived = {key: each.value for key, each in last.items() if each.forgotten and each.value is not None}
        if dry_run:
            continue
        records = [OutRecord(topic, each.key, None, {FORGET: str(each.revision).encode()}) for each in ready]
        records += [OutRecord(topic, key, value) for key, value in revived.items()]
        done.mended += len(revived)
        if records:
            broker.write(records)
            sent |= dict.fromkeys((each.key for each in ready), partition)
        reached("gc.deletes")
    if sent:
        done.mended += _mend(broker, topic, ends, sent.keys())
    if done.kept:
        done.notes.append(f"old deletes that stay, since a person decided against them (docdelta breaker reject): {done.kept:,}")


def _mend(broker: Broker, topic: str, begins: Mapping[int, int], keys: Collection[bytes]) -> int:
    """Send the newest event of a document once more where ours came behind it."""
    mended = 0
    while True:
        ends = broker.ends(topic)
        last = last_words(record for record in broker.read(topic, ends, begins) if record.key in keys)
        behind = [OutRecord(topic, key, each.value) for key, each in last.items() if each.forgotten and each.value is not None]
        if not behind:
            return mended
        mended += broker.write(behind)
        begins = ends


def last_words(records: Iterable[InRecord]) -> dict[bytes, _Last]:
    """Return the last word on each key among the records of a partition: by revision, a delete over an upsert of the same one.

    A forgetting is no word; it is noted where it is the last record of its key. A null value ends, and is its own forgetting.
    """
    found: dict[bytes, _Last] = {}
    for record in records:
        if record.key is None:
            continue
        before = found.get(record.key)
        if record.value is None and FORGET in record.headers:
            if before is not None:
                before.forgotten = True
            continue
        if record.value is None:
            found[record.key] = _Last(record.offset, record.timestamp, before.revision if before else 0, True, None, forgotten=True)
            continue
        change = readable(record)
        if change is None:
            continue
        deleted = change.op == "delete"
        equal = before is not None and change.revision == before.revision
        if before is None or change.revision > before.revision or (equal and (deleted or not before.deleted)):
            value = None if deleted else record.value
            found[record.key] = _Last(record.offset, record.timestamp, change.revision, deleted, value)
        elif before.deleted:
            before.forgotten = False  # an older event came behind it: for compaction that would be the last word
    return found


def _passed(settings: Settings, broker: Broker) -> dict[int, int]:
    """Return, by partition, the offset of [documents] that the parser has committed. Batches take the end from [parsed]."""
    topics = settings.topics
    return {each.partition: each.committed or 0 for each in broker.places(topics.parser_group, topics.documents)}
