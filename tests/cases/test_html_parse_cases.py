"""Cases of area `html`, the parser's side."""

from __future__ import annotations

from chunking.document import BlockKind
from tests.cases.parse_support import bodies, parsed


def test_ht_01_styles_and_scripts_are_nowhere_in_the_document() -> None:
    assert parsed("HT-01").text == "Real text."


def test_ht_02_the_path_keeps_the_outer_heading() -> None:
    assert bodies(parsed("HT-02")) == [
        ("Before all.", ()),
        ("i", ("Book",)),
        ("p", ("Book", "Part")),
        ("d", ("Book", "Part", "Deep")),
        ("q", ("Book", "Part B")),
    ]


def test_ht_03_merged_cells_stand_in_every_row_they_cover() -> None:
    document = parsed("HT-03")
    header, *rows = document.blocks
    assert header.kind is BlockKind.TABLE_HEADER
    assert header.cells == ("Site", "Site", "Chief")
    assert [row.cells for row in rows] == [("North", "Gate 1", "Ann"), ("North", "Gate 2", "Ben")]
    assert document.text_of(rows[1]) == "North | Gate 2 | Ben"


def test_ht_05_entities_are_decoded_once() -> None:
    assert [text for text, _ in bodies(parsed("HT-05"))] == ["p < 0.05 &amp; A\xa0B 中😀", "List<int> x;"]
