"""Changes of one revision, the points that are there and the new vectors give the plan for the index."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType

from chunking.manifest import Manifest
from schemas.chunk_changes import ChunkChanges, ChunkRecord
from streams.ports import IndexPlan, NewPoint, SparseVector, StoredPoint, Vector


@dataclass(frozen=True, slots=True)
class Wanted:
    """What of a delta still matters, given the newest manifest. A newer manifest has its own changes further on in the log:
    what it does not hold need not be written, what it holds must not be deleted."""

    write: tuple[ChunkRecord, ...]
    remove: tuple[str, ...]
    superseded: bool


def overtaken(changes: ChunkChanges, newest: Manifest | None) -> bool:
    """Return whether a later word on the document is planned already: a newer revision, or its end at the same revision."""
    if newest is None or newest.changed < changes.revision:
        return False
    return newest.changed > changes.revision or (newest.deleted and not changes.deleted)


def still_wanted(changes: ChunkChanges, newest: Manifest | None) -> Wanted:
    """Return the part of a delta that is not overtaken by a newer revision.

    A manifest of this revision or a newer one has the last word on order keys: two owners may have given one revision two sets.
    """
    records = (*changes.added, *changes.updated)
    if newest is not None and newest.changed >= changes.revision:
        keys = {entry.chunk_id: entry.order_key for entry in newest.entries}
        records = tuple(_placed(record, keys.get(record.chunk_id, record.order_key)) for record in records)
    if newest is None or not overtaken(changes, newest):
        return Wanted(records, changes.removed, superseded=False)
    held = set(newest.chunk_ids)
    return Wanted(
        tuple(record for record in records if record.chunk_id in held),
        tuple(chunk_id for chunk_id in changes.removed if chunk_id not in held),
        superseded=True,
    )


def _placed(record: ChunkRecord, order_key: int) -> ChunkRecord:
    return record if record.order_key == order_key else record.model_copy(update={"order_key": order_key})


def leftovers(changes: ChunkChanges, there: Mapping[str, StoredPoint], newest: Manifest | None) -> tuple[str, ...]:
    """Return ids that the index holds of this document, not from a newer revision, and that this last part does not name."""
    keep = {record.chunk_id for record in (*changes.added, *changes.updated)} | set(changes.kept)
    if newest is not None and overtaken(changes, newest):
        keep |= set(newest.chunk_ids)
    return tuple(
        chunk_id for chunk_id, point in there.items() if chunk_id not in keep and point.payload["revision"] <= changes.revision
    )


def needs_vector(record: ChunkRecord, there: Mapping[str, StoredPoint]) -> bool:
    """Return whether a vector must be found: the chunk has an embed string, and no point with the same embed_hash is there."""
    if not record.embed_text.strip():
        return False
    point = there.get(record.chunk_id)
    return point is None or point.payload.get("embed_hash") != record.embed_hash


def misplaced(changes: ChunkChanges, there: Mapping[str, StoredPoint], newest: Manifest | None) -> dict[str, int]:
    """Return the order keys, by chunk id, of kept chunks that stand elsewhere than the manifest of this very revision says.

    Another owner planned the document's revisions too, with keys of its own, and has stamped its chunks with this one: what placed
    them here is fenced off by now, and this record is the only one that can.
    """
    if newest is None or newest.deleted or newest.changed != changes.revision:
        return {}
    keys = {entry.chunk_id: entry.order_key for entry in newest.entries}
    return {
        chunk_id: keys[chunk_id]
        for chunk_id in changes.kept
        if chunk_id in there and chunk_id in keys and there[chunk_id].payload["order_key"] != keys[chunk_id]
    }


def plan_index(
    changes: ChunkChanges,
    wanted: Wanted,
    remove: tuple[str, ...],
    there: Mapping[str, StoredPoint],
    vectors: Mapping[str, Vector],
    sparse: Mapping[str, SparseVector] = MappingProxyType({}),
    partition: int = 0,
    placed: Mapping[str, int] = MappingProxyType({}),
) -> IndexPlan:
    """Return the plan of one record. `vectors` by embed_hash holds every vector that `needs_vector` asked for, `sparse` likewise;
    `placed` is what `misplaced` found.

    A point that is there with the right vector gets a payload write at most; a point that is there and right gets nothing.
    """
    upserts, payloads, untouched = [], [], []
    for record in wanted.write:
        payload = {
            **record.payload,
            "revision": changes.revision,
            "order_key": record.order_key,
            "payload_hash": record.payload_hash,
        }
        point = there.get(record.chunk_id)
        if needs_vector(record, there):
            upserts.append(NewPoint(record.chunk_id, vectors[record.embed_hash], payload, sparse.get(record.embed_hash)))
        elif point is None:
            upserts.append(NewPoint(record.chunk_id, None, payload))
        elif (point.payload.get("payload_hash"), point.payload.get("order_key")) != (record.payload_hash, record.order_key):
            payloads.append((record.chunk_id, payload))
        else:
            untouched.append(record.chunk_id)
    for chunk_id, order_key in placed.items():
        payloads.append((chunk_id, {**there[chunk_id].payload, "revision": changes.revision, "order_key": order_key}))
    written = bool(upserts or payloads or remove)
    kept = (chunk_id for chunk_id in changes.kept if chunk_id not in placed)
    stamps = (*kept, *untouched) if written and not wanted.superseded else ()
    return IndexPlan(
        changes.tenant_id,
        changes.document_id,
        changes.revision,
        upserts=tuple(upserts),
        payloads=tuple(payloads),
        stamps=stamps,
        deletes=remove,
        partition=partition,
    )
