"""A child repeats the end of the one before it where the text goes on, and not where something begins anew."""

from __future__ import annotations

import pytest

from chunking.parsers import parse_document
from chunking.passage import Passage
from chunking.strategies import STRATEGIES
from chunking.strategies.base import Budget
from chunking.tokens import counter

SENTENCE = "The keeper looks after the lamp in the night. "
PARAGRAPH = SENTENCE * 6


def children(text: str) -> list[Passage]:
    strategy = STRATEGIES["parent_child"]
    options = strategy.options(child_size=100, parent_size=600, overlap=30, above=0, walls=1)
    found = strategy.cut(parse_document(text, "text/markdown"), options, Budget(counter("cl100k_base"), 100))
    return [passage for passage in found if passage.parent is not None]


def test_a_paragraph_that_goes_on_has_the_end_of_the_one_before() -> None:
    first, *others = children("\n\n".join([PARAGRAPH] * 4))
    assert first.repeat == ""
    assert len(others) >= 3
    assert all(child.repeat.endswith("in the night.\n\n") for child in others)


@pytest.mark.parametrize(
    "beginning",
    [
        pytest.param("## The lamp\n\n", id="a-heading"),
        pytest.param("#### The lamp\n\n", id="a-small-heading"),
        pytest.param("第三条　值班员应当看守灯塔。", id="a-clause"),
    ],
)
def test_what_begins_anew_has_none(beginning: str) -> None:
    found = children("\n\n".join([PARAGRAPH, beginning + PARAGRAPH, beginning.replace("三", "四") + PARAGRAPH]))
    opening = [child for child in found if child.span.start and child.boundary.split(":")[1].startswith(("heading", "clause"))]
    assert len(opening) >= 2
    assert all(child.repeat == "" for child in opening)
