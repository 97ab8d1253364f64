"""Oracle: what a history must come to, worked out anew from its events alone, and how a world is held against it."""

from __future__ import annotations

import base64
import json
from collections import defaultdict
from collections.abc import Collection, Sequence
from dataclasses import dataclass, field, replace
from functools import lru_cache

import numpy as np

from chunking.chunk import Chunk
from chunking.chunker import Provenance, chunk
from chunking.document import DocumentKey
from chunking.manifest import Manifest
from schemas.codec import UndecodableRecord, decode
from schemas.dead_letter import DeadLetter
from schemas.document_change import AGAIN, FORGET, DocumentChange
from schemas.parsed_document import ParsedDocument
from schemas.receipt import Receipt
from schemas.record import split_document_key
from streams.controls.release import HEADER as RELEASED
from streams.repair.letters import entry_of, heals
from tests.crash.simulation import documents
from tests.crash.simulation.histories import TITLES, UNEMBEDDABLE, UNREADABLE, Event
from tests.crash.simulation.world import ALIAS, NAMES, Index, SimulatedBatch, World

Content = tuple[tuple[str, ...], str]
"""Paragraphs and title."""


@dataclass(slots=True)
class Expected:
    """What is to come of one document. The first revision that says something is the only authority for its number."""

    revision: int = -1
    since: int = -1
    """The revision that first said it: those after it said nothing new, and no batch hears of them."""
    said: object = None
    deleted: bool = False
    failed: bool = False
    good: Content | None = None
    """What the newest revision that could be parsed says; None: nothing is to be in the index."""
    last: Event | None = None
    """The event that said it."""


@dataclass(slots=True)
class Verdicts:
    """All documents, and the fate of events: good ones may not be dead letters, bad ones must be."""

    documents: dict[bytes, Expected] = field(default_factory=lambda: defaultdict(Expected))
    good: set[str] = field(default_factory=set)
    bad: set[str] = field(default_factory=set)
    open: set[str] = field(default_factory=set)
    """Unembeddable: refused, unless a newer revision overtook it before the embedder saw it."""
    garbage: list[Event] = field(default_factory=list)
    cured: set[str] = field(default_factory=set)
    """What may be refused at first, and goes when it is sent again (histories.py)."""


def judge(events: tuple[Event, ...], refused: Collection[str] = ()) -> Verdicts:
    """Return what an orderly reader of the log would make of it. refused: events that may be mended and never passed the parser."""
    verdicts = Verdicts()
    for event in events:
        if event.kind == "garbage":
            verdicts.garbage.append(event)
            continue
        fate = _accept(verdicts.documents[event.key], event, refused)
        getattr(verdicts, fate).add(event.event_id)
    # One record sent twice is one event.
    verdicts.good -= verdicts.bad | verdicts.open
    verdicts.cured = {event.event_id for event in events if event.is_curable}
    verdicts.good, verdicts.bad = verdicts.good - verdicts.cured, verdicts.bad - verdicts.cured
    return verdicts


def _accept(document: Expected, event: Event, refused: Collection[str]) -> str:
    deleted = event.kind in ("delete", "null")
    revision = max(document.revision, 0) if event.kind == "null" else event.revision
    said = "deleted" if deleted else (event.paragraphs, event.title)
    if revision < document.revision:
        return "good"
    if revision == document.revision and not (deleted and not document.deleted):
        if document.deleted and not deleted:
            return "good"
        if said != document.said:
            return "bad"
        if not document.failed and not event.reindex:
            return "good"
    unreadable = not deleted and (UNREADABLE in event.paragraphs or (event.is_curable and event.event_id in refused))
    if said != document.said or document.failed:
        document.since = revision
    document.revision, document.said, document.deleted, document.failed = revision, said, deleted, unreadable
    if unreadable:
        return "bad"
    document.good = None if deleted else (event.paragraphs, event.title)
    document.last = event
    return "open" if not deleted and UNEMBEDDABLE in event.paragraphs else "good"


@lru_cache(maxsize=4096)
def clean_build(batch: SimulatedBatch, key: bytes, content: Content) -> tuple[Chunk, ...]:
    """Return the chunks of a document made from nothing."""
    paragraphs, title = content
    tenant, name = split_document_key(key)
    document = documents.parse("\n\n".join(paragraphs), title)
    return chunk(document, Provenance(DocumentKey(tenant, name), 0, title=title), batch.policy, documents.token_counter())


