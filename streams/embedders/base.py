"""CheckedEmbedder: any model behind the `Embedder` port, with every answer checked before it is believed.

A service that answers with fewer vectors than texts, or with NaN, must never shift or poison what is stored: one bad vector breaks
every query that meets it.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from functools import lru_cache
from typing import Protocol
from unicodedata import normalize

import numpy as np
import numpy.typing as npt

from streams import metrics, telemetry
from streams.errors import PoisonRecord, Unavailable
from streams.ports import Vector

_SPECIAL_TOKENS = 8


class Model(Protocol):
    """What a model must bring; `CheckedEmbedder` makes an `Embedder` of it."""

    @property
    def model(self) -> str:
        """Name as policies write it."""
        ...

    @property
    def dimensions(self) -> int:
        """Length of every vector."""
        ...

    @property
    def max_tokens(self) -> int | None:
        """Longest input in the model's own tokens, its special ones included; None when it has no limit."""
        ...

    def count_tokens(self, text: str) -> int:
        """Return the number of the model's own tokens of a text, uncut, special ones included."""
        ...

    async def vectors(self, texts: Sequence[str]) -> Sequence[npt.ArrayLike]:
        """Return a vector a text, in order. Called with one or more non-blank texts within the limit. May answer wrongly."""
        ...

    def close(self) -> None:
        """Let go of threads, which would keep the process from ending. Called once, after the last call of `vectors`."""
        ...


class CheckedEmbedder:
    """An `Embedder`. At most `concurrency` calls reach the model at once; the others wait in order."""

    def __init__(self, model: Model, concurrency: int = 1) -> None:
        self._model = model
        self._gate = asyncio.Semaphore(concurrency)

    @property
    def model(self) -> str:
        """Name as policies write it in `embedding.model`."""
        return self._model.model

    @property
    def dimensions(self) -> int:
        """Length of every vector."""
        return self._model.dimensions

    @property
    def max_tokens(self) -> int | None:
        """The model's own input limit in its own tokens, or None."""
        return self._model.max_tokens

    def count_tokens(self, text: str) -> int:
        """Return the number of the model's own tokens of a text, uncut."""
        return self._model.count_tokens(text)

    async def embed(self, texts: Sequence[str]) -> list[Vector]:
        """Return one finite float32 vector a text, in order.

        PoisonRecord, before any call, for a text that is blank, broken or over the model's limit. Unavailable when the model
        answers wrongly: nothing of the answer is used, the call may be repeated as a whole.
        """
        slots = await self.slots(texts)
        found = [vector for vector in slots if vector is not None]
        if len(found) != len(slots):
            raise PoisonRecord("a blank text has no vector", position=next(i for i, vector in enumerate(slots) if vector is None))
        return found

    async def slots(self, texts: Sequence[str]) -> list[Vector | None]:
        """Return one slot a text, in order: its vector, or None for a blank text, which the model never sees. Errors of `embed`."""
        wanted = [position for position, text in enumerate(texts) if text.strip()]
        found: list[Vector | None] = [None] * len(texts)
        if not wanted:
            return found
        for position in wanted:
            _refuse_half_characters(texts[position], position)
        sent = [texts[position] for position in wanted]
        if (limit := self.max_tokens) is not None:
            in_doubt = [position for position in wanted if _most_tokens(texts[position]) > limit]
            if in_doubt:
                await asyncio.to_thread(self._refuse_too_long, texts, in_doubt, limit)
        async with self._gate:
            with metrics.embedding(len(sent)), telemetry.call("embed", **{"docdelta.texts": len(sent)}):
                answer = checked(await self._model.vectors(sent), len(sent), self.dimensions, self.model)
        for position, vector in zip(wanted, answer, strict=True):
            found[position] = vector
        return found

    def close(self) -> None:
        """Let the model go. Nothing is embedded afterwards; a run that is under way ends by itself."""
        self._model.close()

    def _refuse_too_long(self, texts: Sequence[str], positions: Sequence[int], limit: int) -> None:
        for position in positions:
            text = texts[position]
            tokens = self.count_tokens(text)
            if tokens > limit:
                raise PoisonRecord(
                    "text is longer than the model reads; lower limits.max_tokens of the policy",
                    model=self.model,
                    tokens=tokens,
                    limit=limit,
                    position=position,
                    begins=repr(text[:60]),
                )


def _most_tokens(text: str) -> int:
    """Return how many tokens a text has at most, without counting: one a byte of what a tokenizer's normaliser may make of it."""
    return (len(text) if text.isascii() else sum(map(_most_bytes, text))) + _SPECIAL_TOKENS


@lru_cache(maxsize=1 << 14)
def _most_bytes(character: str) -> int:
    """Return the bytes of the longest that a normaliser makes of a character; which forms it uses is not known.

    Normal forms grow some (U+FDFA, three bytes, becomes eighteen characters) and shrink others (U+1D400, four bytes, becomes "A"),
    and lower case grows two. What is composed again is never longer than its parts.
    """
    cases = {character, character.lower()}
    return max(len(form.encode()) for case in cases for form in (case, normalize("NFD", case), normalize("NFKD", case)))


def _refuse_half_characters(text: str, position: int) -> None:
    try:
        text.encode()
    except UnicodeEncodeError as error:
        raise PoisonRecord("text holds half a surrogate pair", position=position, at=error.start) from error


def checked(answer: Sequence[npt.ArrayLike], texts: int, dimensions: int, model: str) -> list[Vector]:
    """Return the answer as float32 vectors. Unavailable when count, length or a value is wrong."""
    if len(answer) != texts:
        raise Unavailable("model answered with another number of vectors than texts", model=model, texts=texts, vectors=len(answer))
    vectors = []
    for position, raw in enumerate(answer):
        try:
            with np.errstate(over="ignore"):  # too large for float32 becomes infinite, which is refused below
                vector: Vector = np.ascontiguousarray(raw, dtype=np.float32)
        except (TypeError, ValueError) as error:
            raise Unavailable(
                f"model answered with something else than a vector: {error}", model=model, position=position
            ) from error
        if vector.shape != (dimensions,):
            found = "x".join(map(str, vector.shape))
            raise Unavailable("model answered with a vector of another length", model=model, found=found, wanted=dimensions)
        if not np.isfinite(vector).all():
            raise Unavailable("model answered with a value that is not a finite number", model=model, position=position)
        if not vector.any():
            raise Unavailable("model answered with a vector of zeros", model=model, position=position)
        vectors.append(vector)
    return vectors
