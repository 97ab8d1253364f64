"""Embedding models, one file each; the table of kinds; and the one way to open one for a policy."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from chunking.policy import Embedding
from streams.embedders.base import CheckedEmbedder, Model
from streams.embedders.hashing import MODEL_NAME as HASHING_NAME
from streams.embedders.hashing import HashingModel
from streams.errors import NotPrepared
from streams.settings import EmbedderSettings
from streams.words import counted


def _fastembed(settings: EmbedderSettings, embedding: Embedding) -> Model:
    from streams.embedded.model import MODEL_NAME, offline_model_directory
    from streams.embedders.fastembed import FastembedModel

    directory = settings.directories.get(embedding.model, settings.directory)
    if directory is None and embedding.model == MODEL_NAME:
        directory = offline_model_directory()
    return FastembedModel(embedding.model, embedding.dimensions, directory, settings.threads, settings.batch_size, settings.offline)


def _hashing(settings: EmbedderSettings, embedding: Embedding) -> Model:
    if embedding.model != HASHING_NAME:
        raise NotPrepared(
            f"the policy asks for model {embedding.model!r}, embedder kind hashing makes only {HASHING_NAME!r}; "
            "vectors of one would be stored as the other's"
        )
    return HashingModel(embedding.dimensions)


EMBEDDERS: Mapping[str, Callable[[EmbedderSettings, Embedding], Model]] = {"fastembed": _fastembed, "hashing": _hashing}


def open_embedder(settings: EmbedderSettings, embedding: Embedding) -> CheckedEmbedder:
    """Return the embedder of a policy's `embedding`, loaded and tried once. Slow (seconds): call it off the event loop.

    NotPrepared when the model is not here, makes vectors of another length, or reads fewer tokens than the policy says.
    """
    model = EMBEDDERS[settings.kind](settings, embedding)
    if model.dimensions != embedding.dimensions:
        raise NotPrepared(
            f"model {embedding.model} makes vectors of {model.dimensions} dimensions, the policy says {embedding.dimensions}; "
            "set embedding.dimensions in a new version of the policy"
        )
    if embedding.max_tokens is not None and model.max_tokens is not None and embedding.max_tokens > model.max_tokens:
        raise NotPrepared(
            f"model {embedding.model} reads {counted(model.max_tokens, 'token')}, the policy says {embedding.max_tokens:,}; "
            "lower embedding.max_tokens in a new version of the policy"
        )
    return CheckedEmbedder(model)
