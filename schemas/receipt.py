"""Receipt: what became of one revision in one batch, with its times and figures."""

from __future__ import annotations

from typing import ClassVar, Literal

from pydantic import AwareDatetime

from schemas.record import DocumentId, Record, Revision, TenantId

Outcome = Literal["indexed", "unchanged", "stale", "held", "dead_lettered"]


class Receipt(Record):
    """One event, one outcome. `batch` is empty when the event was settled before it reached a batch (stage ``parser``).

    A repeat after a crash carries the same event, batch and outcome, so readers keep the first of equal
    (tenant, document, revision, event_id, batch). Times are UTC; figures are counts of chunks.
    """

    record_name: ClassVar[str] = "receipt"

    tenant_id: TenantId
    document_id: DocumentId
    revision: Revision
    batch: str = ""
    stage: Literal["parser", "chunker", "indexer"]
    outcome: Outcome
    reason: str = ""
    deleted: bool = False
    dropped: bool = False
    """Unchanged since a person decided against it (`docdelta breaker reject`): it says nothing of what the document is like."""
    title: str = ""
    kept: int = 0
    added: int = 0
    updated: int = 0
    removed: int = 0
    embedded: int = 0
    """Texts that went through the embedder."""
    reused: int = 0
    """Vectors that were found in place (same chunk id already stored)."""
    borrowed: int = 0
    """Vectors taken from another batch with the same embed_hash."""
    event_id: str = ""
    occurred_at: AwareDatetime | None = None
    received_at: AwareDatetime | None = None
    settled_at: AwareDatetime | None = None
