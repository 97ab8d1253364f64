"""tokens: windows of tokens with overlap, cut between grapheme clusters. Text is cut and counted; no ids are sliced and decoded."""

from __future__ import annotations

from pydantic import Field, model_validator

from chunking.document import Document
from chunking.passage import Passage
from chunking.strategies.base import Budget, Options, Strategy
from chunking.strategies.flat import FlatText, sizes_of

_SHARE, _LEAST, _MOST = 0.15, 20, 205
_STEPS = ((4_000, 256), (16_000, 512))
_LARGEST = 1_024


class TokensOptions(Options):
    """Options of `tokens`. size: tokens a window; by default 256 for documents under 4,000 tokens, 512 under 16,000, else 1,024
    (steps, so that an edit seldom changes it). overlap: by default 15 % of the size, within 20 to 205 and half the size.
    """

    size: int | None = Field(default=None, ge=1)
    overlap: int | None = Field(default=None, ge=0)

    @model_validator(mode="after")
    def _advances(self) -> TokensOptions:
        if self.overlap is not None and self.overlap >= (self.size or _STEPS[0][1]):
            raise ValueError(f"overlap {self.overlap} must be below size {self.size or _STEPS[0][1]}, or the window never advances")
        return self


def cut(document: Document, options: TokensOptions, budget: Budget) -> list[Passage]:
    """Return windows over the running text by the budget's counter."""
    size = min(options.size or dynamic_size(budget.counter.count(document.text)), budget.limit)
    overlap = options.overlap if options.overlap is not None else dynamic_overlap(size)
    sizes = sizes_of(size, overlap, "tokens", budget.limit, budget)
    flat = FlatText(document, TOKENS.versioned_name, sizes, (), "CHARACTERS")
    return flat.passages([[piece] for piece in flat.pieces(sizes.size - sizes.overlap)])


def dynamic_size(tokens: int) -> int:
    """Return the window for a document of so many tokens."""
    return next((size for below, size in _STEPS if tokens < below), _LARGEST)


def dynamic_overlap(size: int) -> int:
    """Return the overlap of a window: 15 %, within 20 to 205, never over half of it."""
    return min(max(_LEAST, min(_MOST, round(size * _SHARE))), size // 2)


TOKENS = Strategy("tokens", 2, TokensOptions, cut)
