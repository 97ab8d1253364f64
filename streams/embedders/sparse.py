"""Bm25: sparse vectors of a text's words, Chinese included. One function cuts documents and queries into words.

fastembed's BM25 splits at what is no letter: a Chinese clause would be one word, and one of more than 40 characters none. So
text is cut by a dictionary first (rjieba) and joined with blanks. Rarity of a word is no part of the vectors: the index reckons it
(IDF), over all points of a collection.
"""

from __future__ import annotations

import asyncio
import json
import os
import unicodedata
from collections.abc import Iterable, Sequence
from functools import lru_cache
from typing import Any

from chunking.policy import Sparse
from streams.errors import NotPrepared
from streams.ports import SparseEmbedder, SparseVector


def words_of(text: str) -> list[str]:
    """Return the words of a text as they are searched: full-width forms narrowed, case folded, long Chinese words with their parts.

    This is ``rjieba/1`` of `Sparse.words`: a change here, or another release of rjieba, is another name there.
    """
    import rjieba  # a dictionary to load, for policies with `sparse` alone

    folded = unicodedata.normalize("NFKC", text).casefold()
    return [word for word in rjieba.cut_for_search(folded) if not word.isspace()]


class Bm25:
    """A `SparseEmbedder`. Stateless and quick; runs off the event loop, since a large document has thousands of texts."""

    def __init__(self, sparse: Sparse) -> None:
        self.spec = sparse.spec
        self._model = _model(sparse)

    async def documents(self, texts: Sequence[str]) -> list[SparseVector]:
        """Return a vector a text, in order: word counts, saturated and set against the chunk's length."""
        return await asyncio.to_thread(lambda: [_vector(made) for made in self._model.embed(_cut(texts))])

    async def query(self, text: str) -> SparseVector:
        """Return each word of a question once, with weight 1."""
        (made,) = self._model.query_embed(_cut([text]))
        return _vector(made)


def open_sparse(spec: str) -> SparseEmbedder | None:
    """Return what makes the sparse vectors of a collection whose metadata says `spec`; None for no such vectors (empty).

    NotPrepared for a spec of another release.
    """
    return _opened(sparse_of(spec)) if spec else None


@lru_cache(maxsize=8)
def _opened(sparse: Sparse) -> Bm25:
    return Bm25(sparse)


def sparse_of(spec: str) -> Sparse:
    """Return the policy section that `Sparse.spec` was written from. NotPrepared on any other text."""
    try:
        model, words, k1, b, average_words = json.loads(spec)
        return Sparse(model=model, words=words, k1=k1, b=b, average_words=average_words)
    except (ValueError, TypeError) as error:
        raise NotPrepared("the collection's sparse spec can't be read by this release") from error


def _model(sparse: Sparse) -> Any:
    from fastembed import SparseTextEmbedding

    return SparseTextEmbedding(
        "Qdrant/bm25",
        specific_model_path=os.curdir,  # it has no files: without a stemmer nothing is read there, and nothing is fetched
        disable_stemmer=True,
        k=sparse.k1,
        b=sparse.b,
        avg_len=sparse.average_words,
    )


def _cut(texts: Iterable[str]) -> list[str]:
    return [" ".join(words_of(text)) for text in texts]


def _vector(made: Any) -> SparseVector:
    """Return a vector by ascending index, so that equal texts give equal vectors to the last place."""
    pairs = sorted(zip(made.indices.tolist(), made.values.tolist(), strict=True))
    return SparseVector(tuple(int(index) for index, _ in pairs), tuple(float(value) for _, value in pairs))
