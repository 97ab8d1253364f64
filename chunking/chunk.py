"""Chunk: a passage with a name. What is diffed, embedded and stored; `chunk()` makes all of a document's chunks."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from chunking.document import Span
from chunking.passage import Overlap, Part, Role


@dataclass(frozen=True, slots=True)
class Chunk:
    """One chunk of one document under one policy.

    text: exactly `Document.text[span]`; embed_text: the exact string for the embedder (blank for PARENT chunks).
    tokens: tokens of embed_text by the policy's counter. payload: everything stored beside the vector except revision and
    order key. ordinal: position among the document's chunks, from 0; it enters neither id nor payload.
    """

    chunk_id: str
    ordinal: int
    text: str
    embed_text: str
    embed_hash: str
    payload_hash: str
    payload: Mapping[str, Any]
    tokens: int
    span: Span
    kind: str
    strategy: str
    heading_path: tuple[str, ...] = ()
    clause: str = ""
    parts: tuple[Part, ...] = ()
    role: Role = Role.BODY
    repeat: str = ""
    overlap: Overlap | None = None
    page: int | None = None
    parent: str | None = None
    boundary: str = ""
