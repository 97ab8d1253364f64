"""The timeline of one document: what came in, what each stage said of it and when, where it stands now, and what would mend it.

Everything is read by the document's key: one partition of each topic, and its points in the index. No text of a document is in it.
"""

from __future__ import annotations

import shlex
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any

from chunking.manifest import Manifest
from schemas.batch import BUILD_STATES, LIVE_STATES, BatchRecord
from schemas.codec import UndecodableRecord, decode
from schemas.control import Control
from schemas.document_change import AGAIN, FORGET, DocumentChange
from schemas.held_change import HeldChange
from schemas.receipt import Receipt
from schemas.record import document_key
from streams.controls.state import Controls, fold
from streams.kafka.client import cluster_topics, make_admin
from streams.kafka.offsets import PartitionLag, group_lag
from streams.kafka.partitioner import partition_of
from streams.kafka.read import read_topic
from streams.ports import InRecord
from streams.reading.batches import read_batches
from streams.reading.waiting import group_lags
from streams.reading.why import InIndex, Why, dead_letters_of, last_receipts, newest_seen
from streams.repair.dead_letters import read_letters
from streams.repair.letters import Letter
from streams.settings import Settings
from streams.topics import TopicNames
from streams.words import counted


@dataclass(frozen=True, slots=True)
class Moment:
    """One thing that happened to the document. `at` None: the broker does not tell when."""

    at: datetime | None
    stage: str
    """event, bulk, parser, chunker, indexer, dead letter, held"""
    batch: str
    revision: int | None
    what: str
    """The operation or the outcome in one word or two."""
    reason: str = ""
    event_id: str = ""
    place: str = ""
    """topic[partition]@offset of the record that tells it."""
    figures: Mapping[str, int] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Holding:
    """What one live batch remembers of the document. `points`: of the batch that is served; None elsewhere, or where not known."""

    batch: str
    state: str
    revision: int | None
    """None: the batch has planned nothing of it yet."""
    deleted: bool = False
    suspect: bool = False
    chunk_ids: tuple[str, ...] = ()
    points: tuple[str, ...] | None = None

    @property
    def missing(self) -> tuple[str, ...]:
        """Chunks that the manifest names and the index lacks."""
        return tuple(each for each in self.chunk_ids if each not in self.points) if self.points is not None else ()

    @property
    def left_over(self) -> tuple[str, ...]:
        """Points that no manifest names."""
        return tuple(each for each in self.points if each not in self.chunk_ids) if self.points is not None else ()


@dataclass(frozen=True, slots=True)
class InFront:
    """Records that a group must still take before it has passed the newest record of this document."""

    group: str
    topic: str
    partition: int
    records: int
    build: bool = False
    """The group builds a batch that nobody is served from yet."""


@dataclass(frozen=True, slots=True)
class Fix:
    """What would mend it, in words, and the command that does; an empty one where nothing is to be done."""

    words: str
    command: str = ""

    def __str__(self) -> str:
        return f"{self.words}: {self.command}" if self.command else self.words


@dataclass(frozen=True, slots=True)
class Timeline:
    """All that is known of one document."""

    why: Why
    moments: tuple[Moment, ...]
    """In order of time."""
    holdings: tuple[Holding, ...]
    letters: tuple[Letter, ...]
    """All of them, oldest first, closed ones too."""
    in_front: tuple[InFront, ...]
    held: HeldChange | None
    stops: tuple[str, ...]
    """Pauses and breakers that stand in its way, one line each."""
    fix: Fix

    def as_json(self) -> dict[str, Any]:
        """Return the answer as `docdelta why --json` prints it."""
        base = self.why.as_json()
        for chunk in (base.get("index") or {}).get("chunks", ()):
            chunk.pop("text", None)
        return {
            **base,
            "timeline": [
                {
                    "at": moment.at.isoformat() if moment.at else None,
                    "stage": moment.stage,
                    "batch": moment.batch,
                    "revision": moment.revision,
                    "what": moment.what,
                    "reason": moment.reason,
                    "event_id": moment.event_id,
                    "place": moment.place,
                    "figures": dict(moment.figures),
                }
                for moment in self.moments
            ],
            "manifests": [
                {
                    "batch": each.batch,
                    "state": each.state,
                    "revision": each.revision,
                    "deleted": each.deleted,
                    "suspect": each.suspect,
                    "chunks": list(each.chunk_ids),
                    "missing": list(each.missing),
                    "left_over": list(each.left_over),
                }
                for each in self.holdings
            ],
            "letters": [
                {
                    "letter": each.id,
                    "state": each.state,
                    "note": each.closing.note if each.closing else "",
                    "reason": each.entry.reason,
                }
                for each in self.letters
            ],
            "in_front": [
                {
                    "group": each.group,
                    "topic": each.topic,
                    "partition": each.partition,
                    "records": each.records,
                    "build": each.build,
                }
                for each in self.in_front
            ],
            "held": None if self.held is None else self.held.model_dump(mode="json", exclude={"value", "headers", "title"}),
            "stops": list(self.stops),
            "fix": {"words": self.fix.words, "command": self.fix.command},
        }


