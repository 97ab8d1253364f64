"""Shared cases of the area chinese, on chunks. The case id is in the name."""

from __future__ import annotations

import pytest

from tests.cases.chunk_support import TOKENS, document_of, passages, texts
from tests.cases.parse_support import case_input

NEVER_FIRST = "，。！？；：、”’）》】」』…"
PAIRS = ["“”", "「」", "（）"]


def test_zh_01_a_mark_stays_with_what_it_ends() -> None:
    text = case_input("ZH-01")["text"]
    found = texts("recursive", text, size=10, overlap=0, separators="zh")
    assert found == ["月色很好，风也不大。", "大家都睡了。", "灯还亮着！"]
    for name in ("recursive", "sentences"):
        for size in range(5, 25):
            found = texts(name, text, size=size, overlap=0)
            assert "".join(found) == text
            assert all(len(one) <= size and one[0] not in NEVER_FIRST for one in found)


def test_zh_02_a_closing_quote_stays_with_its_sentence() -> None:
    text = case_input("ZH-02")["text"]
    found = texts("sentences", text, size=1, overlap=0, unit="sentences")
    assert found == ["“今天关门早。”", "店主说完就走了。", "「明天见！」", "她挥手。", "（门没锁。）", "屋里很静。"]
    assert all(one.count(left) == one.count(right) for one in found for left, right in PAIRS)


def test_zh_04_sentences_end_at_chinese_marks() -> None:
    text = case_input("ZH-04")["texts"][0]
    found = texts("sentences", text, size=1, overlap=0, unit="sentences")
    assert found == ["一号门已关。", "二号门已关！", "三号门呢？", "也关了；四号门没有。", "完毕。"]


@pytest.mark.parametrize("name", ["sentences", "semantic", "recursive", "tokens", "structure", "fixed"])
def test_zh_04_text_without_marks_stays_within_the_budget(name: str) -> None:
    text = "春夏秋冬" * 750
    options = {} if name in ("semantic", "structure") else {"overlap": 0}
    found = texts(name, text, 200, **options)
    assert all(TOKENS.count(one) <= 200 and "\ufffd" not in one for one in found)
    assert "".join(found) == text


def test_zh_05_a_reference_begins_no_clause_and_no_heading_stands_alone() -> None:
    document = document_of(case_input("ZH-05")["text"])
    for limit in (24, 30, 400):
        found = [one.span.of(document.text) for one in passages("structure", document, limit, walls=6)]
        assert not any(one in ("7.2.1 总则", "7.2.2 外壳") for one in found)
    whole = passages("structure", document, 400, walls=6)
    by_clause = {one.clause: one.span.of(document.text) for one in whole}
    assert set(by_clause) == {"7.2.1", "7.2.2"}
    assert "7.2.2的要求" in by_clause["7.2.1"]
    assert "7.2.3的检查" in by_clause["7.2.1"]
    assert "3.5mm" in by_clause["7.2.2"]


def test_zh_06_each_chunk_is_one_stretch_of_its_article() -> None:
    document = document_of(case_input("ZH-06")["text"])
    found = passages("structure", document, 40)
    assert [one.clause for one in found] == ["第十条", "第十条之一"]
    assert [one.span for one in found] == sorted(one.span for one in found)
    assert any(one.clause == "第十条" and "第二十一条" in one.span.of(document.text) for one in found)


def test_zh_09_counted_rounds_are_no_chapters() -> None:
    document = document_of(case_input("ZH-09")["text"])
    found = passages("chapters", document, min_chapter=0, overlap=False)
    assert [one.heading_path for one in found] == [("第一回 开局",), ("第二回 收官再见旧人",)]
    assert "第三回合" in found[0].span.of(document.text)
    assert "第五回合" in found[0].span.of(document.text)


def test_zh_09_the_tail_of_a_chapter_and_the_head_of_the_next_are_a_chunk_of_their_own() -> None:
    document = document_of(case_input("ZH-09")["text"])
    [bridge] = [one for one in passages("chapters", document, min_chapter=0) if one.role == "context"]
    assert bridge.overlap is not None
    assert (bridge.overlap.kind, bridge.overlap.weight) == ("CHAPTER_TAIL", 0.6)
    assert dict(bridge.overlap.details) == {"from": "第一回 开局", "to": "第二回 收官再见旧人"}
    assert bridge.span.of(document.text).split() == ["第五回合时众人散去。", "第二回", "收官再见旧人", "到此为止。"]


def test_zh_12_both_scripts_are_kept_as_they_are() -> None:
    document = document_of(case_input("ZH-12")["text"])
    found = passages("structure", document, 30)
    said = "".join(one.span.of(document.text) for one in found)
    assert all(character in said for character in "條節總")
    assert {one.clause for one in found} <= {"第十條", "第十一条"}
    assert all(one.heading_path == ("第一節 總則",) for one in found)
