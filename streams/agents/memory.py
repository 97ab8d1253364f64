"""The parser's memory, made again from the log where it is lost: newest revision and fingerprint of each document.

Without it, an old event that comes late would bring a deleted document back. [documents] keeps the newest event of each key, and
what stands before the group's committed offset has been settled. Whether it could be parsed is not told there, so each row says
"failed": the same content under a newer revision, or sent again, is then parsed once more, at no embedding. Rows say no time, so no
breaker counts them.

Nor does [documents] tell all that was let pass: compaction keeps the last record of a key, which a late event may be; `gc` takes
deletes away; what is held was not let pass; and what was rejected never will be. [parsed] has the newest of each document, ends
included: where it knows better, it counts. A delete that it has not was decided against. The row of a document with a held event
has its mark again, so that an older event can't take its place.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import replace
from types import MappingProxyType

import orjson

from schemas.codec import UndecodableRecord, decode
from schemas.document_change import FORGET, DocumentChange
from schemas.held_change import HeldChange
from schemas.record import document_key
from streams.errors import PoisonRecord
from streams.kafka.offsets import PartitionLag
from streams.ports import InRecord
from streams.steps.settle_change import UNSEEN, HeldMark, Seen, change_fingerprint, failed, settle_change


def forgotten(places: Iterable[PartitionLag], documents: str, changelog: str, partitions: Collection[int]) -> dict[int, range]:
    """Return, by partition, the offsets of [documents] that were settled and of which nothing is remembered.

    Compaction keeps the last record of a key, so a changelog is empty only where nothing was ever saved, or all of it is gone.
    """
    known = {(place.topic, place.partition): place for place in places}
    found = {}
    for number in partitions:
        log, memory = known[documents, number], known[changelog, number]
        if memory.begin >= memory.end and log.committed is not None and log.committed > log.begin:
            found[number] = range(log.begin, log.committed)
    return found


def remembered(
    records: Iterable[InRecord], held: Mapping[bytes, HeldChange] = MappingProxyType({}), parsed: Iterable[InRecord] = ()
) -> dict[bytes, Seen]:
    """Return what is to be remembered of the documents of one partition.

    records: of [documents] up to the committed offset, in their order; held: what is in [held]; parsed: of [parsed], read last.
    """
    memory, fingerprints, places = _said(records)
    passed = _passed(parsed, fingerprints, places)
    for key, there in passed.items():
        said = memory.get(key)
        if said is None or (there.revision, there.deleted) > (said.revision, said.deleted):
            memory[key] = there
        elif said.deleted and not there.deleted:
            memory[key] = replace(there, offset=max(there.offset, said.offset), dropped=said.revision)
    for key, waiting in held.items():
        memory[key] = replace(passed.get(key, Seen(UNSEEN, "")), held=_mark(waiting))
    return memory


def _passed(
    parsed: Iterable[InRecord], fingerprints: Mapping[tuple[bytes, int], str], places: Mapping[tuple[bytes, int], int]
) -> dict[bytes, Seen]:
    """Return the newest that was let pass of each document. Blocks are not looked at: it takes what reading the JSON takes."""
    passed: dict[bytes, Seen] = {}
    for record in parsed:
        if record.key is None or record.value is None:
            continue
        said = orjson.loads(record.value)
        revision, deleted = int(said["revision"]), said.get("op") == "delete"
        before = passed.get(record.key)
        if before is None or (revision, deleted) >= (before.revision, before.deleted):
            name = record.key, revision
            place = -1 if deleted else places.get(name, -1)
            passed[record.key] = Seen(revision, fingerprints.get(name, ""), deleted, failed=True, offset=place)
    return passed


def _mark(held: HeldChange) -> HeldMark:
    said = held.end if held.original is None else decode(held.original, DocumentChange)
    return HeldMark(held.reason, held.revision, change_fingerprint(said), held.op == "delete", held.event_id, held.offset)


def _said(
    records: Iterable[InRecord],
) -> tuple[dict[bytes, Seen], dict[tuple[bytes, int], str], dict[tuple[bytes, int], int]]:
    """Return what the log says last of each document, what each revision that it still has says (its fingerprint), and where each
    upsert stands last."""
    memory: dict[bytes, Seen] = {}
    fingerprints: dict[tuple[bytes, int], str] = {}
    places: dict[tuple[bytes, int], int] = {}
    for record in records:
        key = record.key
        if key is None:
            continue
        before = memory.get(key)
        if record.value is None:
            if before is not None and FORGET not in record.headers:
                memory[key] = replace(before, deleted=True, fingerprint="", offset=record.offset)
            continue
        try:
            change = decode(record.value, DocumentChange)
            if key != document_key(change.tenant_id, change.document_id):
                continue
            if change.op == "upsert":
                places[key, change.revision] = record.offset
            seen = settle_change(change, before).seen
        except (UndecodableRecord, PoisonRecord):  # it was refused then, too
            continue
        if seen is not None:
            memory[key] = replace(failed(seen), offset=record.offset)
            if not seen.deleted:
                fingerprints[key, seen.revision] = seen.fingerprint
    return memory, fingerprints, places
