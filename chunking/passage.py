"""Passage: what a strategy makes: a stretch of the document, with what is repeated before it and where it stands.

A passage has no identity yet; `identity` turns passages into chunks.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum

from chunking.document import Span


class Role(StrEnum):
    """What a chunk is for. BODY chunks cover the document exactly once; the others repeat some of it."""

    BODY = "body"
    CONTEXT = "context"
    """Declared overlap as a chunk of its own (the tail of one chapter with the head of the next)."""
    PARENT = "parent"
    """Gives context to its children; gets no vector."""


@dataclass(frozen=True, slots=True)
class Overlap:
    """A declared repeat. `kind` is CHARACTERS, SENTENCES, TABLE_HEADER, LEAD_IN or CHAPTER_TAIL; weight scales a hit's score."""

    kind: str
    weight: float = 1.0
    details: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Part:
    """A stretch of a passage with a place of its own: from `at` (characters from the passage's start) to the next part.

    clause: the number it is cited by, blank for none. heading_path: the titles above it, outermost first.
    """

    at: int
    heading_path: tuple[str, ...]
    clause: str


@dataclass(frozen=True, slots=True)
class Passage:
    """One stretch of a document under one strategy.

    span: what the passage covers of `Document.text`; for BODY passages the spans are in order and disjoint.
    repeat: text said again before the body (table header, list lead-in, overlap), always named by `overlap`.
    rendering: the body as the embedder should read it where that is not the source (a table row as a sentence).
    heading_path: the titles that all of it stands under. clause: number of the clause it begins in. parts: every place it stands
    in, in order, from `at` 0; none where heading_path and clause say it all. kind: kind of its first block.
    parent: index of the PARENT passage in the same list, or None.
    tokens: tokens of repeat and body together by the budget's counter, exactly, where the strategy knows them.
    boundary: why the boundary before it is where it is, as ``rank:rule`` (for explain).
    A PARENT passage stands in the list before its children; its span overlaps theirs.
    """

    span: Span
    kind: str
    strategy: str
    heading_path: tuple[str, ...] = ()
    clause: str = ""
    parts: tuple[Part, ...] = ()
    role: Role = Role.BODY
    repeat: str = ""
    overlap: Overlap | None = None
    rendering: str | None = None
    page: int | None = None
    parent: int | None = None
    boundary: str = ""
    tokens: int | None = None
