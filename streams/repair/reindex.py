"""Re-index: the newest event of each document is sent once more, at its own revision, with `reindex`.

Every stage takes it as any other event: the parser parses again, each batch compares with the index itself instead of its manifest,
and the indexer embeds only what has no vector in place. Deletes are sent as deletes. A revision that came meanwhile wins as always.

Partition by partition: first all of it is read and only places are kept (some 300 bytes a document), then the records themselves
are read and sent. Each event names the run, so a run that was stopped goes on (`run`): a document whose newest event is one of this
run has been sent. Events go to [documents], or, where the caller says so, to [bulk], behind live edits.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace

from schemas.codec import decode, encode
from schemas.document_change import DocumentChange
from schemas.parsed_document import ParsedDocument
from schemas.record import document_key, split_document_key
from streams.crash_points import reached
from streams.errors import UsageError
from streams.kafka.offsets import end_offsets
from streams.kafka.partitioner import partition_of
from streams.kafka.produce import OutRecord, produce_all
from streams.kafka.read import read_partitions
from streams.ports import InRecord
from streams.repair.broker import KafkaBroker
from streams.repair.newest import Newest, NewestEvents, mend_order, readable, records_at, sent_again, trace_of
from streams.repair.rejected import rejected
from streams.settings import Settings


@dataclass(frozen=True, slots=True)
class Selection:
    """What is to be re-indexed: these documents (tenant, id), or all of a tenant, or everything. Exactly one is given."""

    documents: tuple[tuple[str, str], ...] = ()
    tenant: str = ""
    everything: bool = False

    def __post_init__(self) -> None:
        if sum((bool(self.documents), bool(self.tenant), self.everything)) != 1:
            raise UsageError("re-index what? name documents, or --tenant T, or --all")

    @property
    def keys(self) -> frozenset[bytes] | None:
        """Keys of the documents; None for a tenant or all."""
        return frozenset(document_key(*each) for each in self.documents) or None

    def takes(self, key: bytes) -> bool:
        """Return whether a document is meant, by its key."""
        if self.documents:
            return key in (self.keys or ())
        try:
            tenant, _ = split_document_key(key)
        except ValueError:
            return False
        return self.everything or tenant == self.tenant


@dataclass(slots=True)
class Counts:
    """What a run sent. `missing`: named, but no event of it is left. `unreadable`: records that the parser refused as well."""

    run: str
    upserts: int = 0
    deletes: int = 0
    before: int = 0
    """Documents that this run had sent before it was stopped."""
    missing: tuple[str, ...] = ()
    unreadable: int = 0
    mended: int = 0
    """Newer events that were sent once more, since ours came behind them."""
    topic: str = ""

    @property
    def sent(self) -> int:
        """Events sent."""
        return self.upserts + self.deletes


def run_name(now: float) -> str:
    """Return a name for a run that begins now (seconds since 1970)."""
    return f"{int(now * 1000):x}"


def reindex_documents(
    settings: Settings,
    selection: Selection,
    run: str = "",
    dry_run: bool = False,
    per_second: float = 0.0,
    on_progress: Callable[[int], None] = lambda sent: None,
    topic: str = "",
    on_begin: Callable[[str], None] = lambda run: None,
) -> Counts:
    """Send the newest event of each selected document again; return what was sent, all of it confirmed by the broker.

    run: of an earlier call that was stopped, to go on with it. per_second: at most so many events a second; 0: as fast as it goes.
    topic: where to; [documents] unless told otherwise. on_begin: told the run's name before anything is sent.

    NotReachable, NotPrepared and their like as `produce_all` raises them.
    """
    run = run or run_name(time.time())
    topics, ours = settings.topics, f"#reindex-{run}"
    counts = Counts(run, topic=topic or topics.documents)
    ends = {partition: end for (_, partition), end in end_offsets(settings.kafka, [topics.documents]).items()}
    keys = selection.keys
    partitions = sorted({partition_of(key, len(ends)) for key in keys} if keys is not None else ends)
    found: set[bytes] = set()
    pace = _Pace(0.0 if dry_run else per_second)
    on_begin(run)

    def events() -> Iterator[OutRecord]:
        for partition in partitions:
            newest = _newest(settings, selection, partition, ends[partition], counts)
            found.update(newest if keys is not None else ())
            waiting = _waiting(settings, counts.topic, partition, ours)
            todo = {key: each for key, each in newest.items() if key not in waiting and not each.event_id.endswith(ours)}
            counts.before += len(newest) - len(todo)
            if dry_run:
                for each in todo.values():
                    _count(counts, each.op)
                continue
            for key, change, trace in _changes(settings, todo):
                pace.wait()
                yield OutRecord(counts.topic, key, encode(sent_again(change, ours.removeprefix("#"))), trace, "reindex")
                _count(counts, change.op)
                reached("reindex.sent")

    if dry_run:
        for _ in events():
            raise AssertionError("unreachable: a dry run gives no events")
    else:
        produce_all(settings.kafka, events(), on_progress)
        counts.mended = (
            mend_order(KafkaBroker(settings.kafka), topics.documents, ends, ours) if counts.topic == topics.documents else 0
        )
    counts.missing = tuple("/".join(split_document_key(key)) for key in sorted((keys or frozenset()) - found))
    return counts


def _waiting(settings: Settings, topic: str, partition: int, ours: str) -> set[bytes]:
    """Return the documents whose event of this run waits in another topic than [documents]."""
    if topic == settings.topics.documents:
        return set()
    ends = {number: end for (_, number), end in end_offsets(settings.kafka, [topic]).items()}
    waiting: set[bytes] = set()
    for record in read_partitions(settings.kafka, topic, {partition: ends[partition]}):
        change = readable(record) if record.value is not None else None
        if change is not None and record.key is not None and change.event_id.endswith(ours):
            waiting.add(record.key)
    return waiting


@dataclass(slots=True)
class _Pace:
    """At most so many a second; 0: no limit."""

    per_second: float
    _next: float = field(default_factory=time.monotonic)

    def wait(self) -> None:
        if not self.per_second:
            return
        now = time.monotonic()
        if self._next > now:
            time.sleep(self._next - now)
        self._next = max(self._next, now) + 1 / self.per_second


def _count(counts: Counts, op: str) -> None:
    if op == "delete":
        counts.deletes += 1
    else:
        counts.upserts += 1


def _newest(settings: Settings, selection: Selection, partition: int, end: int, counts: Counts) -> dict[bytes, Newest]:
    """Return the newest word on each selected document of a partition. One that only a null value is left of has its revision
    from [parsed]; where that forgot it as well, nothing is left to end. One whose delete was rejected has what it said before, as
    far as that is left."""
    events = NewestEvents()
    for record in read_partitions(settings.kafka, settings.topics.documents, {partition: end}):
        if record.key is not None and selection.takes(record.key):
            events.take(record)
    counts.unreadable += events.unreadable
    if events.ends_alone:
        alone = events.ends_alone
        revisions: dict[bytes, int] = {}
        ends = {number: last for (_, number), last in end_offsets(settings.kafka, [settings.topics.parsed]).items()}
        for record in read_partitions(settings.kafka, settings.topics.parsed, {partition: ends[partition]}):
            if record.key in alone and record.value is not None:
                revisions[record.key] = decode(record.value, ParsedDocument).revision
        events.found |= {key: replace(each, revision=revisions[key]) for key, each in alone.items() if key in revisions}
    for key, seen in rejected(settings, events.found, [partition]).items():
        lives = events.before_end.get(key)
        del events.found[key]
        if lives is not None and lives.revision == seen.revision:
            events.found[key] = lives
    return events.found


def _changes(settings: Settings, newest: dict[bytes, Newest]) -> Iterator[tuple[bytes, DocumentChange, dict[str, bytes]]]:
    """Yield the newest events with their trace: those that the log holds in its order, then those ended by a null value."""
    places = {(each.partition, each.offset): key for key, each in newest.items() if not each.null}
    for record in records_at(KafkaBroker(settings.kafka), settings.topics.documents, places):
        change = _still(record)
        if change is not None:
            yield places[record.partition, record.offset], change, trace_of(record.headers)
    for key, each in newest.items():
        if each.null:
            tenant, document = split_document_key(key)
            yield key, DocumentChange(tenant_id=tenant, document_id=document, revision=each.revision, op="delete"), {}


def _still(record: InRecord) -> DocumentChange | None:
    change = readable(record)
    assert change is not None, "it could be read a moment ago"
    return change
