"""Cases of area `markdown`, the parser's side: mistakes that other projects shipped, each with the outcome that is asked of us."""

from __future__ import annotations

import pytest

from chunking.document import BlockKind
from tests.cases.parse_support import bodies, case_input, headings, outlined, parsed


def test_md_01_comment_lines_in_a_fence_are_no_headings() -> None:
    document = parsed("MD-01")
    assert headings(document) == [("Setup", 1), ("Next", 2)]
    assert ("```sh\n# not a heading\necho hi\n```", ("Setup",)) in bodies(document)


def test_md_03_hidden_text_is_nowhere_in_the_document() -> None:
    document = parsed("MD-03")
    assert headings(document) == [("Live", 1), ("Also live", 2)]
    assert "secret salary 900" not in repr(document)
    assert "var a" not in repr(document)
    assert bodies(document)[-1] == ("Shown too.", ("Live", "Also live"))


def test_md_04_front_matter_makes_no_heading() -> None:
    document = parsed("MD-04")
    assert headings(document) == [("Welcome", 1)]
    assert "weight: 3" not in document.text
    assert document.title == "Demo page"
    assert ("A rule above is body.", ("Welcome",)) in bodies(document)


def test_md_05_underlined_headings() -> None:
    document = parsed("MD-05")
    assert headings(document) == [("Intro line", 1), ("Part two", 2)]
    assert bodies(document)[-2:] == [("plain text", ("Intro line", "Part two")), ("after rule", ("Intro line", "Part two"))]


def test_md_06_paths_after_a_level_jump() -> None:
    assert bodies(parsed("MD-06")) == [
        ("a-text", ("Catalog", "alpha")),
        ("b-text", ("Catalog", "beta")),
        ("c-text", ("Catalog", "gamma")),
        ("d-text", ("Other",)),
    ]


def test_md_08_edge_forms_of_hash_headings() -> None:
    document = parsed("MD-08")
    assert headings(document) == [("C#", 2), ("F#", 2), ("", 2)]
    texts = dict(bodies(document))
    assert texts["#hashtag is not a heading"] == texts["####### seven is not"] == ("F#",)
    assert "After empty heading." in texts


def test_md_10_rows_are_whole_and_tied_to_their_header() -> None:
    document = parsed("MD-10")
    header = next(block for block in document.blocks if block.kind is BlockKind.TABLE_HEADER)
    rows = [block for block in document.blocks if block.kind is BlockKind.TABLE_ROW]
    assert document.text_of(header) == "| Day | Team | Room |\n|---|---|---|"
    assert [row.cells[0] for row in rows] == ["Mon", "Tue", "Wed", "Thu", "Fri"]
    assert {row.group for row in rows} == {header.group}


def test_md_11_formatted_and_nested_items_survive() -> None:
    document = parsed("MD-11")
    items = [(block.level, document.text_of(block).strip()) for block in document.blocks if block.kind is BlockKind.LIST_ITEM]
    assert items == [(1, "- **Lamp**: two cells."), (1, "- Rope"), (2, "- thin `4 mm`"), (2, "- thick 9 mm"), (1, "- Tent")]
    assert len({block.group for block in document.blocks if block.kind is BlockKind.LIST_ITEM}) == 1


@pytest.mark.parametrize("number", range(3))
def test_md_12_long_lines_are_kept(number: int) -> None:
    build = case_input("MD-12")["build"]
    assert len(build) == 3
    text = ["a" * 200_000 + "\n", "# x" + " " * 100_000 + "y\n", "$$\n" + " " * 100_000 + "x\n"][number]
    document = outlined(text, "text/markdown")
    assert "".join(document.text.split()) == "".join(text.split())


def test_md_13_an_inline_image_leaves_its_alternative_text() -> None:
    document = outlined("Before ![pic](data:image/png;base64," + "QUJD" * 500_000 + ") after.\n", "text/markdown")
    assert document.text.strip() == "Before ![pic](data:) after."
