"""The documents of the simulation: a parser and a strategy in a few lines, since what is tried here is the order of effects."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from datetime import UTC, datetime
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
from tests.crash.simulation.histories import UNEMBEDDABLE, UNEMBEDDABLE_YET, UNREADABLE, UNREADABLE_YET

PARAGRAPHS, PAIRS = "simulated-paragraphs", "simulated-pairs"
DIMENSIONS = 4
EPOCH = datetime(2031, 1, 1, tzinfo=UTC)


class NoOptions(Options):
    """The strategy has none."""


def _paragraphs(document: Document, options: Any, budget: Any) -> list[Passage]:
    return [Passage(block.span, "paragraph", f"{PARAGRAPHS}/1") for block in document.blocks]


def _pairs(document: Document, options: Any, budget: Any) -> list[Passage]:
    blocks = document.blocks
    ends = [blocks[min(start + 1, len(blocks) - 1)].span.end for start in range(0, len(blocks), 2)]
    return [Passage(Span(first.span.start, end), "paragraph", f"{PAIRS}/1") for first, end in zip(blocks[::2], ends, strict=True)]


def policy() -> ChunkPolicy:
    """Return the policy of most simulations: a chunk a paragraph."""
    return _policy(1, Strategy(PARAGRAPHS, 1, NoOptions, _paragraphs))


def paired_policy() -> ChunkPolicy:
    """Return the policy that is rolled out beside it: a chunk two paragraphs. An odd last one has the same text in both."""
    return _policy(2, Strategy(PAIRS, 1, NoOptions, _pairs))


def _policy(version: int, strategy: Strategy) -> ChunkPolicy:
    """Return a policy of one strategy, which is in the table only while the policy is made."""
    STRATEGIES[strategy.name] = strategy
    try:
        made = ChunkPolicy(
            name="simulated",
            version=version,
            rules=(Rule(use=strategy.name),),
            limits=Limits(tokenizer="characters"),
            embedding=Embedding(model="simulated", dimensions=DIMENSIONS),
        )
        # Both are kept by the policy once they are made.
        assert made.fingerprint
        assert not made.asks_model
        return made
    finally:
        del STRATEGIES[strategy.name]


def token_counter() -> TokenCounter:
    """Return the policy's counter."""
    return counter("characters")


def parse(text: str, title: str, mended: bool = True) -> Document:
    """Return a document whose blocks are its paragraphs. Raises PoisonRecord when it holds UNREADABLE, or what is not `mended`."""
    if UNREADABLE in text or (UNREADABLE_YET in text and not mended):
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


def embed(texts: Sequence[str], mended: bool = True) -> list[Vector]:
    """Return a vector a text. Raises PoisonRecord when one of them is UNEMBEDDABLE, or what is not `mended`."""
    if any(UNEMBEDDABLE in text or (UNEMBEDDABLE_YET in text and not mended) for text in texts):
        raise PoisonRecord("the model gives no finite vector")
    return [vector(text) for text in texts]
