"""sentences: full sentences packed to a size, with whole sentences as overlap."""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from chunking.document import Document
from chunking.passage import Passage
from chunking.sentences import sentence_ends
from chunking.strategies.atoms import PROSE
from chunking.strategies.base import Budget, Strategy
from chunking.strategies.flat import FlatText, Sizes, Windows, sizes_of


class SentencesOptions(Windows):
    """Options of `sentences`. unit: ``sentences`` counts sentences, the others measure them; a sentence over the size is cut at
    weaker marks, then between grapheme clusters.
    """

    size: int = Field(default=500, ge=1)
    overlap: int = Field(default=50, ge=0)
    unit: Literal["characters", "tokens", "sentences"] = "characters"  # type: ignore[assignment]
    packing: Literal["greedy", "strength"] = "greedy"


def cut(document: Document, options: SentencesOptions, budget: Budget) -> list[Passage]:
    """Return groups of whole sentences; each repeats the last sentences of the one before that fit the overlap."""
    count = budget.counter.count
    if options.unit == "sentences":
        sizes = Sizes(options.size, options.overlap, _sentences_in, budget.limit, count, whole_parts=True)
    else:
        plain = sizes_of(options.size, options.overlap, options.unit, budget.limit, budget)
        sizes = Sizes(plain.size, plain.overlap, plain.weigh, plain.hard_limit, plain.hard_weigh, whole_parts=True)
    flat = FlatText(document, SENTENCES.versioned_name, sizes, PROSE, "SENTENCES")
    return flat.passages(flat.pack(flat.pieces(), greedy=options.packing == "greedy"))


def _sentences_in(text: str) -> int:
    return len(sentence_ends(text, 0, len(text))) if text and not text.isspace() else 0


SENTENCES = Strategy("sentences", 2, SentencesOptions, cut)