def read_timeline(
    settings: Settings, tenant_id: str, document_id: str, indexed: InIndex | None, problems: tuple[str, ...] = ()
) -> Timeline:
    """Return the timeline of a document. `indexed`: its points behind the alias (`reading.why.read_points`).

    NotReachable, NotPrepared (a topic is missing).
    """
    topics, key, kafka = settings.topics, document_key(tenant_id, document_id), settings.kafka
    there = cluster_topics(make_admin(kafka))  # installations made before a topic was thought of lack it
    documents = list(read_topic(kafka, topics.documents, key))
    bulk = list(read_topic(kafka, topics.bulk, key)) if topics.bulk in there else []
    parsed = list(read_topic(kafka, topics.parsed, key))
    receipts = list(read_topic(kafka, topics.receipts, key))
    letters = tuple(read_letters(settings).of_document(key))
    open_places = {letter.place for letter in letters if letter.state == "open"}
    refused = [each for each in read_topic(kafka, topics.dead_letters, key) if (each.partition, each.offset) in open_places]
    newest = newest_seen([*bulk, *documents])
    live = [batch for batch in read_batches(settings) if batch.state in LIVE_STATES]
    builds = frozenset(batch.batch for batch in live if batch.state in BUILD_STATES)
    why = Why(tenant_id, document_id, newest, last_receipts(receipts), indexed, dead_letters_of(refused), problems, builds)
    controls, held = _stops(settings, key, there)
    holdings = tuple(_holding(settings, batch, key, indexed) for batch in live)
    in_front = _in_front(settings, live, key, documents, parsed)
    if bulk:
        in_front = (*_in_bulk(settings, bulk[-1]), *in_front)
    stops = standing_in_the_way(controls, tenant_id, live)
    moments = (
        *events_of(bulk, "bulk"),
        *events_of(documents),
        *outcomes_of(receipts),
        *refusals_of(letters),
        *([_held_moment(held)] if held else []),
    )
    ordered = tuple(sorted(moments, key=lambda moment: moment.at or datetime.min.replace(tzinfo=UTC)))
    fix = what_would_fix(why, letters, holdings, in_front, held, controls, topics)
    return Timeline(why, ordered, holdings, letters, in_front, held, stops, fix)


def events_of(records: Iterable[InRecord], stage: str = "event") -> list[Moment]:
    """Return the events that [documents] (or, as `stage` bulk, [bulk]) still holds of a document."""
    found = []
    for record in records:
        at = datetime.fromtimestamp(record.timestamp, UTC) if 0 < record.timestamp < 32_503_680_000 else None
        place = f"{record.topic}[{record.partition}]@{record.offset}"
        if record.value is None and FORGET in record.headers:
            found.append(Moment(at, stage, "", None, "delete forgotten", "docdelta gc", place=place))
            continue
        if record.value is None:
            found.append(Moment(at, stage, "", None, "null value", "deletes at the newest revision seen", place=place))
            continue
        try:
            change = decode(record.value, DocumentChange)
        except UndecodableRecord as error:
            found.append(Moment(at, stage, "", None, "unreadable", str(error), place=place))
            continue
        again = "said again behind a late event" if AGAIN in record.headers else "sent again" if change.reindex else ""
        figures = {"bytes": len(record.value)}
        found.append(Moment(at, stage, "", change.revision, change.op, again, change.event_id, place, figures))
    return found


def outcomes_of(records: Iterable[InRecord]) -> list[Moment]:
    """Return what the stages said of a document; a receipt that was repeated after a crash once."""
    found: dict[tuple[object, ...], Moment] = {}
    for record in records:
        if record.value is None:
            continue
        receipt = decode(record.value, Receipt)
        names = ("kept", "added", "updated", "removed", "embedded", "reused", "borrowed")
        figures = {name: getattr(receipt, name) for name in names if getattr(receipt, name)}
        place = f"{record.topic}[{record.partition}]@{record.offset}"
        found.setdefault(
            (receipt.revision, receipt.event_id, receipt.batch, receipt.stage, receipt.outcome),
            Moment(
                receipt.settled_at, receipt.stage, receipt.batch, receipt.revision, receipt.outcome, receipt.reason,
                receipt.event_id, place, figures,
            ),
        )  # fmt: skip
    return list(found.values())


