"""The parser's memory, made again from the log where it is lost: newest revision and fingerprint of each document.

Without it, an old event that comes late would bring a deleted document back. [documents] keeps the newest event of each key, and
what stands before the group's committed offset has been settled. Whether it could be parsed is not told there, so each row says
"failed": the same content under a newer revision, or sent again, is then parsed once more, at no embedding. Rows say no time, so no
breaker counts them. Documents with an event in [held] are left out: what is held was not let pass.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable
from dataclasses import replace

from schemas.codec import UndecodableRecord, decode
from schemas.document_change import FORGET, DocumentChange
from schemas.record import document_key
from streams.errors import PoisonRecord
from streams.kafka.offsets import PartitionLag
from streams.ports import InRecord
from streams.steps.settle_change import Seen, failed, settle_change


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


def remembered(records: Iterable[InRecord], held: Collection[bytes] = ()) -> dict[bytes, Seen]:
    """Return what is to be remembered of the documents in these records of one partition, in their order."""
    memory: dict[bytes, Seen] = {}
    for record in records:
        key = record.key
        if key is None or key in held:
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
            seen = settle_change(change, before).seen
        except (UndecodableRecord, PoisonRecord):  # it was refused then, too
            continue
        if seen is not None:
            memory[key] = replace(failed(seen), offset=record.offset)
    return memory
