"""Cases of areas `unicode` and `chinese`, the parser's side."""

from __future__ import annotations

import json
import unicodedata

import pytest

from chunking.clauses import number_of
from chunking.document import Document
from chunking.normalize import normalize
from chunking.outline import clauses_of, heading_paths
from tests.cases.parse_support import bodies, case_input, clauses, headings, outlined, parsed, variants


def test_un_01_a_byte_order_mark_hides_no_heading() -> None:
    without, with_mark = variants("UN-01")
    assert without == with_mark
    assert bodies(with_mark)[-1] == ("B.", ("Title", "Sub"))
    assert "\ufeff" not in repr(with_mark)


def test_un_02_line_ends_make_no_difference() -> None:
    first, *others = variants("UN-02")
    assert headings(first) == [("A", 1), ("B", 2)]
    assert others == [first] * 3


def test_un_03_only_lf_ends_a_line() -> None:
    document = parsed("UN-03")
    assert headings(document) == [("A", 1), ("B", 2)]
    assert [text for text, _ in bodies(document)] == ["one\u2028# two", "three\x0cfour\x85five"]
    assert document.text.strip("\n") == case_input("UN-03")["text"].strip("\n")


def test_un_04_half_a_character_is_replaced() -> None:
    body = json.loads(case_input("UN-04")["kafka_value_ascii"])["body"]
    document = outlined(body, "text/plain")
    assert document.text == "ok \ufffd end. Fine."
    assert document.text.encode("utf-8")


def test_un_05_joined_emoji_stay_whole() -> None:
    text = case_input("UN-05")["text"]
    assert normalize(text) == unicodedata.normalize("NFC", text)


def test_un_07_zero_width_characters_hide_no_article() -> None:
    plain, hidden = variants("UN-07")
    assert plain == hidden
    assert [number_of(clause) for clause in clauses(hidden)] == [10, 11]


def test_zh_05_a_reference_begins_no_clause() -> None:
    document = parsed("ZH-05")
    assert clauses(document) == ["7.2.1", "7.2.2"]
    assert bodies(document)[0] == ("7.2.2的要求适用于外壳。\n7.2.3的检查应按5.1 b)项进行。", ("7.2.1 总则",))


def test_zh_06_articles_and_inline_references() -> None:
    document = parsed("ZH-06")
    assert clauses(document) == ["第十条", "第十条之一", "第十一条"]
    assert "第二十一条" in document.text_of(document.blocks[0])
    assert clauses_of(document.blocks)[0] == "第十条"


@pytest.mark.parametrize(
    ("wrap", "media_type"),
    [
        pytest.param(lambda text: text, "text/plain", id="text"),
        pytest.param(lambda text: text, "text/markdown", id="markdown"),
        pytest.param(lambda text: text.replace("\n", "\n\n"), "text/markdown", id="markdown-paragraphs"),
        pytest.param(lambda text: "<p>" + text.replace("\n", "</p><p>"), "text/html", id="html-paragraphs"),
        pytest.param(lambda text: text.replace("\n", "<br>"), "text/html", id="html-line-breaks"),
    ],
)
def test_zh_08_one_law_has_one_structure_in_every_file_type(wrap, media_type: str) -> None:
    assert "1.2.1 冷库除外。" in case_input("ZH-08")["build"]
    law = "1 总则\n1.1 范围\n适用于仓库。\n1.2 例外\n1.2.1 冷库除外。\n2 罚则\n罚款。"

    def structure(document: Document) -> list[tuple[str, tuple[str, ...], str]]:
        return [
            (clause, path, document.text_of(block))
            for block, path, clause in zip(
                document.blocks, heading_paths(document.blocks), clauses_of(document.blocks), strict=True
            )
        ]

    assert structure(outlined(wrap(law), media_type)) == [
        ("1", ("1 总则",), "1 总则"),
        ("1.1", ("1 总则", "1.1 范围"), "1.1 范围"),
        ("1.1", ("1 总则", "1.1 范围"), "适用于仓库。"),
        ("1.2", ("1 总则", "1.2 例外"), "1.2 例外"),
        ("1.2.1", ("1 总则", "1.2 例外"), "1.2.1 冷库除外。"),
        ("2", ("2 罚则",), "2 罚则"),
        ("2", ("2 罚则",), "罚款。"),
    ]


def test_zh_09_counting_rounds_begins_no_chapter() -> None:
    document = parsed("ZH-09")
    assert [label for label, _ in headings(document)] == ["第一回 开局", "第二回 收官再见旧人"]
    assert [path for text, path in bodies(document) if "回合" in text] == [("第一回 开局",)] * 2


def test_zh_12_both_scripts_in_one_text() -> None:
    document = parsed("ZH-12")
    assert [(number_of(clause), clause) for clause in clauses(document)] == [(10, "第十條"), (11, "第十一条")]
    assert {path for _, path in bodies(document)} == {("第一節 總則",)}
    assert "條" in document.text
    assert "總" in document.text