def refusals_of(letters: Iterable[Letter]) -> list[Moment]:
    """Return when each letter was written, and when it was closed."""
    found = []
    for letter in letters:
        entry = letter.entry
        words = f"{letter.id}: {entry.error} at {entry.stage}"
        found.append(Moment(entry.failed_at, "dead letter", entry.batch, entry.revision, words, entry.reason, entry.event_id))
        if letter.closing is not None:
            closing = letter.closing
            found.append(
                Moment(closing.at, "dead letter", entry.batch, entry.revision, f"{letter.id}: {closing.state}", closing.note)
            )
    return found


def standing_in_the_way(controls: Controls, tenant: str, batches: Iterable[BatchRecord]) -> tuple[str, ...]:
    """Return the pauses and the breaker that hold a tenant's documents, one line each."""
    lines = []
    for name, pause in _pauses(controls, tenant, batches):
        lines.append(f"{name} is paused since {pause.at:%Y-%m-%d %H:%M}Z{': ' + pause.reason if pause.reason else ''}")
    breaker = controls.open_breaker(tenant)
    if breaker is not None:
        figures = breaker.first.figures
        words = f" ({figures.counted:,} of {counted(figures.documents, 'document')})" if figures else ""
        lines.append(f"breaker of tenant {tenant} is open since {breaker.since:%Y-%m-%d %H:%M}Z{words}")
    return tuple(lines)


HOPELESS = (
    "not a text:",
    "no charset fits",
    "document is nested too deeply",
    "elements nested more than",
    "content.base64 is not base64",
)
"""How reasons begin that are in the bytes of an event and in nothing else: the same event never fares better."""


def is_hopeless(letter: Letter) -> bool:
    """Return whether a replay of a letter can't help: what was refused is in its bytes."""
    return letter.entry.reason.startswith(HOPELESS)


def _let_it_be(why: Why, letter: Letter) -> str:
    """Return how a page that nobody will mend is let be: one that serves as it was before, and one that never did.

    Of the second, an audit that finds its event and no letter would say that the batch lacks it; a delete is a last word.
    """
    if why.indexed is not None and not why.indexed.chunks:
        return f"or end it: docdelta delete {quoted(why.document_id)} --tenant {why.tenant_id}"
    return f"or let it be: docdelta dead-letters drop {letter.id}"


def what_would_fix(
    why: Why,
    letters: Sequence[Letter],
    holdings: Sequence[Holding],
    in_front: Sequence[InFront],
    held: HeldChange | None,
    controls: Controls,
    topics: TopicNames,
) -> Fix:
    """Return the one thing that would mend the document now: the first of what stands in its way, from the front door inwards."""
    again = f"docdelta reindex {quoted(why.document_id)} --tenant {why.tenant_id}"
    opened = [letter for letter in letters if letter.state == "open"]
    if held is not None and held.reason == "paused":
        return Fix("the tenant is paused", f"docdelta resume --tenant {why.tenant_id}")
    if held is not None:
        return Fix("its delete is held until somebody decides", f"docdelta breaker approve {why.tenant_id}")
    if opened:
        letter = opened[-1]
        if is_hopeless(letter):
            words = f"a replay of letter {letter.id} can't help, it is the bytes: send the page again, mended"
            words += f" ({_let_it_be(why, letter)})"
            return Fix(words, f"docdelta put FILE --tenant {why.tenant_id} --id {quoted(why.document_id)}")
        return Fix(f"mend what letter {letter.id} names ({letter.entry.error})", f"docdelta dead-letters replay {letter.id}")
    if why.state == "unknown":
        return Fix("send it", f"docdelta put FILE --tenant {why.tenant_id} --id {quoted(why.document_id)}")
    if why.state == "dead_lettered":
        return Fix("send it with a higher revision", f"docdelta put FILE --tenant {why.tenant_id} --id {quoted(why.document_id)}")
    waiting = [each for each in in_front if each.records and not each.build]
    for each in waiting:
        stage = "parser" if each.group == topics.parser_group else f"batch:{each.group.removeprefix(topics.batch_group(''))}"
        if controls.pause_of_stage(stage) is not None:
            return Fix(f"stage {stage} is paused", f"docdelta resume --stage {stage}")
    if waiting:
        most = max(waiting, key=lambda each: each.records)
        words = f"wait for {counted(most.records, 'record')} in front of it in {most.topic}, or start a worker"
        return Fix(words, "docdelta worker")
    doubtful = next((each for each in holdings if each.missing or each.left_over or each.suspect), None)
    if doubtful is not None and why.seen is None:
        end = f"docdelta delete {quoted(why.document_id)} --tenant {why.tenant_id}"
        words = f"the log has no event of it that could go through again: send it from its source, or end it ({end})"
        return Fix(words, f"docdelta put FILE --tenant {why.tenant_id} --id {quoted(why.document_id)}")
    if doubtful is not None:
        words = f"batch {doubtful.batch}: {counted(len(doubtful.missing), 'chunk')} missing, {len(doubtful.left_over)} left over"
        return Fix(words + (", a delta was refused" if doubtful.suspect else ""), again)
    if why.state in ("waiting", "held"):
        return Fix("no stage has it in front of it and none has settled it", again)
    building = [each for each in in_front if each.records and each.build]
    if building:
        most = max(building, key=lambda each: each.records)
        words = f"nothing to mend where it is served; the build of {most.group.removeprefix(topics.batch_group(''))} has"
        return Fix(f"{words} {counted(most.records, 'record')} in front of it", "docdelta batches")
    return Fix("nothing to mend")


