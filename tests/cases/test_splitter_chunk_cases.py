"""Shared cases of the area splitter. The case id is in the name."""

from __future__ import annotations

import re

import pytest

from chunking.diff import diff
from chunking.manifest import Manifest, ManifestEntry
from chunking.passage import Role
from chunking.strategies import STRATEGIES
from chunking.strategies.visible import is_worthless
from tests.cases.chunk_support import chunks, document_of, passages, policy, texts
from tests.cases.parse_support import case_input


def test_sp_01_offsets_of_repeated_text_are_its_own() -> None:
    document = document_of("Tick tock. " * 6 + "\n\n" + "Tick tock. " * 6)
    found = passages("recursive", document, size=30, overlap=0)
    starts = [one.span.start for one in found]
    assert starts == sorted(set(starts))
    covered = "".join(one.span.of(document.text) for one in found)
    assert "".join(covered.split()) == "".join(document.text.split())


@pytest.mark.parametrize("size", [8, 20, 50])
@pytest.mark.parametrize("name", ["recursive", "sentences", "fixed", "semantic"])
def test_sp_02_only_blanks_are_left_out_and_words_stay_apart(name: str, size: int) -> None:
    text = case_input("SP-02")["text"]
    document = document_of(text)
    options = {"size": size} if name == "semantic" else {"size": size, "overlap": 0}
    position = 0
    for one in passages(name, document, **options):
        assert one.span.start >= position
        assert not document.text[position : one.span.start].strip()
        position = one.span.end
    assert not document.text[position:].strip()
    if size == 50:
        assert any("    return x" in one for one in texts(name, text, **options))


def test_sp_03_paragraph_breaks_stay_and_are_where_it_cuts() -> None:
    document = document_of(case_input("SP-03")["text"], "markdown")
    for name in ("structure", "recursive", "chapters"):
        found = [one.span.of(document.text) for one in passages(name, document, 200)]
        assert not any(re.search("ends. (?:## )?Next", one) for one in found)
        assert not any(re.search("two. *Para three", one) for one in found)
    small = [one.span.of(document.text) for one in passages("recursive", document, size=30, overlap=0)]
    assert small == ["Para one ends.\n\n## Next part", "Para two.\n\nPara three."]


@pytest.mark.parametrize("threshold", ["percentile", "gradient", "fixed"])
def test_sp_04_semantic_takes_one_sentence_or_none(threshold: str) -> None:
    counts = [len(texts("semantic", text, threshold=threshold)) for text in case_input("SP-04")["texts"]]
    assert counts[:3] == [0, 0, 1]
    assert counts[3] in (0, 1)
    assert "".join(texts("semantic", "两句。话。", threshold=threshold)) == "两句。话。"


@pytest.mark.parametrize("name", sorted(STRATEGIES))
def test_sp_06_nothing_without_words_becomes_a_chunk(name: str) -> None:
    given = case_input("SP-06")["texts"]
    for format_name in ("text", "markdown"):
        found = []
        for text in given:
            document = document_of(text, format_name)
            found.append([one.span.of(document.text) for one in passages(name, document)])
        assert not any(is_worthless(one) for group in found for one in group)
        assert "Body line." in found[0][0]
        assert "x" in found[2][0]


def test_sp_07_an_unchanged_child_names_the_new_parent_without_a_new_vector() -> None:
    given = case_input("SP-07")
    # The case has 6 tokens; heading and first sentence are 7, and a heading never stands alone.
    by = policy("parent_child", child_size=8, parent_size=100, overlap=0, above=0)
    old, new = (chunks(document_of(given[version], "markdown"), by) for version in ("v1", "v2"))
    stays_old, stays_new = (next(one for one in found if "Child one stays." in one.embed_text) for found in (old, new))
    assert stays_new.chunk_id == stays_old.chunk_id
    assert stays_new.payload_hash != stays_old.payload_hash
    assert "Child two new." in stays_new.payload["parent_text"]
    assert "Child two old." not in stays_new.payload["parent_text"]
    parents = {one.chunk_id for one in new if one.role is Role.PARENT}
    assert all(one.parent in parents for one in new if one.role is Role.BODY)
    manifest = Manifest(1, tuple(ManifestEntry(one.chunk_id, one.payload_hash, 1000 * (n + 1)) for n, one in enumerate(old)))
    change, _ = diff(manifest, new, 2)
    assert stays_new.chunk_id in {update.chunk.chunk_id for update in change.updated}
