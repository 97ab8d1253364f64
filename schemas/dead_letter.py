"""DeadLetter: a record parked with its original bytes, the stage that refused it and the reason."""

from __future__ import annotations

from typing import ClassVar, Literal

from pydantic import AwareDatetime, Field

from schemas.record import Record


class DeadLetter(Record):
    """Enough to say what was wrong and to replay it. `key` and `value` are base64 of the original bytes (None: was null)."""

    record_name: ClassVar[str] = "dead_letter"

    topic: str
    partition: int
    offset: int
    key: str | None
    value: str | None
    headers: dict[str, str] = Field(default_factory=dict)
    stage: Literal["parser", "chunker", "indexer"]
    batch: str = ""
    error: str
    """Class of the error: a closed set, for counting."""
    reason: str
    """What was wrong, where, and what to do: one line for a person."""
    facts: dict[str, str] = Field(default_factory=dict)
    attempts: int = 1
    tenant_id: str = ""
    document_id: str = ""
    revision: int | None = None
    event_id: str = ""
    failed_at: AwareDatetime
