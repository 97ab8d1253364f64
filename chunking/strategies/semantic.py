"""semantic: cuts where neighbouring sentences differ most, by sentence vectors.

Vectors come from `Budget.vectors` (``vectors: model``), or from the words themselves (``vectors: words``, the default): bags of
words and of pairs of Han characters, which need no model and are the same on every machine. The worker's chunker has no model at
hand, so in a streaming policy only ``words`` can be used; ``model`` is for callers that pass a function.
"""

from __future__ import annotations

import itertools
import math
import re
from collections.abc import Sequence
from typing import Literal, TypeVar

from pydantic import Field

from chunking.document import Document
from chunking.packing import NO_WALL
from chunking.passage import Passage
from chunking.pieces import Piece
from chunking.sentences import sentence_ends
from chunking.strategies.atoms import PROSE, SENTENCE
from chunking.strategies.base import Budget, Options, Strategy
from chunking.strategies.flat import FlatText, Sizes

Key = TypeVar("Key", str, int)
Item = TypeVar("Item")
_WORD = re.compile("[\u3400-\u9fff]+|[^\\W\\d_\u3400-\u9fff]+|\\d+")


class VectorsMissing(ValueError):
    """The policy asks for vectors of a model, and the caller has none."""


class SemanticOptions(Options):
    """Options of `semantic`.

    threshold: ``percentile`` cuts above that share of all distances (linear interpolation), ``gradient`` above that share of the
    rises between distances, ``fixed`` above the distance `amount`. size: most characters of a chunk. buffer: sentences on each
    side that a sentence is read together with.
    """

    threshold: Literal["percentile", "gradient", "fixed"] = "percentile"
    amount: float = Field(default=0.95, ge=0, le=1)
    size: int = Field(default=2000, ge=1)
    buffer: int = Field(default=1, ge=0, le=5)
    vectors: Literal["words", "model"] = "words"


def cut(document: Document, options: SemanticOptions, budget: Budget) -> list[Passage]:
    """Return groups of sentences between the breaks. Raises VectorsMissing for ``vectors: model`` without a model."""
    sizes = Sizes(options.size, 0, len, budget.limit, budget.counter.count)
    flat = FlatText(document, SEMANTIC.versioned_name, sizes, PROSE, "SENTENCES")
    sentences = _sentences(document.text, flat.start, flat.end)
    breaks = _breaks([document.text[start:end] for start, end in sentences], options, budget)
    groups: list[list[Piece]] = []
    for place, (start, end) in enumerate(sentences):
        if place == 0 or place in breaks:
            groups.append([])
        rank, rule = (SENTENCE, "sentence") if groups[-1] else (NO_WALL - 1, "break")
        groups[-1] += flat.pieces_of(start, end, rank, rule)
    return flat.passages([part for group in groups for part in flat.pack(group, greedy=False)])


def _sentences(text: str, start: int, end: int) -> list[tuple[int, int]]:
    """Return the sentences; what holds no letter or digit belongs to the one before."""
    found: list[tuple[int, int]] = []
    begin = start
    for stop in sentence_ends(text, start, end) if end > start else []:
        if found and not text[begin].isalnum() and not any(map(str.isalnum, text[begin:stop])):
            found[-1] = (found[-1][0], stop)
        else:
            found.append((begin, stop))
        begin = stop
    return found


def _breaks(sentences: Sequence[str], options: SemanticOptions, budget: Budget) -> set[int]:
    """Return the indices of the sentences that begin a new group."""
    if len(sentences) < 2:
        return set()
    if options.vectors == "model":
        if budget.vectors is None:
            raise VectorsMissing(
                "semantic with `vectors: model` needs sentence vectors, and none are at hand here; use `vectors: words`"
            )
        rows = budget.vectors([" ".join(_window(sentences, place, options.buffer)).strip() for place in range(len(sentences))])
        distances = [_cosine_distance(dict(enumerate(a)), dict(enumerate(b))) for a, b in itertools.pairwise(rows)]
    else:
        own = [_words(sentence) for sentence in sentences]  # no word goes over a sentence's end
        bags = [_sum(_window(own, place, options.buffer)) for place in range(len(own))]
        distances = [_cosine_distance(a, b) for a, b in itertools.pairwise(bags)]
    if options.threshold == "gradient":
        distances = [0.0, *(b - a for a, b in itertools.pairwise(distances))]
    limit = options.amount if options.threshold == "fixed" else percentile(distances, options.amount)
    return {place + 1 for place, distance in enumerate(distances) if distance > limit}


def _window(items: Sequence[Item], place: int, buffer: int) -> Sequence[Item]:
    return items[max(0, place - buffer) : place + buffer + 1]


def _sum(bags: Sequence[dict[str, float]]) -> dict[str, float]:
    total = dict(bags[0])
    for bag in bags[1:]:
        for word, count in bag.items():
            total[word] = total.get(word, 0.0) + count
    return total


def _words(text: str) -> dict[str, float]:
    """Return how often each word, or pair of Han characters, occurs."""
    bag: dict[str, float] = {}
    for word in _WORD.findall(text.lower()):
        if "\u3400" <= word[0] <= "\u9fff" and len(word) > 1:
            for at in range(len(word) - 1):
                bag[word[at : at + 2]] = bag.get(word[at : at + 2], 0.0) + 1.0
        else:
            bag[word] = bag.get(word, 0.0) + 1.0
    return bag


def _cosine_distance(a: dict[Key, float], b: dict[Key, float]) -> float:
    """Return 1 − cosine; 1 where either is all zero. Summed exactly, so that the order of terms does not matter."""
    dot = math.fsum(value * b[key] for key, value in a.items() if key in b)
    lengths = math.sqrt(math.fsum(value * value for value in a.values()) * math.fsum(value * value for value in b.values()))
    return 1.0 - dot / lengths if lengths else 1.0


def percentile(values: Sequence[float], share: float) -> float:
    """Return the value below which `share` of the values lie, linear between ranks. `values` must not be empty."""
    ordered = sorted(values)
    position = share * (len(ordered) - 1)
    low = math.floor(position)
    high = min(low + 1, len(ordered) - 1)
    return ordered[low] + (ordered[high] - ordered[low]) * (position - low)


SEMANTIC = Strategy("semantic", 2, SemanticOptions, cut)