def complaints(
    world: World,
    events: tuple[Event, ...],
    ordered: bool = True,
    two_owners: bool = False,
    let_be: Collection[tuple[str, bytes]] = (),
    refused: Collection[str] = (),
) -> list[str]:
    """Return what is wrong with a drained world, one line each; nothing when it is as it must be.

    ordered: [documents] must end in the newest of each.
    two_owners: a good event may have been a dead letter, if it has healed. let_be: (batch, document) that lack something which
    somebody dropped. refused: as `judge` has it.
    """
    verdicts = judge(events, refused)
    found = _outcomes(world, verdicts, two_owners)
    found += _order(world, verdicts) if ordered else []
    for batch in world.live:
        if batch.name not in world.indexes:
            found.append(f"{batch.name}: its collection is gone")
            continue
        points = set(world.indexes[batch.name].points)
        for key in {event.key for event in events}:
            points -= {point.chunk_id for point in world.indexes[batch.name].of_document(*split_document_key(key))}
            expected = verdicts.documents[key] if key in verdicts.documents else Expected()
            if (batch.name, key) not in let_be:
                found += document_complaints(world, batch, key, expected)
        found += [f"{batch.name}: point {chunk_id[:12]} belongs to no document of this history" for chunk_id in points]
    served = world.ledger.served(ALIAS)
    if served is None or world.aliases != {ALIAS: served.collection}:
        found.append(f"readers see {world.aliases}, [batches] says {served.batch if served else None}")
    return found


def named(world: World, events: tuple[Event, ...]) -> tuple[Event, ...]:
    """Return the events, those that can't carry an id under the place of their record."""
    named = []
    for event, record in zip(events, world.produced, strict=False):
        place = f"{record.topic}-{record.partition}-{record.offset}"
        named.append(replace(event, event_id=place) if event.kind == "null" else event)
    return tuple(named)


def as_they_came(world: World) -> tuple[Event, ...]:
    """Return the events in the order of [documents], where some came through [bulk]: what was said again or released is none,
    and what the feeder passed on twice is the same event again."""
    came = []
    for record in world.records(NAMES.documents):
        if not record.headers.keys() & {AGAIN, FORGET, RELEASED}:
            event = event_of(record.key, record.value)
            place = f"{record.topic}-{record.partition}-{record.offset}"
            came.append(replace(event, event_id=place) if event.kind == "null" else event)
    return tuple(came)


def never_passed_on(world: World, events: tuple[Event, ...]) -> list[str]:
    """Return what was sent and never stood in [documents]."""
    there = {(record.key, record.value) for record in world.records(NAMES.documents)}
    return [f"never passed on: {event}" for event in events if (event.key, event.value) not in there]


def _order(world: World, verdicts: Verdicts) -> list[str]:
    """Return the documents of which compaction would leave something else in [documents] than their newest revision."""
    last = {record.key: record for record in world.records(NAMES.documents)}
    found = []
    for key, expected in verdicts.documents.items():
        record = last[key]
        if record.value is None and FORGET in record.headers and expected.deleted:
            continue
        event = event_of(record.key, record.value)
        said: object = "deleted" if event.kind in ("delete", "null") else (event.paragraphs, event.title)
        right = event.kind == "null" or event.revision == expected.revision
        if event.kind == "garbage" or said != expected.said or not right:
            found.append(f"{(key or b'').decode()}: [documents] ends in {event}, not in r{expected.revision}")
    return found


def event_of(key: bytes | None, value: bytes | None) -> Event:
    """Return what a record of [documents] says, as the event that it was."""
    tenant, name = split_document_key(key or b"")
    if value is None:
        return Event("null", tenant, name)
    try:
        change = decode(value, DocumentChange)
    except UndecodableRecord:
        return Event("garbage", tenant, name, event_id=json.loads(value)["what"])
    text = (change.content.text or "") if change.content is not None else ""
    paragraphs = tuple(text.split("\n\n")) if text else ()
    return Event(change.op, tenant, name, change.revision, paragraphs, change.title or TITLES[0], change.event_id, change.reindex)


