"""What the offline commands share: a file to its Document, a Document to its chunks, chunks to plain values. Offline."""

from __future__ import annotations

import unicodedata
from pathlib import Path
from typing import Any

from chunking.chunk import Chunk
from chunking.chunker import Provenance, TooManyChunks
from chunking.chunker import chunk as chunk_document
from chunking.document import Block, Document, DocumentKey
from chunking.policy import ChunkPolicy
from streams.cli.exits import Failed
from streams.cli.files import FileFacts, known_media_type, read_bytes
from streams.errors import UsageError

PREVIEW_TENANT = "preview"


def read_document(path: Path, facts: FileFacts) -> Document:
    """Return the parsed document in a file. Raises UsageError (file, type), Failed (the parser refused its content)."""
    from chunking.parsers import UnsupportedMediaType, parse_document

    data = read_bytes(path)
    media_type = known_media_type(path, facts.media_type)
    try:
        return parse_document(
            data,
            media_type,
            title=facts.title,
            language=facts.language,
            kind=facts.kind,
            labels=frozenset(facts.labels),
        )
    except UnsupportedMediaType as error:
        raise UsageError(f"{path}: {error}") from error
    except ValueError as error:
        raise Failed(f"{path}: {error}") from error


def chunks_of(document: Document, path: Path, policy: ChunkPolicy, *, tenant: str, document_id: str) -> tuple[Chunk, ...]:
    """Return the chunks of a document as the pipeline would make them for this tenant and document id."""
    from chunking.tokens import counter

    key = DocumentKey(tenant, document_id or unicodedata.normalize("NFC", path.name))
    try:
        tokens = counter(policy.limits.tokenizer)
    except (ValueError, OSError) as error:
        raise UsageError(f"policy {policy.name}: limits.tokenizer {policy.limits.tokenizer!r}: {error}") from error
    provenance = Provenance(key, revision=0, title=document.title, source_uri=key.document)
    try:
        return chunk_document(document, provenance, policy, tokens)
    except TooManyChunks as error:
        raise Failed(f"{path}: {error}") from error


def chunk_json(chunk: Chunk) -> dict[str, Any]:
    """Return a chunk as `docdelta chunk --json` prints it. Spans are characters of the normalised source."""
    overlap = None
    if chunk.overlap is not None:
        overlap = {"type": chunk.overlap.kind, "weight": chunk.overlap.weight, **chunk.overlap.details}
    return {
        "chunk_id": chunk.chunk_id,
        "ordinal": chunk.ordinal,
        "kind": str(chunk.kind),
        "heading_path": list(chunk.heading_path),
        "clause": chunk.clause,
        "clauses": list(chunk.payload["clauses"]),
        "text": chunk.text,
        "embed_text": chunk.embed_text,
        "tokens": chunk.tokens,
        "span": {"start": chunk.span.start, "end": chunk.span.end},
        "page": chunk.page,
        "parent": chunk.parent,
        "role": str(chunk.role),
        "overlap": overlap,
    }


def block_json(document: Document, block: Block) -> dict[str, Any]:
    """Return a block as `docdelta parse --json` prints it."""
    return {
        "kind": str(block.kind),
        "span": {"start": block.span.start, "end": block.span.end},
        "text": document.text_of(block),
        "level": block.level,
        "label": block.label,
        "clause": block.clause,
        "group": block.group,
        "cells": list(block.cells),
        "page": block.page,
        "attributes": dict(block.attributes),
    }
