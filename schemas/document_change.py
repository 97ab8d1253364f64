"""DocumentChange: upsert or delete of one document revision, keyed by tenant/document. What any producer sends."""

from __future__ import annotations

import re
from datetime import datetime
from typing import Annotated, ClassVar, Literal, Self

from pydantic import AfterValidator, AwareDatetime, Field, model_validator

from schemas.record import CleanText, DocumentId, Frozen, JsonScalar, Record, Revision, TenantId


def _sha256_hex(value: str) -> str:
    if not re.fullmatch(r"[0-9a-f]{64}", value):
        raise ValueError("sha256 must be 64 lower-case hex digits")
    return value


FORGET = "docdelta-forget"
"""Header of a null value that only lets compaction drop an old delete (`docdelta gc`). It says nothing of the document."""
AGAIN = "docdelta-again"
"""Header of an event that the parser has said again, so that compaction keeps it: the offset of the late record before it."""

Sha256Hex = Annotated[str, AfterValidator(_sha256_hex)]
AttributeValue = JsonScalar | tuple[JsonScalar, ...]


class Content(Frozen):
    """The body of a revision: exactly one of `text`, `base64` or `ref`.

    `base64` holds the bytes of a file as it is (RFC 4648, padded). `ref` is a URL or path that the worker may fetch; it
    needs `sha256`, so that what is read is what was meant. `sha256` is over the bytes (of `text`: its UTF-8).
    """

    text: CleanText | None = None
    base64: str | None = None
    ref: str | None = None
    sha256: Sha256Hex | None = None

    @model_validator(mode="after")
    def _one_source(self) -> Self:
        given = [name for name in ("text", "base64", "ref") if getattr(self, name) is not None]
        if len(given) != 1:
            raise ValueError(f"content needs exactly one of text, base64, ref; got {given or 'none'}")
        if self.ref is not None and self.sha256 is None:
            raise ValueError("content.ref needs content.sha256, so that what is fetched is what was meant")
        return self


class DocumentChange(Record):
    """One revision of one document, or its end.

    `revision` is the only order authority: an integer, 0 <= revision < 2^53, larger for newer. Microseconds since 1970 fit;
    nanoseconds do not. `attributes` reach the payload only where the policy names them. `acl=None` means "not said",
    `acl=()` means nobody.
    """

    record_name: ClassVar[str] = "document_change"

    tenant_id: TenantId
    document_id: DocumentId
    revision: Revision
    op: Literal["upsert", "delete"]
    media_type: str = Field(default="text/markdown", min_length=3, max_length=127)
    content: Content | None = None
    title: CleanText = ""
    source_uri: CleanText = ""
    language: str = Field(default="", max_length=35)
    kind: CleanText = ""
    labels: tuple[CleanText, ...] = ()
    acl: tuple[CleanText, ...] | None = None
    attributes: dict[str, AttributeValue] = Field(default_factory=dict)
    occurred_at: AwareDatetime | None = None
    event_id: str = Field(default="", max_length=128)
    reindex: bool = False
    """True: go through every stage again even where nothing seems to have changed (repair, replay of a dead letter)."""

    @model_validator(mode="after")
    def _content_fits_op(self) -> Self:
        if self.op == "upsert" and self.content is None:
            raise ValueError("an upsert needs content; to remove a document send op=delete")
        if self.op == "delete" and self.content is not None:
            raise ValueError("a delete carries no content")
        return self


def utc(moment: datetime | None) -> str:
    """Return an ISO 8601 text of a moment, or an empty text when none is given."""
    return moment.isoformat() if moment else ""
