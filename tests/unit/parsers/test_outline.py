"""outline(): headings, clauses and items that stand in the words of a text."""

from __future__ import annotations

import pytest

from chunking.document import BlockKind, Document
from chunking.outline import clauses_of, heading_paths, outline
from chunking.parsers import parse_document


def outlined(text: str, media_type: str = "text/plain") -> Document:
    return outline(parse_document(text, media_type))


def headings(document: Document) -> list[tuple[str, int]]:
    return [(block.label, block.level) for block in document.blocks if block.kind is BlockKind.HEADING]


def test_found_headings_are_ranked_below_the_real_ones_around_them() -> None:
    document = outlined("# 某法\n\n第一章 总则\n\n第一节 甲\n\n文。\n\n第二章 乙\n\n文。\n\n# 附件\n\n文。", "text/markdown")
    assert headings(document) == [("某法", 1), ("第一章 总则", 2), ("第一节 甲", 3), ("第二章 乙", 2), ("附件", 1)]


def test_a_found_heading_of_the_rank_of_a_real_one_is_its_sibling() -> None:
    assert headings(outlined("## 第一章 甲\n\n文。\n\n第二章 乙\n\n文。", "text/markdown")) == [("第一章 甲", 2), ("第二章 乙", 2)]


def test_enumerated_lines_become_items_of_one_list_behind_their_lead_in() -> None:
    document = outlined("第一条 有下列情形之一的：\n（一）甲；\n（二）乙：\n1. 丙；\n2. 丁。\n第二条 文。")
    kinds = [(block.kind.value, block.level, block.clause) for block in document.blocks]
    assert kinds == [
        ("paragraph", 0, "第一条"),
        ("list_item", 1, "（一）"),
        ("list_item", 1, "（二）"),
        ("list_item", 2, ""),
        ("list_item", 2, ""),
        ("paragraph", 0, "第二条"),
    ]
    assert len({block.group for block in document.blocks[1:5]}) == 1
    assert clauses_of(document.blocks)[1:3] == ["第一条（一）", "第一条（二）"]


@pytest.mark.parametrize(
    "contents",
    [
        pytest.param("第一章 甲\n第二章 乙\n第三章 丙\n", id="a-run-of-titles"),
        pytest.param("第一章 甲 ........ 1\n第二章 乙 ........ 20\n第三章 丙\t33\n", id="titles-with-page-numbers"),
        pytest.param("第一章 甲\n第一节 子\n第二节 丑\n第二章 乙\n第三章 丙\n\n前面的话。\n", id="a-preface-behind-it"),
        pytest.param("第一章 甲\n\n第二章 乙\n\n第三章 丙\n\n", id="titles-with-blank-lines-between"),
    ],
)
def test_a_contents_page_has_no_chapters(contents: str) -> None:
    document = outlined("目录\n" + contents + "第一章 甲\na。\n第二章 乙\nb。\n第三章 丙\nc。\n")
    assert [label for label, _ in headings(document)] == ["第一章 甲", "第二章 乙", "第三章 丙"]


def test_a_wrapped_line_that_begins_like_an_item_begins_nothing() -> None:
    document = outlined("It was seen in the year\n12. It then went.")
    assert [block.kind for block in document.blocks] == [BlockKind.PARAGRAPH]


def test_a_real_heading_with_a_number_begins_its_clause() -> None:
    document = outlined("### 3.2.1 外壳\n\n文。\n\n### 说明\n\n文。", "text/markdown")
    assert [block.clause for block in document.blocks] == ["3.2.1", "", "", ""]
    assert clauses_of(document.blocks) == ["3.2.1", "3.2.1", "", ""]


def test_code_tables_and_quotes_are_not_searched() -> None:
    document = outlined("```\n第一条 甲\n```\n\n> 第二条 乙\n\n|第三条 a|b|\n|-|-|\n|1|2|", "text/markdown")
    assert outline(document) == document
    assert not any(block.clause for block in document.blocks)


def test_paths_leave_what_is_closed_and_empty_titles() -> None:
    document = parse_document("# A\n\n### b\n\nx\n\n##\n\ny\n\n## c\n\nz", "text/markdown")
    paths = heading_paths(document.blocks)
    assert paths == [("A",), ("A", "b"), ("A", "b"), ("A",), ("A",), ("A", "c"), ("A", "c")]
