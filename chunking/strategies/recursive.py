"""recursive: separators from paragraph to character, the next one only where the last left too much; filled with overlap.

Works on the flat text: no headings, lists or tables. A separator stays with what it ends.
"""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from chunking.document import Document
from chunking.passage import Passage
from chunking.pieces import Level
from chunking.sentences import (
    chinese_sentence_ends,
    comma_ends,
    ends_at,
    line_ends,
    paragraph_ends,
    semicolon_ends,
    sentence_ends,
    space_ends,
)
from chunking.strategies.base import Budget, Strategy
from chunking.strategies.flat import FlatText, Windows, sizes_of

_PARAGRAPH, _LINE, _SENTENCE, _SEMICOLON, _COMMA, _SPACE = 6, 5, 4, 3, 2, 1

SEPARATORS: dict[str, tuple[Level, ...]] = {
    "zh": (
        Level(_PARAGRAPH, "paragraph", paragraph_ends),
        Level(_LINE, "line", line_ends),
        Level(_SENTENCE, "sentence", chinese_sentence_ends),
        Level(_SEMICOLON, "semicolon", ends_at("[；;]+")),
        Level(_COMMA, "comma", ends_at("[，、]+")),
        Level(_SPACE, "space", space_ends),
    ),
    "en": (
        Level(_PARAGRAPH, "paragraph", paragraph_ends),
        Level(_LINE, "line", line_ends),
        Level(_SENTENCE, "sentence", sentence_ends),
        Level(_SEMICOLON, "semicolon", semicolon_ends),
        Level(_COMMA, "comma", ends_at(r",(?=\s)")),
        Level(_SPACE, "space", space_ends),
    ),
    "mixed": (
        Level(_PARAGRAPH, "paragraph", paragraph_ends),
        Level(_LINE, "line", line_ends),
        Level(_SENTENCE, "sentence", sentence_ends),
        Level(_SEMICOLON, "semicolon", semicolon_ends),
        Level(_COMMA, "comma", comma_ends),
        Level(_SPACE, "space", space_ends),
    ),
}
"""Separators by language, strongest first; behind the last one comes a cut between grapheme clusters."""


class RecursiveOptions(Windows):
    """Options of `recursive`. max_tokens: hard cap; the policy's limit holds as well. packing: ``greedy`` fills from the left (an
    edit moves what follows it), ``strength`` keeps edits local.
    """

    size: int = Field(default=500, ge=1)
    overlap: int = Field(default=60, ge=0)
    max_tokens: int = Field(default=1200, ge=1)
    separators: Literal["zh", "en", "mixed"] = "mixed"
    packing: Literal["greedy", "strength"] = "greedy"


def cut(document: Document, options: RecursiveOptions, budget: Budget) -> list[Passage]:
    """Return the passages of the running text."""
    hard_limit = min(options.max_tokens, budget.limit)
    sizes = sizes_of(options.size, options.overlap, options.unit, hard_limit, budget)
    flat = FlatText(document, RECURSIVE.versioned_name, sizes, SEPARATORS[options.separators], "CHARACTERS")
    return flat.passages(flat.pack(flat.pieces(), greedy=options.packing == "greedy"))


RECURSIVE = Strategy("recursive", 2, RecursiveOptions, cut)
