"""A parsed document against its manifest gives the changes of one batch, cut into parts that fit a record."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal

from chunking.chunk import Chunk
from chunking.chunker import TooManyChunks, chunk
from chunking.diff import Delta, Placed, diff
from chunking.manifest import Manifest, ManifestEntry
from chunking.policy import ChunkPolicy
from chunking.strategies.base import SentenceVectors
from chunking.tokens import TokenCounter
from schemas.chunk_changes import ChunkChanges, ChunkRecord
from schemas.parsed_document import ParsedDocument
from streams.errors import PoisonRecord
from streams.steps.wire_document import from_wire
from streams.topics import MAX_PART_BYTES, MAX_RECORD_BYTES


@dataclass(frozen=True, slots=True)
class Planned:
    """Changes to publish, then the manifest to remember. No changes: the revision says nothing new to this batch."""

    changes: tuple[ChunkChanges, ...]
    manifest: Manifest
    delta: Delta


@dataclass(frozen=True, slots=True)
class Skipped:
    """Nothing to publish and nothing to remember. `outcome` None: the same event again, its outcome is out."""

    outcome: Literal["unchanged", "stale"] | None
    reason: str


def skip_reason(parsed: ParsedDocument, manifest: Manifest | None) -> Skipped | None:
    """Return why a record needs no chunking at all, or None when it does."""
    if manifest is None:
        return None
    if parsed.revision < manifest.revision:
        return Skipped("stale", f"revision {manifest.revision} is already planned")
    if parsed.revision == manifest.revision and manifest.deleted and parsed.op == "upsert":
        return Skipped("stale", "deleted at this revision")
    if parsed.revision > manifest.revision or manifest.suspect or parsed.reindex:
        return None
    if parsed.event_id == manifest.event_id:
        return Skipped(None, "the same event again")
    if parsed.op == "delete" and not manifest.deleted:
        return None
    return Skipped("unchanged", "same revision again")


def plan_changes(
    parsed: ParsedDocument,
    before: Manifest | None,
    batch: str,
    policy: ChunkPolicy,
    counter: TokenCounter,
    complete: bool,
    vectors: SentenceVectors | None = None,
) -> Planned:
    """Return what a revision changes. `complete`: the index may not be what `before` says (state lost, a delta refused, reindex
    asked), so every chunk is named, the indexer compares each with what is there, and clears what nobody names.

    Raises PoisonRecord: blocks that do not fit the text, more chunks than the policy allows, one chunk too large for a record.
    """
    deleted = parsed.op == "delete"
    chunks: Sequence[Chunk] = ()
    if not deleted:
        try:
            document, provenance = from_wire(parsed)
            chunks = chunk(document, provenance, policy, counter, vectors)
        except TooManyChunks as error:
            raise PoisonRecord(str(error)) from error
        except ValueError as error:
            raise PoisonRecord(f"parsed blocks do not fit their text: {error}; parse the page again") from error
    delta, after = diff(before, chunks, parsed.revision, deleted)
    after = replace(after, event_id=parsed.event_id, changed=parsed.revision)
    # The end of an empty document is passed on as well: it overtakes what is under way, and must clear what that leaves behind.
    if before is not None and delta.empty and not complete and deleted == before.deleted:
        return Planned((), replace(after, changed=before.changed), delta)
    named = _all_named(chunks, after, delta) if complete else delta
    return Planned(tuple(_parts(parsed, delta, named, batch, complete)), after, delta)


def _all_named(chunks: Sequence[Chunk], after: Manifest, delta: Delta) -> Delta:
    """Return the delta with kept chunks among the updated ones. `before` may be older than changes that are still on their way to
    the index, so "kept" would mean what the index held then."""
    kept = set(delta.kept)
    placed = (Placed(chunk, entry.order_key) for chunk, entry in zip(chunks, after.entries, strict=True))
    return Delta(delta.added, (*delta.updated, *(p for p in placed if p.chunk.chunk_id in kept)), delta.removed)


def manifest_of_points(payloads: Sequence[Mapping[str, Any]]) -> Manifest | None:
    """Return the manifest that an index's points of one document amount to (lost state), or None when it holds none."""
    if not payloads:
        return None
    entries = sorted(
        (ManifestEntry(str(p["chunk_id"]), str(p["payload_hash"]), int(p["order_key"])) for p in payloads),
        key=lambda entry: (entry.order_key, entry.chunk_id),
    )
    revision = max(int(payload["revision"]) for payload in payloads)
    return Manifest(revision, tuple(entries), changed=revision)


def _parts(parsed: ParsedDocument, delta: Delta, named: Delta, batch: str, complete: bool) -> Iterator[ChunkChanges]:
    """Give what is named in records of bounded size, with the totals of the delta. The last one says what is removed and names
    every chunk that stays: it must be enough by itself, since a crash may leave the earlier parts acknowledged."""
    pieces = list(_bounded(named))
    earlier = [record.chunk_id for piece in pieces[:-1] for records in piece for record in records]
    kept = (*named.kept, *earlier)
    for number, (added, updated) in enumerate(pieces, start=1):
        last = number == len(pieces)
        yield ChunkChanges(
            tenant_id=parsed.tenant_id,
            document_id=parsed.document_id,
            batch=batch,
            revision=parsed.revision,
            part=number,
            parts=len(pieces),
            complete=complete,
            deleted=parsed.op == "delete",
            added=tuple(added),
            updated=tuple(updated),
            removed=delta.removed if last else (),
            kept=kept if last else (),
            chunks_added=len(delta.added),
            chunks_updated=len(delta.updated),
            chunks_kept=len(delta.kept),
            title=parsed.title,
            occurred_at=parsed.occurred_at,
            received_at=parsed.received_at,
            event_id=parsed.event_id,
        )


def _bounded(delta: Delta) -> Iterator[tuple[list[ChunkRecord], list[ChunkRecord]]]:
    added: list[ChunkRecord] = []
    updated: list[ChunkRecord] = []
    size = 0
    for target, placed in (*((added, p) for p in delta.added), *((updated, p) for p in delta.updated)):
        record = _record(placed)
        cost = len(record.model_dump_json().encode("utf-8"))
        if cost > MAX_RECORD_BYTES - MAX_PART_BYTES:
            raise PoisonRecord(f"one chunk takes {cost} bytes; lower the strategy's sizes", chunk_id=record.chunk_id)
        if size and size + cost > MAX_PART_BYTES:
            yield list(added), list(updated)
            added.clear()
            updated.clear()
            size = 0
        target.append(record)
        size += cost
    yield added, updated


def _record(placed: Placed) -> ChunkRecord:
    chunk = placed.chunk
    return ChunkRecord(
        chunk_id=chunk.chunk_id,
        embed_hash=chunk.embed_hash,
        payload_hash=chunk.payload_hash,
        order_key=placed.order_key,
        embed_text=chunk.embed_text,
        payload=dict(chunk.payload),
    )
