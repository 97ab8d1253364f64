"""A tally says of every stretch of a text what the counter says of that string alone; chunks carry exact counts."""

from __future__ import annotations

import itertools
from pathlib import Path

import pytest
from hypothesis import assume, given
from hypothesis import settings as hypothesis_settings
from hypothesis import strategies as st

from chunking.chunker import Provenance, chunk
from chunking.document import DocumentKey
from chunking.parsers import parse_document
from chunking.policy import load_policy
from chunking.tally import Plain, Synced
from chunking.tokens import SLICE, counter
from tests.support.texts import is_text

CL100K = counter("cl100k_base")
POLICIES = sorted((Path(__file__).resolve().parents[3] / "deploy/policies").glob("*.yaml"))
BLANKS = [" ", "  ", "\n", "\n\n", "\n  \n", "\t", "\u3000", "\xa0", "\x85", "\u2028", "\x1c", "\x0b", "\r", "\u180e", "\u200d"]
MARKS = ["!!", "...", "-----", "**", "://", ");\n", ");\n\n", "<|endoftext|>", "- ", "> ", *"。，“”）·、#|`_'\u0301"]
WORDS = [
    "a",
    "word",
    "Don't",
    "'s",
    "'S ",
    "'ll",
    "'ſ",
    "他说",
    "12345",
    "e\u0301",
    "    x\n",
    *"1éЖжǅʰ²Ⅷ٣한ー𠀀𝔸ำ",
    "👩\u200d👩\u200d👧",
    "🇩🇪",
]
SCRAPS = st.sampled_from([*BLANKS, *MARKS, *WORDS])
TEXTS = st.one_of(st.lists(SCRAPS, max_size=40).map("".join), st.text(max_size=60))
COUNTERS = ["cl100k_base", "characters"]


@pytest.mark.parametrize("name", COUNTERS)
@hypothesis_settings(max_examples=400, deadline=None)
@given(text=TEXTS, before=TEXTS, data=st.data())
def test_a_stretch_counts_as_its_string_does(name: str, text: str, before: str, data: st.DataObject) -> None:
    by = counter(name)
    tally = by.tally(text)
    for _ in range(8):
        start = data.draw(st.integers(0, len(text)))
        end = data.draw(st.integers(start, len(text)))
        assert tally.count(start, end) == by.count(text[start:end])
        assert tally.count_after(before, start, end) == by.count(before + text[start:end])


@hypothesis_settings(max_examples=400, deadline=None)
@given(lines=st.lists(TEXTS.map(lambda text: text.replace("\r", "")), max_size=6), data=st.data())
def test_weights_of_lines_add_up(lines: list[str], data: st.DataObject) -> None:
    text = "\n".join(lines)
    starts = [0, *(at for at in range(1, len(text)) if text[at - 1] == "\n" and not text[at].isspace()), len(text)]
    tally = CL100K.tally(text)
    weights = [tally.count(*pair) for pair in itertools.pairwise(starts)]
    assert sum(weights) == CL100K.count(text)


def test_prose_is_encoded_once_and_long_runs_are_left_to_the_counter() -> None:
    assert isinstance(CL100K.tally("今天天气很好。\n" * 2_000), Synced)
    for run in ("a", "春", " ", "*"):
        text = "one\n" * 3 + run * (SLICE - 1) + ". two\n" + run * 5_000
        tally = CL100K.tally(text)
        assert isinstance(tally, Plain)
        for start in (0, 5, 900):
            assert tally.count(start, len(text)) == CL100K.count(text[start:])


@pytest.mark.parametrize("policy_file", POLICIES, ids=lambda path: path.stem)
@hypothesis_settings(max_examples=40, deadline=None)
@given(
    parts=st.lists(st.one_of(TEXTS, st.sampled_from(["# T\n\n", "Lead:\n\n- a\n- b\n", "|a|b|\n|-|-|\n|1|2|\n\n"])), max_size=30)
)
def test_a_chunk_has_the_tokens_of_its_embedded_text(policy_file: Path, parts: list[str]) -> None:
    text = policy_file.read_text(encoding="utf-8")
    policy = load_policy(text)
    by = counter(policy.limits.tokenizer)
    source = "\n".join(parts) * 3
    assume(is_text(source))
    document = parse_document(source, "text/markdown")
    for each in chunk(document, Provenance(DocumentKey("acme", "page"), 1), policy, by):
        assert each.tokens == by.count(each.embed_text)
        assert each.tokens <= policy.limits.max_tokens
