"""FastembedModel: a model that fastembed runs, from a directory or by a name that fastembed knows. Never asks a hub when offline.

A directory for a name that fastembed does not know must say how its output becomes a vector, in ``docdelta-model.json``:
``{"model_file": "model.onnx", "pooling": "cls" | "mean" | "last_token" | "disabled", "normalize": true}``.
"""

from __future__ import annotations

import asyncio
import json
import os
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import cached_property
from pathlib import Path
from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, ValidationError

from streams.errors import NotPrepared
from streams.ports import Vector

LARGEST_BATCH = 16
"""Texts a run of the network. Larger ones need gigabytes (4.2 GB at 256 for MiniLM) and are slower."""
DESCRIPTION_FILE = "docdelta-model.json"


class Description(BaseModel):
    """``docdelta-model.json``."""

    model_config = ConfigDict(frozen=True, extra="forbid", protected_namespaces=())

    model_file: str = "model.onnx"
    pooling: Literal["cls", "mean", "last_token", "disabled"]
    normalize: bool = True


class FastembedModel:
    """A `Model` (base.py). Runs in one thread of its own; onnxruntime uses `threads` inside a run.

    name: as the policy says. directory: local files, or None for what fastembed itself finds by that name. Loads at once, and
    raises NotPrepared when there is no such model here, or its directory is incomplete.
    """

    def __init__(self, name: str, dimensions: int, directory: Path | None, threads: int, batch_size: int, offline: bool) -> None:
        self.model = name
        self._batch_size = min(batch_size, LARGEST_BATCH)
        self._embedding = _loaded(name, dimensions, directory, threads, offline)
        self._thread = ThreadPoolExecutor(max_workers=1, thread_name_prefix=f"embeds {name}")
        truncation = self._embedding.model.tokenizer.truncation
        self.max_tokens: int | None = truncation["max_length"] if truncation else None
        self.dimensions = len(self._run(["docdelta"])[0])

    def count_tokens(self, text: str) -> int:
        """Return the number of the model's own tokens, begin and end marks included."""
        return len(self._uncut.encode(text).ids)

    @cached_property
    def _uncut(self) -> Any:
        """The model's tokenizer without the cutting and padding that fastembed sets on its own. Made when first needed: 0.6 s."""
        from tokenizers import Tokenizer

        uncut = Tokenizer.from_str(self._embedding.model.tokenizer.to_str())
        uncut.no_truncation()
        uncut.no_padding()
        return uncut

    async def vectors(self, texts: Sequence[str]) -> list[Vector]:
        """Return a vector a text. Texts of like length run together, so that little is spent on padding."""
        loop = asyncio.get_running_loop()
        by_length = sorted(range(len(texts)), key=lambda position: len(texts[position]))
        found: dict[int, Vector] = {}
        for start in range(0, len(texts), self._batch_size):
            positions = by_length[start : start + self._batch_size]
            answer = await loop.run_in_executor(self._thread, self._run, [texts[position] for position in positions])
            found.update(zip(positions, answer, strict=False))
        return [found[position] for position in range(len(texts)) if position in found]

    def _run(self, texts: list[str]) -> list[Vector]:
        return list(self._embedding.embed(texts, batch_size=self._batch_size))


def _loaded(name: str, dimensions: int, directory: Path | None, threads: int, offline: bool) -> Any:
    if offline:
        os.environ["HF_HUB_OFFLINE"] = "1"  # read when the hub's library is first imported, which fastembed's import does
    from fastembed import TextEmbedding

    if directory is not None and not directory.is_dir():
        raise NotPrepared(f"model directory {directory} does not exist", model=name)
    known = {each["model"].lower(): each["dim"] for each in TextEmbedding.list_supported_models()}
    if name.lower() not in known:
        if directory is None:
            raise NotPrepared(f"model {name!r} is not known to fastembed; name its files in DOCDELTA_EMBEDDER__DIRECTORIES")
        _register(name, dimensions, _description(directory, name))
    options = {"specific_model_path": str(directory)} if directory is not None else {}
    try:
        return TextEmbedding(name, threads=threads, local_files_only=offline or directory is not None, **options)
    except Exception as error:  # fastembed, onnxruntime and the hub raise what they like
        where = (
            f"in {directory}"
            if directory is not None
            else "in fastembed's cache (offline: nothing is fetched)"
            if offline
            else "at the hub"
        )
        raise NotPrepared(f"model {name} can't be loaded {where}: {error}") from error


def _register(name: str, dimensions: int, description: Description) -> None:
    """Tell fastembed of a model. It keeps names for the life of the process; `_loaded` asks only for names it does not know."""
    from fastembed import TextEmbedding
    from fastembed.common.model_description import ModelSource, PoolingType

    TextEmbedding.add_custom_model(
        model=name,
        pooling=PoolingType[description.pooling.upper()],
        normalization=description.normalize,
        sources=ModelSource(hf="docdelta/none"),  # required by the call; files come from the directory
        dim=dimensions,
        model_file=description.model_file,
    )


def _description(directory: Path, name: str) -> Description:
    file = directory / DESCRIPTION_FILE
    try:
        return Description.model_validate(json.loads(file.read_text(encoding="utf-8")))
    except FileNotFoundError as error:
        example = '{"model_file": "model.onnx", "pooling": "mean", "normalize": true}'
        raise NotPrepared(f"model {name} is not known to fastembed; {file} must say how to use it, e.g. {example}") from error
    except ValidationError as error:
        fault = error.errors(include_url=False, include_input=False)[0]
        place = ".".join(map(str, fault["loc"]))
        raise NotPrepared(f"{file} can't be used: {place}: {fault['msg']}") from error
    except ValueError as error:
        raise NotPrepared(f"{file} is not JSON: {error}") from error