def quoted(text: str) -> str:
    """Return text as one word of a shell."""
    return shlex.quote(text)


def _pauses(controls: Controls, tenant: str, batches: Iterable[BatchRecord]) -> list[tuple[str, Control]]:
    found = [(f"tenant {tenant}", controls.pause_of_tenant(tenant)), ("stage parser", controls.pause_of_stage("parser"))]
    found += [(f"stage batch:{each.batch}", controls.pause_of_stage(f"batch:{each.batch}")) for each in batches]
    return [(name, pause) for name, pause in found if pause is not None]


def _held_moment(held: HeldChange) -> Moment:
    place = f"[documents][{held.partition}]@{held.offset}"
    return Moment(held.since, "held", "", held.revision, f"{held.op} held ({held.reason})", held.why, held.event_id, place)


def _stops(settings: Settings, key: bytes, there: Collection[str]) -> tuple[Controls, HeldChange | None]:
    """Return what operators said, and the held event of a document."""
    topics = settings.topics
    controls = fold(read_topic(settings.kafka, topics.controls)) if topics.controls in there else Controls()
    held: HeldChange | None = None
    if topics.held in there:
        for record in read_topic(settings.kafka, topics.held, key):
            held = None if record.value is None else decode(record.value, HeldChange)
    return controls, held


def _holding(settings: Settings, batch: BatchRecord, key: bytes, indexed: InIndex | None) -> Holding:
    topics = settings.topics
    value: bytes | None = None
    for record in read_topic(settings.kafka, topics.changelog(topics.batch_group(batch.batch), topics.manifests_table), key):
        value = record.value
    served = indexed is not None and indexed.collection == batch.collection
    points = tuple(str(payload["chunk_id"]) for payload in indexed.chunks) if indexed is not None and served else None
    if not value:
        return Holding(batch.batch, batch.state, None, points=points)
    manifest = Manifest.from_bytes(value)
    return Holding(
        batch.batch, batch.state, manifest.revision, manifest.deleted, manifest.suspect, manifest.chunk_ids, points
    )  # fmt: skip


def _in_front(
    settings: Settings, batches: Sequence[BatchRecord], key: bytes, documents: Sequence[InRecord], parsed: Sequence[InRecord]
) -> tuple[InFront, ...]:
    """Return, for every group and topic, the records up to the newest one of this document that the group has not committed.

    Of [changes] all that lies ahead in its partition counts: which of them are its own is not looked up.
    """
    topics = settings.topics
    newest = {topics.documents: documents[-1].offset if documents else -1, topics.parsed: parsed[-1].offset if parsed else -1}
    found = []
    for group in group_lags(settings, batches):
        ours = {each.partition for each in group.partitions if each.topic == topics.documents or each.topic == topics.parsed}
        home = partition_of(key, len(ours)) if ours else 0
        for each in group.partitions:
            if each.partition == home:
                ahead = _ahead(each, newest.get(each.topic))
                found.append(InFront(group.group, each.topic, each.partition, ahead, group.lane == "build"))
    return tuple(found)


def _in_bulk(settings: Settings, newest: InRecord) -> list[InFront]:
    """Return what the feeder must still pass on before it has passed this record of [bulk]."""
    group = settings.topics.feeder_group
    places = [each for each in group_lag(settings.kafka, group, [newest.topic]) if each.partition == newest.partition]
    return [InFront(group, each.topic, each.partition, _ahead(each, newest.offset)) for each in places]


def _ahead(place: PartitionLag, newest: int | None) -> int:
    position = max(place.begin, place.committed or 0)
    return place.lag if newest is None else max(0, newest + 1 - position)
