"""Strategy: what every chunking strategy is: a name, a version, a model of its options, and one pure function."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from pydantic import BaseModel, ConfigDict

from chunking.document import Document
from chunking.passage import Passage
from chunking.tokens import TokenCounter


class Options(BaseModel):
    """Base of every strategy's options: frozen, unknown keys refused."""

    model_config = ConfigDict(frozen=True, extra="forbid")


SentenceVectors = Callable[[Sequence[str]], Sequence[Sequence[float]]]
"""Texts to vectors, a row a text. Deterministic."""


@dataclass(frozen=True, slots=True)
class Budget:
    """What a passage may cost. `limit` tokens by `counter` for repeat + body; what the embed template adds is already taken off.

    vectors: sentence vectors for the strategy `semantic`, a row a text; a pure, deterministic function, or None where the caller
    has no model at hand (the worker's chunker has none: models belong to the indexer).
    """

    counter: TokenCounter
    limit: int
    vectors: SentenceVectors | None = None


@dataclass(frozen=True, slots=True)
class Strategy:
    """One row of the table.

    `cut(document, options, budget)` returns passages: BODY passages in order, disjoint, covering every block; none blank; none
    above `budget.limit`. Pure: same input, same passages, in every process. `version` grows with every change of output.
    """

    name: str
    version: int
    options: type[BaseModel]
    cut: Callable[[Document, Any, Budget], list[Passage]]

    @property
    def versioned_name(self) -> str:
        """``structure/1``: what is stored with a chunk and enters the policy's fingerprint."""
        return f"{self.name}/{self.version}"
