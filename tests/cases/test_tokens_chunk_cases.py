"""Shared cases of the area tokens, on counters and strategies. The case id is in the name."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest
from pydantic import ValidationError

from chunking.passage import Role
from chunking.policy import ChunkPolicy
from chunking.strategies import STRATEGIES
from tests.cases.chunk_support import TOKENS, chunks, document_of, passages, policy, texts
from tests.cases.parse_support import case_input


def test_tk_01_special_token_literals_are_plain_text() -> None:
    text = case_input("TK-01")["text"]
    assert TOKENS.count("<|endoftext|>") == 7
    for name in STRATEGIES:
        found = texts(name, text)
        assert "<|endoftext|>" in "".join(found)
        assert "<|im_start|>" in "".join(found)
    assert "".join(texts("tokens", text, size=8, overlap=2)) == text


@pytest.mark.parametrize("size", range(4, 10))
@pytest.mark.parametrize("overlap", [0, 1])
def test_tk_02_a_window_never_parts_a_character(size: int, overlap: int) -> None:
    text = case_input("TK-02")["text"]
    document = document_of(text)
    found = passages("tokens", document, size=size, overlap=overlap)
    said = [passage.repeat + passage.span.of(document.text) for passage in found]
    assert all("\ufffd" not in one for one in said)
    assert all(TOKENS.count(one) <= size for one in said)
    assert "".join(passage.span.of(document.text) for passage in found) == document.text


@pytest.mark.parametrize("character", ["^", "a", " "])
def test_tk_04_a_huge_run_is_counted_slice_by_slice(character: str) -> None:
    text = character * 1_000_000
    assert 0 < TOKENS.count(text) <= len(text)
    document = document_of(text)
    found = passages("tokens", document, size=512, overlap=0)
    assert "".join(passage.span.of(document.text) for passage in found) == text.strip()


@pytest.mark.parametrize("name", ["recursive", "sentences", "fixed", "tokens"])
def test_tk_05_an_overlap_that_never_advances_is_refused_when_the_policy_is_loaded(name: str) -> None:
    for options in case_input("TK-05")["policies"]:
        with pytest.raises(ValidationError, match=r"overlap|size"):
            STRATEGIES[name].options(**options)
        with pytest.raises(ValidationError):
            ChunkPolicy.model_validate({"name": "case", "version": 1, "rules": [{"use": name, "options": options}]})


@pytest.mark.parametrize("text", ["abc\n" * 50, "x" * 90 + "\n\n" + "y" * 95])
@pytest.mark.parametrize("overlap", [49, 26, 25])
@pytest.mark.parametrize("name", ["recursive", "fixed", "sentences"])
def test_tk_06_a_window_always_advances(name: str, text: str, overlap: int) -> None:
    document = document_of(text)
    found = passages(name, document, size=50, overlap=overlap)
    starts = [passage.span.start for passage in found]
    assert starts == sorted(set(starts))
    assert len(found) <= len(text)
    assert found[-1].span.end == len(document.text.rstrip())
    assert all(len(passage.repeat + passage.span.of(document.text).rstrip()) <= 50 for passage in found)


def test_tk_07_no_chunk_holds_only_overlap() -> None:
    first = document_of("S1. S2. S3. S4. ")
    found = passages("sentences", first, size=3, overlap=2, unit="sentences")
    assert [(passage.repeat, passage.span.of(first.text)) for passage in found] == [("", "S1. S2. S3. "), ("S2. S3. ", "S4.")]
    assert texts("fixed", "b" * 30, size=10, overlap=0) == ["b" * 10] * 3
    windows = passages("fixed", document_of("c" * 250), size=100, overlap=10)
    assert [(len(one.repeat), one.span.end) for one in windows] == [(0, 100), (10, 190), (10, 250)]


def test_tk_08_prefix_and_body_together_stay_within_the_limit() -> None:
    document = document_of(case_input("TK-08")["text"], "markdown")
    found = chunks(document, policy("structure", 64, {"heading_path": True}))
    assert all(TOKENS.count(one.embed_text) == one.tokens <= 64 for one in found)
    covered = "".join(one.text for one in found)
    assert "".join(covered.split()) == "".join(document.text.split())


def test_tk_10_the_vocabulary_needs_no_network() -> None:
    script = (
        "import socket; socket.socket.connect = lambda *a: (_ for _ in ()).throw(OSError('no network'));"
        "from chunking.tokens import counter; c = counter('cl100k_base'); print(c.count('hello world'), c.count('第十条'))"
    )
    environment = {name: value for name, value in os.environ.items() if name not in ("TIKTOKEN_CACHE_DIR", "DATA_GYM_CACHE_DIR")}
    run = subprocess.run([sys.executable, "-c", script], env=environment, capture_output=True, text=True, check=True)
    assert run.stdout.split() == ["2", "3"]


def test_tk_10_an_unknown_vocabulary_is_refused_by_name() -> None:
    from chunking.tokens import TokenizerError, counter

    with pytest.raises(TokenizerError, match=r"no_such_encoding"):
        counter("no_such_encoding")
    with pytest.raises(TokenizerError, match=r"no such file"):
        counter("file:missing/tokenizer.json")


def test_parents_are_not_counted_against_the_limit() -> None:
    document = document_of("一句话。" * 400)
    found = passages("parent_child", document, 100, child_size=100, parent_size=600, overlap=0)
    assert any(one.role is Role.PARENT and TOKENS.count(one.span.of(document.text)) > 100 for one in found)
