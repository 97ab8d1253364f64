"""HashingModel: vectors of hashed words and character pairs. No weights, any dimension, the same on every machine.

It knows no meaning, but texts that share words or Chinese characters lie near each other, so a search finds something. For tests,
dry runs and machines without a model.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from hashlib import blake2b

import numpy as np

from streams.ports import Vector

MODEL_NAME = "hashing-v1"
_WORD = re.compile(r"[^\W_]+", re.UNICODE)
_GRAM = 3


class HashingModel:
    """A `Model` (base.py). Pure: no state besides its size."""

    def __init__(self, dimensions: int, max_tokens: int | None = None) -> None:
        self.model = MODEL_NAME
        self.dimensions = dimensions
        self.max_tokens = max_tokens

    def count_tokens(self, text: str) -> int:
        """Return the number of words; a character of a script without spaces counts as a word."""
        return sum(1 for _ in _words(text))

    async def vectors(self, texts: Sequence[str]) -> list[Vector]:
        """Return a unit vector a text."""
        return [hashed(text, self.dimensions) for text in texts]

    def close(self) -> None:
        """Do nothing: there are no threads."""


def hashed(text: str, dimensions: int) -> Vector:
    """Return the unit vector of a text's features, each hashed to a place and a sign. Never zero."""
    vector = np.zeros(dimensions, dtype=np.float64)
    for feature, weight in _features(text):
        digest = int.from_bytes(blake2b(feature.encode(), digest_size=8).digest(), "little")
        vector[(digest >> 1) % dimensions] += weight if digest & 1 else -weight
    if not vector.any():  # no features, or signs that cancel
        vector[len(text) % dimensions] = 1.0
    return np.asarray(vector / np.linalg.norm(vector), dtype=np.float32)


def _features(text: str) -> Iterator[tuple[str, float]]:
    """Yield words, pairs of neighbouring characters without spaces between words (Chinese), and pieces of longer words."""
    previous = ""
    for word in _words(text):
        yield word, 1.0
        if len(word) == 1 and len(previous) == 1:
            yield previous + word, 1.0
        marked = f"<{word}>"
        if len(word) > _GRAM:
            for start in range(len(marked) - _GRAM + 1):
                yield marked[start : start + _GRAM], 0.3
        previous = word


def _words(text: str) -> Iterator[str]:
    for run in _WORD.findall(text.casefold()):
        if _is_unspaced(run):
            yield from run
        else:
            yield run


def _is_unspaced(run: str) -> bool:
    """Return whether a run holds characters of a script that writes no spaces (Han, kana)."""
    return any(
        "\u3040" <= character <= "\u30ff" or "\u3400" <= character <= "\u9fff" or character >= "\U00020000" for character in run
    )
