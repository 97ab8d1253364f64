"""HeldChange: an event that is kept back until a person decides: its original bytes, why, and since when."""

from __future__ import annotations

import base64
from typing import ClassVar, Literal

from pydantic import AwareDatetime, Field

from schemas.document_change import DocumentChange
from schemas.record import DocumentId, Record, Revision, TenantId

HeldReason = Literal["breaker", "paused"]


class HeldChange(Record):
    """A record of [held], key tenant/document: the newest event of a document that is kept back. A tombstone: it no longer is.

    Written by the owner of the partition in [documents] alone. `key` of the record and `value` (base64, None: was null) are the
    event's own; it comes back through [documents] with them, and with the headers that `streams.controls.release` adds.
    """

    record_name: ClassVar[str] = "held_change"

    tenant_id: TenantId
    document_id: DocumentId
    revision: Revision
    op: Literal["upsert", "delete"]
    event_id: str = ""
    title: str = ""
    reason: HeldReason
    why: str
    """One line for a person: what was counted or who paused, and the command that decides."""
    since: AwareDatetime
    """When the event reached [documents]."""
    partition: int
    offset: int
    """Where it first stood in [documents]."""
    value: str | None
    headers: dict[str, str] = Field(default_factory=dict)
    """Of the event, as far as they are UTF-8."""

    @property
    def original(self) -> bytes | None:
        """The event's value."""
        return None if self.value is None else base64.b64decode(self.value)

    @property
    def end(self) -> DocumentChange:
        """A delete of the document at the event's revision, under its id: what a null value comes to."""
        return DocumentChange(
            tenant_id=self.tenant_id, document_id=self.document_id, revision=self.revision, op="delete", event_id=self.event_id
        )
