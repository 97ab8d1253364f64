"""Chunks of the shared cases, in the short forms that case tests compare."""

from __future__ import annotations

from typing import Any

from chunking.chunk import Chunk
from chunking.chunker import Provenance, chunk
from chunking.document import Document, DocumentKey
from chunking.parsers import parse_document
from chunking.passage import Passage, Role
from chunking.policy import ChunkPolicy
from chunking.strategies import STRATEGIES
from chunking.strategies.base import Budget
from chunking.tokens import counter

TOKENS = counter("cl100k_base")
MEDIA_TYPES = {"markdown": "text/markdown", "html": "text/html", "text": "text/plain"}


def document_of(text: str, format_name: str = "text") -> Document:
    """Return the parsed text of a case."""
    return parse_document(text, MEDIA_TYPES[format_name])


def passages(name: str, document: Document, limit: int = 1200, **options: Any) -> list[Passage]:
    """Return a strategy's passages under a limit in cl100k tokens."""
    strategy = STRATEGIES[name]
    return strategy.cut(document, strategy.options(**options), Budget(TOKENS, limit))


def texts(name: str, text: str, limit: int = 1200, **options: Any) -> list[str]:
    """Return the body texts a strategy cuts plain text into."""
    document = document_of(text)
    return [p.span.of(document.text) for p in passages(name, document, limit, **options) if p.role is Role.BODY]


def policy(use: str, max_tokens: int = 400, embed: dict[str, bool] | None = None, **options: Any) -> ChunkPolicy:
    """Return a policy with one strategy."""
    content = {"name": "case", "version": 1, "rules": [{"use": use, "options": options}], "limits": {"max_tokens": max_tokens}}
    return ChunkPolicy.model_validate({**content, **({"embed": embed} if embed else {})})


def chunks(document: Document, by: ChunkPolicy) -> tuple[Chunk, ...]:
    """Return the chunks of the case's document."""
    return chunk(document, Provenance(DocumentKey("t", "case"), revision=1), by, counter(by.limits.tokenizer))
