"""fixed: windows of a fixed number of characters with overlap, cut between grapheme clusters and nowhere else."""

from __future__ import annotations

from pydantic import Field

from chunking.document import Document
from chunking.passage import Passage
from chunking.strategies.base import Budget, Strategy
from chunking.strategies.flat import FlatText, Windows, sizes_of


class FixedOptions(Windows):
    """Options of `fixed`."""

    size: int = Field(default=500, ge=1)
    overlap: int = Field(default=50, ge=0)


def cut(document: Document, options: FixedOptions, budget: Budget) -> list[Passage]:
    """Return windows over the running text; each repeats the end of the one before it, and none is only that."""
    sizes = sizes_of(options.size, options.overlap, options.unit, budget.limit, budget)
    flat = FlatText(document, FIXED.versioned_name, sizes, (), "CHARACTERS")
    return flat.passages([[piece] for piece in flat.pieces(sizes.size - sizes.overlap)])


FIXED = Strategy("fixed", 2, FixedOptions, cut)
