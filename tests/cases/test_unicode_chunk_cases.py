"""Shared cases of the area unicode, on chunks. The case id is in the name."""

from __future__ import annotations

import pytest
import regex

from chunking.diff import diff
from chunking.manifest import Manifest, ManifestEntry
from tests.cases.chunk_support import chunks, document_of, passages, policy
from tests.cases.parse_support import case_input


def ids(text: str, format_name: str) -> list[str]:
    return [one.chunk_id for one in chunks(document_of(text, format_name), policy("structure"))]


@pytest.mark.parametrize(("case_id", "format_name"), [("UN-01", "markdown"), ("UN-02", "markdown"), ("UN-07", "text")])
def test_un_01_02_07_variants_of_one_text_have_the_same_chunks(case_id: str, format_name: str) -> None:
    first, *others = case_input(case_id)["variants"]
    assert ids(first, format_name)
    assert all(ids(other, format_name) == ids(first, format_name) for other in others)


def test_un_02_other_line_ends_make_an_empty_diff() -> None:
    first, *others = case_input("UN-02")["variants"]
    by = policy("structure")
    old = chunks(document_of(first, "markdown"), by)
    manifest = Manifest(1, tuple(ManifestEntry(one.chunk_id, one.payload_hash, 1000 * (n + 1)) for n, one in enumerate(old)))
    for other in others:
        change, _ = diff(manifest, chunks(document_of(other, "markdown"), by), 2)
        assert not change.added
        assert not change.removed
        assert not change.updated


def test_un_03_spans_give_back_the_text() -> None:
    document = document_of(case_input("UN-03")["text"], "markdown")
    found = chunks(document, policy("structure", walls=6))
    assert all(document.text[one.span.start : one.span.end] == one.text for one in found)
    assert [one.heading_path for one in found if "two" in one.text] == [("A",)]


@pytest.mark.parametrize("overlap", [0, 2])
@pytest.mark.parametrize("name", ["recursive", "fixed", "sentences"])
def test_un_05_no_cut_stands_inside_a_grapheme(name: str, overlap: int) -> None:
    document = document_of(case_input("UN-05")["text"])
    text = document.text
    borders = {0, *(cluster.end() for cluster in regex.finditer(r"\X", text))}
    for size in range(overlap + 1, 13):
        found = passages(name, document, size=size, overlap=overlap)
        assert all(one.span.start in borders and one.span.end in borders for one in found)
        assert all(one.span.start - len(one.repeat) in borders for one in found)
        if overlap == 0:
            assert "".join(one.span.of(text) for one in found) == text
        for one in found:
            body = one.span.of(text).rstrip()
            assert len(body) <= size or len(regex.findall(r"\X", body)) == 1
