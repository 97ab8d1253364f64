"""FastembedModel: a model that fastembed runs, from a directory or by a name that fastembed knows. Never asks a hub when offline.

A directory for a name that fastembed does not know must say how its output becomes a vector, in ``docdelta-model.json``:
``{"model_file": "model.onnx", "pooling": "cls" | "mean" | "last_token" | "disabled", "normalize": true}``.
"""

from __future__ import annotations

import asyncio
import json
import os
from collections import deque
from collections.abc import Callable, Sequence
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
    """A `Model` (base.py). `threads` runs of the network go on at once, each in a thread of its own and on one core.

    One run on all cores has its threads wait for each other after every layer, and for whatever else has a core at that moment:
    beside other work it took 1.5 times the processor time of runs that share nothing.

    name: as the policy says. directory: local files, or None for what fastembed itself finds by that name. Loads at once, and
    raises NotPrepared when there is no such model here, or its directory is incomplete.
    """

    def __init__(self, name: str, dimensions: int, directory: Path | None, threads: int, batch_size: int, offline: bool) -> None:
        self.model = name
        self._batch_size = min(batch_size, LARGEST_BATCH)
        self._embedding = _loaded(name, dimensions, directory, offline)
        self._threads = threads
        self._pool = ThreadPoolExecutor(max_workers=threads, thread_name_prefix=f"embeds {name}")
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
        runs = Runs(texts, min(self._batch_size, -(-len(texts) // self._threads)))
        loop = asyncio.get_running_loop()
        shares = [loop.run_in_executor(self._pool, runs.share, self._run) for _ in range(self._threads)]
        try:
            await asyncio.gather(*shares)
        finally:
            runs.give_up()  # after an error, or when nobody waits any longer
        return [runs.found[position] for position in range(len(texts)) if position in runs.found]

    def close(self) -> None:
        """Let the threads end, each after the run that it is at: idle ones wait for work for ever, and the process for them."""
        self._pool.shutdown(wait=False, cancel_futures=True)

    def _run(self, texts: list[str]) -> list[Vector]:
        return list(self._embedding.embed(texts, batch_size=len(texts)))


class Runs:
    """The texts of a call in runs of at most `size`, longest first. Threads share them: each takes the next until none is left."""

    def __init__(self, texts: Sequence[str], size: int) -> None:
        by_length = sorted(range(len(texts)), key=lambda position: -len(texts[position]))
        self._texts = texts
        self._left = deque(by_length[start : start + size] for start in range(0, len(texts), size))
        self.found: dict[int, Vector] = {}
        """Vectors by the position of their text."""

    def share(self, run: Callable[[list[str]], list[Vector]]) -> None:
        """Embed runs until none is left. Called in several threads at once."""
        while True:
            try:
                positions = self._left.popleft()
            except IndexError:
                return
            self.found.update(zip(positions, run([self._texts[position] for position in positions]), strict=False))

    def give_up(self) -> None:
        """Let no further run begin."""
        self._left.clear()


def _loaded(name: str, dimensions: int, directory: Path | None, offline: bool) -> Any:
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
        return TextEmbedding(name, threads=1, local_files_only=offline or directory is not None, **options)
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
