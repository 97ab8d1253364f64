"""The documents of the simulation: a parser and a strategy in a few lines, since what is tried here is the order of effects."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from typing import Any

import numpy as np

from chunking.document import Block, BlockKind, Document, Span
from chunking.passage import Passage
from chunking.policy import ChunkPolicy, Embedding, Limits, Rule
from chunking.strategies import STRATEGIES
from chunking.strategies.base import Options, Strategy
from chunking.tokens import TokenCounter, counter
from streams.errors import PoisonRecord
from streams.ports import Vector
from tests.crash.simulation.histories import UNEMBEDDABLE, UNREADABLE

STRATEGY = "simulated-paragraphs"
DIMENSIONS = 4


class NoOptions(Options):
    """The strategy has none."""


def _cut(document: Document, options: Any, budget: Any) -> list[Passage]:
    return [Passage(block.span, "paragraph", f"{STRATEGY}/1") for block in document.blocks]


def policy() -> ChunkPolicy:
    """Return the policy of the simulation: a chunk a paragraph. Its strategy is in the table only while the policy is made."""
    STRATEGIES[STRATEGY] = Strategy(STRATEGY, 1, NoOptions, _cut)
    try:
        made = ChunkPolicy(
            name="simulated",
            version=1,
            rules=(Rule(use=STRATEGY),),
            limits=Limits(tokenizer="characters"),
            embedding=Embedding(model="simulated", dimensions=DIMENSIONS),
        )
        # Both are kept by the policy once they are made.
        assert made.fingerprint
        assert not made.asks_model
        return made
    finally:
        del STRATEGIES[STRATEGY]


def token_counter() -> TokenCounter:
    """Return the policy's counter."""
    return counter("characters")


def parse(text: str, title: str) -> Document:
    """Return a document whose blocks are its paragraphs. Raises PoisonRecord when it holds UNREADABLE."""
    if UNREADABLE in text:
        raise PoisonRecord("unreadable markup")
    blocks, position = [], 0
    for paragraph in text.split("\n\n"):
        if paragraph.strip():
            blocks.append(Block(BlockKind.PARAGRAPH, Span(position, position + len(paragraph))))
        position += len(paragraph) + 2
    return Document(text, tuple(blocks), title=title, media_type="text/plain", parser="simulated/1")


def vector(text: str) -> Vector:
    """Return the one vector of a text."""
    return np.frombuffer(hashlib.sha256(text.encode()).digest()[:DIMENSIONS], dtype=np.uint8).astype(np.float32) + 1


def embed(texts: Sequence[str]) -> list[Vector]:
    """Return a vector a text. Raises PoisonRecord when one of them is UNEMBEDDABLE."""
    if any(UNEMBEDDABLE in text for text in texts):
        raise PoisonRecord("the model gives no finite vector")
    return [vector(text) for text in texts]
