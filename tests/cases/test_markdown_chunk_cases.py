"""Shared cases of the area markdown, on chunks. The case id is in the name."""

from __future__ import annotations

import re

import pytest

from chunking.chunk import Chunk
from chunking.diff import diff
from chunking.manifest import Manifest, ManifestEntry
from tests.cases.chunk_support import chunks, document_of, passages, policy
from tests.cases.parse_support import case_input


def said(case_id: str, limit: int = 400, **options: object) -> list[tuple[str, tuple[str, ...]]]:
    document = document_of(case_input(case_id)["text"], "markdown")
    found = passages("structure", document, limit, **options)
    return [(one.repeat + one.span.of(document.text), one.heading_path) for one in found]


def path_of(found: list[tuple[str, tuple[str, ...]]], words: str) -> tuple[str, ...]:
    [path] = [path for text, path in found if words in text]
    return path


def test_md_01_a_fence_stays_whole_under_its_heading() -> None:
    found = said("MD-01")
    assert path_of(found, "# not a heading") == ("Setup",)
    assert path_of(found, "```sh\n# not a heading\necho hi\n```") == ("Setup",)


def test_md_03_hidden_text_is_in_no_chunk() -> None:
    document = document_of(case_input("MD-03")["text"], "markdown")
    found = chunks(document, policy("structure"))
    assert all("secret salary" not in repr(one) and "var a" not in repr(one) for one in found)
    assert path_of(said("MD-03"), "Shown too.") == ("Live", "Also live")


def test_md_04_front_matter_is_in_no_chunk() -> None:
    found = said("MD-04")
    assert all("weight: 3" not in text for text, _ in found)
    assert path_of(found, "A rule above is body") == ("Welcome",)


def test_md_05_text_stands_under_setext_headings() -> None:
    found = said("MD-05")
    assert path_of(found, "plain text") == ("Intro line", "Part two")
    assert path_of(found, "after rule") == ("Intro line", "Part two")


def test_md_06_paths_hold_no_closed_heading() -> None:
    found = said("MD-06", walls=6)
    assert path_of(found, "a-text") == ("Catalog", "alpha")
    assert path_of(found, "b-text") == ("Catalog", "beta")
    assert path_of(found, "c-text") == ("Catalog", "gamma")
    assert path_of(found, "d-text") == ("Other",)


def test_md_06_a_chunk_of_several_sections_is_placed_under_what_they_share() -> None:
    assert path_of(said("MD-06"), "a-text") == ("Catalog",)


def test_md_08_text_after_odd_headings_is_kept() -> None:
    found = said("MD-08", walls=6)
    assert path_of(found, "#hashtag is not a heading") == ("F#",)
    assert path_of(found, "####### seven is not") == ("F#",)
    assert any("After empty heading." in text for text, _ in found)


def entries(found: tuple[Chunk, ...]) -> Manifest:
    return Manifest(1, tuple(ManifestEntry(one.chunk_id, one.payload_hash, 1000 * (n + 1)) for n, one in enumerate(found)))


def test_md_09_twins_have_ids_of_their_own_and_one_can_go() -> None:
    given = case_input("MD-09")
    by = policy("structure")
    old, new = (chunks(document_of(given[version], "markdown"), by) for version in ("v1", "v2"))
    assert len({one.chunk_id for one in old}) == len(old) == 3
    assert [one.chunk_id for one in old] == [one.chunk_id for one in chunks(document_of(given["v1"], "markdown"), by)]
    change, _ = diff(entries(old), new, 2)
    assert (len(change.added), len(change.removed)) == (0, 1)


def test_md_10_every_row_comes_with_its_header() -> None:
    given = case_input("MD-10")["text"]
    document = document_of(given, "markdown")
    found = said("MD-10", 40)
    rows = re.findall(r"^\| (?:Mon|Tue|Wed|Thu|Fri) .*$", given, re.MULTILINE)
    for row in rows:
        [text] = [text for text, _ in found if row in text]
        assert "| Day | Team | Room |\n|---|---|---|\n" in text
    bodies = [one.span.of(document.text) for one in passages("structure", document, 40)]
    assert sum("Duty roster 2031" in body for body in bodies) == 1
    assert len(found) > 1


def test_md_10_rows_can_be_read_out_as_sentences() -> None:
    document = document_of("| 区域 | 预计时效 |\n|---|---|\n| 华东 | 两天 |\n| 西南 | |\n", "markdown")
    [one] = passages("structure", document, tables="sentences")
    assert one.rendering == "区域：华东；预计时效：两天。\n区域：西南。"


def test_md_11_items_carry_their_lead_in_and_their_parent() -> None:
    found = [text for text, _ in said("MD-11", 16)]
    assert len(found) > 1
    for words in ("Lamp", "two cells", "Rope", "4 mm", "9 mm", "Tent"):
        assert any(words in text for text in found)
    assert all("Bring these things:" in text for text in found)
    assert all("Rope" in text for text in found if "thin `" in text or "thick" in text)


@pytest.mark.parametrize(
    "build", [lambda n: "a" * n + "\n", lambda n: "# x" + " " * (n // 2) + "y\n", lambda n: "$$\n" + " " * (n // 2) + "x\n"]
)
def test_md_12_a_very_long_line_loses_nothing(build: object) -> None:
    assert callable(build)
    document = document_of(build(200_000), "markdown")
    found = passages("structure", document)
    covered = "".join(one.span.of(document.text) for one in found)
    assert "".join(covered.split()) == "".join(document.text.split())


def test_md_13_an_inline_image_makes_no_chunks_of_noise() -> None:
    document = document_of("Before ![pic](data:image/png;base64," + "QUJD" * 500_000 + ") after.\n", "markdown")
    found = [one.span.of(document.text) for one in passages("structure", document)]
    assert len(found) <= 2
    assert not any(re.search("[A-Za-z0-9+/]{200}", text) for text in found)
    assert all(words in "".join(found) for words in ("Before", "pic", "after."))
