"""Document to ParsedDocument and back: the wire form of what the parser made. The round trip is exact."""

from __future__ import annotations

from datetime import datetime

from chunking.chunker import Provenance
from chunking.document import Block, BlockKind, Document, DocumentKey, Span
from schemas.document_change import DocumentChange
from schemas.parsed_document import ParsedBlock, ParsedDocument


def to_wire(change: DocumentChange, document: Document, received_at: datetime) -> ParsedDocument:
    """Return the record that carries a parsed revision to every batch."""
    return ParsedDocument(
        tenant_id=change.tenant_id,
        document_id=change.document_id,
        revision=change.revision,
        op="upsert",
        media_type=document.media_type,
        parser=document.parser,
        text=document.text,
        blocks=tuple(_wire_block(block) for block in document.blocks),
        title=change.title or document.title,
        source_uri=change.source_uri,
        language=document.language,
        kind=document.kind,
        labels=tuple(sorted(document.labels)),
        acl=change.acl,
        attributes=change.attributes,
        occurred_at=change.occurred_at,
        received_at=received_at,
        event_id=change.event_id,
        reindex=change.reindex,
    )


def end_to_wire(change: DocumentChange, received_at: datetime) -> ParsedDocument:
    """Return the record that carries the end of a document to every batch."""
    return ParsedDocument(
        tenant_id=change.tenant_id,
        document_id=change.document_id,
        revision=change.revision,
        op="delete",
        occurred_at=change.occurred_at,
        received_at=received_at,
        event_id=change.event_id,
        reindex=change.reindex,
    )


def from_wire(parsed: ParsedDocument) -> tuple[Document, Provenance]:
    """Return the document and what is known of it. Raises ValueError when blocks and text do not fit together."""
    document = Document(
        text=parsed.text,
        blocks=tuple(_block(block) for block in parsed.blocks),
        title=parsed.title,
        media_type=parsed.media_type,
        language=parsed.language,
        kind=parsed.kind,
        labels=frozenset(parsed.labels),
        parser=parsed.parser,
    )
    provenance = Provenance(
        key=DocumentKey(parsed.tenant_id, parsed.document_id),
        revision=parsed.revision,
        title=parsed.title,
        source_uri=parsed.source_uri,
        acl=parsed.acl,
        attributes=parsed.attributes,
    )
    return document, provenance


def _wire_block(block: Block) -> ParsedBlock:
    return ParsedBlock(
        kind=block.kind.value,
        start=block.span.start,
        end=block.span.end,
        level=block.level,
        label=block.label,
        group=block.group,
        cells=block.cells,
        page=block.page,
        attributes=dict(block.attributes),
    )


def _block(block: ParsedBlock) -> Block:
    return Block(
        kind=BlockKind(block.kind),
        span=Span(block.start, block.end),
        level=block.level,
        label=block.label,
        group=block.group,
        cells=block.cells,
        page=block.page,
        attributes=block.attributes,
    )
