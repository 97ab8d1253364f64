"""Clause rules: what begins a part of a text, and what only speaks of one."""

from __future__ import annotations

import pytest

from chunking.clauses import RULES, ClauseRule, Marks, number_of, rule_set

BEGINS = {
    "第十条　值班员每两小时巡查一次。": ("article", "第十条"),
    "第十条之一　夜间加倍。": ("article", "第十条之一"),
    "第一千二百六十条 本法所称": ("article", "第一千二百六十条"),
    "第十條　值班人員": ("article", "第十條"),
    "第 十 条 内容": ("article", "第十条"),
    "第一条为了加强管理，制定本法。": ("article", "第一条"),
    "第一条：目的": ("article", "第一条"),
    "**第十条** 值班员巡查。": ("article", "第十条"),
    "第三章 总则": ("chapter", "第三章"),
    "第三章总则": ("chapter", "第三章"),
    "第一節　總則": ("section", "第一節"),
    "第二编 物权": ("part", "第二编"),
    "第一部分 概述": ("division", "第一部分"),
    "卷一": ("volume", "卷一"),
    "第二卷 风起": ("volume", "第二卷"),
    "　　第一百二十回  甄士隐详说太虚情": ("episode", "第一百二十回"),
    "楔子": ("frame", "楔子"),
    "序": ("frame", "序"),
    "引子 雪夜": ("frame", "引子"),
    "尾声": ("frame", "尾声"),
    "番外三 夏天": ("frame", "番外三"),
    "附录A 术语": ("frame", "附录A"),
    "一、指导思想": ("head", "一、"),
    "3.2.1 外壳": ("decimal", "3.2.1"),
    "3.2.1 Scope of use": ("decimal", "3.2.1"),
    "1 总则": ("integer", "1"),
    "（一）下列情形；": ("paren_zh", "（一）"),
    "(1) first": ("paren", "(1)"),
    "① 甲": ("circled", "①"),
    "2、乙": ("counted", "2、"),
    "Article 5 The Council shall meet.": ("article_en", "Article 5"),
    "Section 3.2: Scope": ("article_en", "Section 3.2"),
    "Chapter 1. Loomings": ("chapter_en", "Chapter 1"),
    "CHAPTER XII": ("chapter_en", "CHAPTER XII"),
    "Chapter Twenty-One": ("chapter_en", "Chapter Twenty-One"),
    "PART ONE": ("part_en", "PART ONE"),
    "§ 5 Zweck": ("sign", "§5"),
    "IV. Methods": ("roman", "IV."),
    "Epilogue": ("frame_en", "Epilogue"),
}

SPEAKS_OF = [
    "违反第十条规定的，按第二十一条处理。",
    "第十条规定的情形，按前款处理。",
    "第十条、第十一条的规定适用。",
    "第十条第二款所称的人员",
    "第十条之规定",
    "第十条 规定的处罚",
    "第三章规定了若干内容",
    "第三章 规定了程序，见下。",
    "比赛打到第三回合，他认输了。",
    "第三回合",
    "第五回合时众人散去。",
    "第三回 他认输了。",
    "三百回合",
    "第二封信",
    "第三卷轴藏在塔里",
    "第二部门负责人",
    "第一节课上，老师来了。",
    "序幕拉开了",
    "尾声渐起，灯灭了。",
    "7.2.2的要求适用于外壳。",
    "7.2.3的检查应按5.1 b)项进行。",
    "3.5mm",
    "3.5 mm 厚的板",
    "2.5 million people live here",
    "1.2.3.4.5.6.7.8",
    "10 月 1 日",
    "3 个苹果",
    "2026 年",
    "（一）项规定的情形",
    "（一）、（二）项",
    "三、四月间",
    "10、20个",
    "Article 5 of the Treaty applies.",
    "Section 5 applies to all.",
    "Chapter and verse",
    "Part of it",
    "I am here",
]


@pytest.mark.parametrize(("line", "expected"), BEGINS.items(), ids=BEGINS.keys())
def test_a_line_that_begins_a_part(line: str, expected: tuple[str, str]) -> None:
    mark = rule_set().match(line)
    assert mark is not None
    assert (mark.rule.name, mark.text) == expected


@pytest.mark.parametrize("line", SPEAKS_OF)
def test_a_line_that_only_speaks_of_a_part(line: str) -> None:
    assert rule_set().match(line) is None


def test_every_rule_has_a_line_that_it_decides() -> None:
    assert {rule.name for rule in RULES} - {name for name, _ in BEGINS.values()} == {"subsection"}
    mark = rule_set().match("第二目 通则")
    assert mark is not None
    assert mark.rule.name == "subsection"


@pytest.mark.parametrize(
    ("mark", "number"),
    [
        ("第一千二百六十条", 1260),
        ("第十条之一", 10),
        ("第〇八回", 8),
        ("第一二〇回", 120),
        ("第一百零五章", 105),
        ("第两百章", 200),
        ("第二十章", 20),
        ("第一万零三条", 10_003),
        ("第３２条", 32),
        ("3.2.1", 3),
        ("CHAPTER XIV", 14),
        ("楔子", None),
    ],
)
def test_numerals_have_values(mark: str, number: int | None) -> None:
    assert number_of(mark) == number


def test_a_policy_may_add_rules() -> None:
    rule = ClauseRule("rule_zh", "规则[一二三]", "规", 50, Marks.CLAUSE, needs_blank=True)
    mark = rule_set((rule,)).match("规则二 不得吸烟。")
    assert mark is not None
    assert (mark.rule.name, mark.clause) == ("rule_zh", "规则二")


def test_chapters_rank_above_sections_above_articles_above_items() -> None:
    lines = ["第一编 a", "第一章 a", "第一节 a", "第一条 a", "（一）a", "1. a", "(1) a", "① a"]
    ranks = [mark.rank for line in lines if (mark := rule_set().match(line)) is not None]
    assert len(ranks) == len(lines)
    assert ranks == sorted(set(ranks))
