"""The HTML page: complete, well formed, self-contained, and no text of a document becomes markup."""

from __future__ import annotations

import re
from xml.etree import ElementTree

from streams.evaluation.golden import Expectation, Golden, GoldenQuestion
from streams.evaluation.page import page
from streams.evaluation.plots import bars, steps
from streams.evaluation.results import Answer, Evaluation, Judged, Sizes

NASTY = "<script>alert('x')</script> & \"quotes\""


def answer(line: int, rank: int | None, text: str = "evidence") -> Answer:
    question = GoldenQuestion(
        question=f"{NASTY} {line}", tenant="t", expected=(Expectation(document="d", fragment=NASTY),), line=line
    )
    hits = tuple(
        Judged(number, 1 / number, "chk", "d", 1, (NASTY,), "", text, (0,) if number == rank else (), 1, 2)
        for number in range(1, 4)
    )
    return Answer(question, hits, None)


def made(name: str, ranks: list[int | None]) -> Evaluation:
    answers = tuple(answer(line, rank, NASTY) for line, rank in enumerate(ranks, start=1))
    return Evaluation(name, "kb", "dense", (1, 3), answers, Sizes((5, 80, 120, 399)))


def test_nothing_of_a_document_becomes_markup_and_nothing_is_fetched() -> None:
    evaluations = [made(f"one {NASTY}", [1, None, 2]), made("two", [3, 1, 1])]
    text = page(Golden(tuple(each.question for each in evaluations[0].answers), NASTY), evaluations)
    assert "<script" not in text
    assert not re.search(r"""(src|href)\s*=|url\(|@import|https?://""", text)
    assert "prefers-color-scheme: dark" in text
    body = text[text.index("<body>") : text.index("</html>")]
    ElementTree.fromstring(body.replace("&emsp;", " "))  # every tag is closed in order


def test_what_rose_fell_and_was_not_found_is_told() -> None:
    evaluations = [made("before", [1, None, 2]), made("after", [3, 1, 2])]
    text = page(Golden(tuple(each.question for each in evaluations[0].answers)), evaluations)
    assert "1 fell" in text
    assert "1 rose" in text
    assert "rank not found, line 2" in text
    assert page(Golden((made("a", [1]).answers[0].question,)), [made("a", [1])]).count("rank 1, line 1") == 0


def test_a_bar_is_as_high_as_its_share() -> None:
    root = ElementTree.fromstring(bars("t", ["a", "b"], [("one", [0.0, 1.0]), ("two", [0.5, 0.25])]))
    heights = [float(bar.attrib["height"]) for bar in root.iter("rect")]
    full = max(heights)
    assert [round(height / full, 2) for height in heights] == [0, 0.5, 1, 0.25]


def test_a_histogram_has_a_step_for_every_bin_up_to_the_largest_value() -> None:
    root = ElementTree.fromstring(steps("t", "tokens", [("one", [1, 1, 1, 99]), ("none", [])], bins=10))
    first, second = root.iter("path")
    assert first.attrib["d"].count("L") == 2 * 10 + 1
    assert {title.text for title in root.iter("title")} == {"one", "none"}
    assert "nan" not in second.attrib["d"]
