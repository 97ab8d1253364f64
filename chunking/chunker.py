"""chunk(): a document under a policy becomes named chunks. The one place where passages get ids, embed strings and payloads."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from chunking.chunk import Chunk
from chunking.document import Document, DocumentKey
from chunking.identity import STRICT, content_id, embed_hash, parent_id, payload_hash, strict_id
from chunking.passage import Part, Passage, Role
from chunking.policy import ChunkPolicy
from chunking.strategies.base import Budget, SentenceVectors
from chunking.tokens import TokenCounter


class TooManyChunks(ValueError):
    """The document gives more chunks than the policy's `limits.max_chunks`."""


@dataclass(frozen=True, slots=True)
class Provenance:
    """What is known of a document beside its text, and stored with every chunk."""

    key: DocumentKey
    revision: int
    title: str = ""
    source_uri: str = ""
    acl: tuple[str, ...] | None = None
    attributes: Mapping[str, Any] = field(default_factory=dict)


def chunk(
    document: Document,
    provenance: Provenance,
    policy: ChunkPolicy,
    counter: TokenCounter,
    vectors: SentenceVectors | None = None,
) -> tuple[Chunk, ...]:
    """Return the chunks of a document in document order. Blank documents give none. `vectors`: where `policy.asks_model`.

    Raises TooManyChunks, and VectorsMissing where the policy asks for vectors and there are none.
    """
    if not document.blocks:
        return ()
    picked = policy.pick(document)
    room = policy.limits.max_tokens - counter.count(policy.embedding.document_prefix)
    passages = picked.strategy.cut(document, picked.options, Budget(counter, room, vectors))
    if len(passages) > policy.limits.max_chunks:
        raise TooManyChunks(
            f"{len(passages)} chunks, above the policy's limits.max_chunks {policy.limits.max_chunks}: raise it or split the page"
        )
    embed_texts = [_embed_text(passage, document, policy, counter) for passage in passages]
    token_counts = [_tokens(passage, text, counter, policy) for passage, text in zip(passages, embed_texts, strict=True)]
    ids = _chunk_ids(passages, embed_texts, document, provenance, policy)
    chunks = []
    for ordinal, (passage, embed_text, tokens) in enumerate(zip(passages, embed_texts, token_counts, strict=True)):
        payload = _payload(passage, passages, ids, embed_text, tokens, document, provenance, policy)
        payload["chunk_id"] = ids[ordinal]
        chunks.append(
            Chunk(
                chunk_id=ids[ordinal],
                ordinal=ordinal,
                text=passage.span.of(document.text),
                embed_text=embed_text,
                embed_hash=payload["embed_hash"],
                payload_hash=payload_hash(payload),
                payload=payload,
                tokens=tokens,
                span=passage.span,
                kind=passage.kind,
                strategy=passage.strategy,
                heading_path=passage.heading_path,
                clause=passage.clause,
                parts=passage.parts,
                role=passage.role,
                repeat=passage.repeat,
                overlap=passage.overlap,
                page=passage.page,
                parent=ids[passage.parent] if passage.parent is not None else None,
                boundary=passage.boundary,
            )
        )
    return tuple(chunks)


def _embed_text(passage: Passage, document: Document, policy: ChunkPolicy, counter: TokenCounter) -> str:
    """Return the exact string for the embedder; blank for parents. A context too long is shortened from the outside in."""
    if passage.role is Role.PARENT:
        return ""
    body = passage.rendering if passage.rendering is not None else passage.span.of(document.text)
    body = passage.repeat + body
    context = [document.title] if policy.embed.title and document.title else []
    context += passage.heading_path if policy.embed.heading_path else ()
    prefix = policy.embedding.document_prefix
    while context:
        text = prefix + " > ".join(context) + "\n\n" + body
        if counter.count(text) <= policy.limits.max_tokens:
            return text
        context = context[1:]
    return prefix + body


def _tokens(passage: Passage, embed_text: str, counter: TokenCounter, policy: ChunkPolicy) -> int:
    """Return the tokens of an embed string; those the strategy counted, where repeat and body are all of it."""
    is_counted = passage.tokens is not None and passage.role is not Role.PARENT
    if is_counted and not (policy.embed.title or policy.embed.heading_path or policy.embedding.document_prefix):
        return passage.tokens or 0
    return counter.count(embed_text)


def _chunk_ids(
    passages: Sequence[Passage],
    embed_texts: Sequence[str],
    document: Document,
    provenance: Provenance,
    policy: ChunkPolicy,
) -> list[str]:
    """Return an id per passage; equal passages are numbered in document order."""
    fingerprint = policy.fingerprint
    twins: Counter[tuple[bool, str]] = Counter()
    ids = []
    for ordinal, (passage, embed_text) in enumerate(zip(passages, embed_texts, strict=True)):
        is_parent = passage.role is Role.PARENT
        text = passage.span.of(document.text) if is_parent else embed_text
        twin = twins[is_parent, text]
        twins[is_parent, text] += 1
        if policy.identity == STRICT:
            version = f"{policy.name}-v{policy.version}-{fingerprint}"
            ids.append(strict_id(provenance.key, provenance.revision, version, ordinal, passage.heading_path, text))
        elif is_parent:
            ids.append(parent_id(provenance.key, fingerprint, text, twin))
        else:
            ids.append(content_id(provenance.key, fingerprint, text, twin))
    return ids


def _payload(
    passage: Passage,
    passages: Sequence[Passage],
    ids: Sequence[str],
    embed_text: str,
    tokens: int,
    document: Document,
    provenance: Provenance,
    policy: ChunkPolicy,
) -> dict[str, Any]:
    """Return what is stored beside the vector, except revision and order key. Tenant and ids come from the key alone."""
    payload: dict[str, Any] = {
        "tenant_id": provenance.key.tenant,
        "document_id": provenance.key.document,
        "text": passage.span.of(document.text),
        "embed_hash": embed_hash(policy.embedding.spec, embed_text),
        "tokens": tokens,
        "kind": passage.kind,
        "role": str(passage.role),
        "strategy": passage.strategy,
        "heading_path": list(passage.heading_path),
        "clause": passage.clause,
        "clauses": list(dict.fromkeys(filter(None, (passage.clause, *(part.clause for part in passage.parts))))),
        "span": [passage.span.start, passage.span.end],
        "page": passage.page,
        "title": provenance.title or document.title,
        "source_uri": provenance.source_uri,
        "language": document.language,
        "media_type": document.media_type,
        "document_kind": document.kind,
        "labels": sorted(document.labels),
        "acl": list(provenance.acl) if provenance.acl is not None else None,
        "attributes": {name: provenance.attributes[name] for name in policy.payload.attributes if name in provenance.attributes},
    }
    if passage.parts:
        payload["parts"] = [_part(part, passage) for part in passage.parts]
    if passage.repeat:
        payload["repeat"] = passage.repeat
    if passage.rendering is not None:
        payload["rendering"] = passage.rendering
    if passage.overlap is not None:
        overlap = passage.overlap
        payload["overlap"] = {"type": overlap.kind, "weight": overlap.weight, **overlap.details}
    if passage.parent is not None:
        payload["parent_id"] = ids[passage.parent]
        payload["parent_text"] = passages[passage.parent].span.of(document.text)
    return payload


def _part(part: Part, passage: Passage) -> dict[str, Any]:
    """Return a part as it is stored: `heading_path` where it is not the chunk's."""
    stored: dict[str, Any] = {"at": part.at, "clause": part.clause}
    if part.heading_path != passage.heading_path:
        stored["heading_path"] = list(part.heading_path)
    return stored