def document_complaints(world: World, batch: SimulatedBatch, key: bytes, expected: Expected) -> list[str]:
    """Return what is wrong with one document in one batch."""
    name, index = f"{batch.name} {key.decode()}", world.indexes[batch.name]
    stored = index.of_document(*split_document_key(key))
    if expected.good is not None and UNEMBEDDABLE in expected.good[0]:
        refused = {c.chunk_id for c in clean_build(batch, key, expected.good) if UNEMBEDDABLE in c.text}
        return [f"{name}: an unembeddable chunk is in the index" for point in stored if point.chunk_id in refused]
    chunks = clean_build(batch, key, expected.good) if expected.good is not None else ()
    wanted = {chunk.chunk_id: chunk for chunk in chunks}
    found = [f"{name}: missing chunk “{c.text}”" for c in chunks if c.chunk_id not in index.points]
    found += [f"{name}: left over chunk “{point.payload['text']}”" for point in stored if point.chunk_id not in wanted]
    for point in stored:
        if (chunk := wanted.get(point.chunk_id)) is not None:
            found += _point(name, index, chunk, expected)
    if not found and [point.chunk_id for point in stored] != [chunk.chunk_id for chunk in chunks]:
        found.append(f"{name}: order is {[p.payload['text'] for p in stored]}, not {[c.text for c in chunks]}")
    value = world.recovered_table(batch.name, world.partition_of(key)).get(key)
    if value is None:
        return found  # lost since: the document's next event compares with the index itself
    manifest = Manifest.from_bytes(value)
    held = [(p.chunk_id, p.payload["payload_hash"], p.payload["order_key"]) for p in stored]
    if [(e.chunk_id, e.payload_hash, e.order_key) for e in manifest.entries] != held:
        found.append(f"{name}: the manifest is not what the index holds")
    return found


def _point(name: str, index: Index, chunk: Chunk, expected: Expected) -> list[str]:
    payload, vector = index.points[chunk.chunk_id]
    bare = {field: value for field, value in payload.items() if field not in ("revision", "order_key", "payload_hash")}
    found = []
    if bare != chunk.payload or payload["payload_hash"] != chunk.payload_hash:
        differing = sorted(field for field in {*bare, *chunk.payload} if bare.get(field) != chunk.payload.get(field))
        found.append(f"{name}: payload of “{chunk.text}” differs in {differing}")
    if vector is None or not np.array_equal(vector, documents.vector(chunk.embed_text)):
        found.append(f"{name}: vector of “{chunk.text}” is not that of its text")
    if payload["revision"] > expected.revision:
        found.append(f"{name}: “{chunk.text}” claims revision {payload['revision']}")
    return found


def _is_healed(letter: DeadLetter, receipts: Sequence[Receipt]) -> bool:
    """Return whether readers of letters and receipts take the matter for settled (streams/repair/letters.py)."""
    entry = entry_of("0-0", letter)
    about = [each for each in receipts if (each.tenant_id, each.document_id) == (letter.tenant_id, letter.document_id)]
    return any(heals(receipt, entry) for receipt in about)


def _outcomes(world: World, verdicts: Verdicts, two_owners: bool) -> list[str]:
    receipts = [decode(record.value, Receipt) for record in world.records(NAMES.receipts) if record.value]
    letters = [decode(record.value, DeadLetter) for record in world.records(NAMES.dead_letters) if record.value]
    settled = {(receipt.event_id, receipt.batch) for receipt in receipts} | {(each.event_id, each.batch) for each in letters}
    if two_owners:
        # One that is fenced off may see its successor's removals, and park what that one settles: such a letter heals.
        healed = {letter.event_id for letter in letters if letter.event_id in verdicts.good and _is_healed(letter, receipts)}
        letters = [letter for letter in letters if letter.event_id not in healed]
        receipts = [each for each in receipts if not (each.event_id in healed and each.outcome == "dead_lettered")]
    dead = {letter.event_id for letter in letters} - {""}
    first: dict[tuple[str, str], Receipt] = {}
    for receipt in receipts:
        first.setdefault((receipt.event_id, receipt.batch), receipt)
    found = [f"event {event}: a good event is a dead letter" for event in sorted(verdicts.good & dead)]
    found += [f"event {event}: a bad event is no dead letter" for event in sorted(verdicts.bad - dead)]
    without = (verdicts.good | verdicts.bad | verdicts.cured) - {event for event, _ in settled}
    found += [f"event {event}: no outcome" for event in sorted(without)]
    originals = {base64.b64decode(letter.value) for letter in letters if letter.value is not None}
    found += [f"event {e.event_id}: garbage is no dead letter" for e in verdicts.garbage if e.value not in originals]
    for document in verdicts.documents.values():
        last = document.last
        for batch in world.live:
            receipt = first.get((last.event_id, batch.name)) if last is not None and last.event_id in verdicts.good else None
            if receipt is not None and receipt.outcome not in ("indexed", "unchanged"):
                found.append(f"event {receipt.event_id}: the newest revision's outcome in {batch.name} is {receipt.outcome}")
    for record in world.records(NAMES.parsed):
        event = decode(record.value, ParsedDocument).event_id if record.value else ""
        if event in verdicts.good | verdicts.cured and (record.topic, record.partition, record.offset) not in world.gone:
            places = [(event, batch.name) for batch in world.live]
            found += [f"event {event}: no outcome in {place[1]}" for place in places if place not in settled]
    return found
