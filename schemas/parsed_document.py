"""ParsedDocument: the blocks of one revision, as they travel between the parser and the chunker of each batch."""

from __future__ import annotations

from typing import ClassVar, Literal

from pydantic import AwareDatetime, Field

from schemas.document_change import AttributeValue
from schemas.record import DocumentId, Frozen, Record, Revision, TenantId

PREVIOUS = "docdelta-previous"
"""Header: the revision of the document that was passed on before this one, in digits. A batch with an older manifest did not settle
that one: whoever had the partition before may have planned it, and compaction has taken it since. Unknown to earlier releases."""


class ParsedBlock(Frozen):
    """One structural unit. `start` and `end` are offsets in characters (code points) into `ParsedDocument.text`.

    The meaning of each field is that of `chunking.document.Block`; short names keep the record small.
    """

    kind: str
    start: int = Field(ge=0)
    end: int = Field(ge=0)
    level: int = 0
    label: str = ""
    group: int = 0
    cells: tuple[str, ...] = ()
    page: int | None = None
    attributes: dict[str, str] = Field(default_factory=dict)


class ParsedDocument(Record):
    """The newest parsed revision of a document, or (`op="delete"`) the mark of its end, which outlives it.

    `text` is the normalised source: every block is a slice of it. Metadata is carried along unread. `parser` names
    parser and version (``markdown/1``), since a parser fix can move boundaries.
    """

    record_name: ClassVar[str] = "parsed_document"

    tenant_id: TenantId
    document_id: DocumentId
    revision: Revision
    op: Literal["upsert", "delete"]
    media_type: str = ""
    parser: str = ""
    text: str = ""
    blocks: tuple[ParsedBlock, ...] = ()
    title: str = ""
    source_uri: str = ""
    language: str = ""
    kind: str = ""
    labels: tuple[str, ...] = ()
    acl: tuple[str, ...] | None = None
    attributes: dict[str, AttributeValue] = Field(default_factory=dict)
    occurred_at: AwareDatetime | None = None
    received_at: AwareDatetime | None = None
    event_id: str = ""
    reindex: bool = False
    """True: the batch compares with the index itself, not with its manifest."""
