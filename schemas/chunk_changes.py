"""ChunkChanges: what one revision adds, updates and removes in one batch, in parts when large."""

from __future__ import annotations

from typing import Any, ClassVar

from pydantic import AwareDatetime, Field

from schemas.record import REVISION_LIMIT, DocumentId, Frozen, Record, Revision, TenantId


class ChunkRecord(Frozen):
    """One chunk to be stored. `payload` is everything beside the vector except `order_key` and `revision`."""

    chunk_id: str
    embed_hash: str
    payload_hash: str
    order_key: int = Field(ge=0, lt=REVISION_LIMIT)
    embed_text: str
    """The exact string given to the embedder, prefix and repeats included. Blank for chunks that get no vector."""
    payload: dict[str, Any]


class ChunkChanges(Record):
    """The delta of one revision against the manifest before it.

    A large delta travels in `parts` records of one key, in order: `added` and `updated` in any part, `removed` and `kept` only in
    the last, so that nothing is removed before everything new is in place. `complete=True` says that the index may not be what the
    manifest before says (lost state, a refused delta, reindex): every chunk is named, the indexer lists the document's points,
    compares each, and removes what no part names. `kept` of the last part also names the chunks of the parts before it.
    """

    record_name: ClassVar[str] = "chunk_changes"

    tenant_id: TenantId
    document_id: DocumentId
    batch: str
    revision: Revision
    part: int = Field(default=1, ge=1)
    parts: int = Field(default=1, ge=1)
    complete: bool = False
    deleted: bool = False
    added: tuple[ChunkRecord, ...] = ()
    updated: tuple[ChunkRecord, ...] = ()
    removed: tuple[str, ...] = ()
    kept: tuple[str, ...] = ()
    chunks_added: int = 0
    chunks_updated: int = 0
    chunks_kept: int = 0
    """Totals over all parts: what the receipt reports after the last one."""
    title: str = ""
    occurred_at: AwareDatetime | None = None
    received_at: AwareDatetime | None = None
    event_id: str = ""
