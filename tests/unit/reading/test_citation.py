"""A quotation names the clause that it stands in, however the chunk is cut."""

from __future__ import annotations

import pytest

from streams.reading.citation import clauses_of, part_at, part_with, parts_of

TEXT = "## 交通\n\n第九条 乘坐\n高铁。\n\n第十条 乘坐飞机。"
PAYLOAD = {
    "text": TEXT,
    "heading_path": ["制度"],
    "clause": "第九条",
    "clauses": ["第九条", "第十条"],
    "parts": [
        {"at": 0, "clause": "第九条", "heading_path": ["制度", "交通"]},
        {"at": TEXT.index("第十条"), "clause": "第十条"},
    ],
}


@pytest.mark.parametrize(
    ("quotation", "clause"),
    [
        ("交通", "第九条"),
        ("乘坐高铁", "第九条"),
        ("高铁。\n\n第十条", "第九条"),
        ("第十条", "第十条"),
        ("乘坐 飞机", "第十条"),
        ("轮船", None),
        ("", None),
    ],
)
def test_a_quotation_is_found_by_its_words_blanks_aside(quotation: str, clause: str | None) -> None:
    part = part_with(PAYLOAD, quotation)
    assert (part.clause if part else None) == clause


def test_every_character_stands_in_one_part() -> None:
    border = TEXT.index("第十条")
    assert [part_at(PAYLOAD, at).clause for at in (0, border - 1, border, len(TEXT), 10_000)] == ["第九条"] * 2 + ["第十条"] * 3
    assert part_at(PAYLOAD, 0).heading_path == ("制度", "交通")
    assert part_at(PAYLOAD, border).heading_path == ("制度",)


def test_a_chunk_without_parts_is_one() -> None:
    old = {"text": "甲", "heading_path": ["A"], "clause": "第一条"}  # as written before there were parts
    assert [(part.at, part.heading_path, part.clause) for part in parts_of(old)] == [(0, ("A",), "第一条")]
    assert clauses_of(old) == ("第一条",)
    assert clauses_of({"text": "x"}) == ()
    assert clauses_of(PAYLOAD) == ("第九条", "第十条")
