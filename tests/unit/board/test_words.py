"""Every word of the page is in both languages, and every word that is used is there."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

from streams.batches import gate
from streams.board.troubles import KINDS

PAGE = Path(gate.__file__).parents[1] / "board/page"
WORDS: dict[str, dict[str, str]] = json.loads((PAGE / "words.json").read_text(encoding="utf-8"))
SCRIPT = (PAGE / "board.js").read_text(encoding="utf-8")
HTML = (PAGE / "index.html").read_text(encoding="utf-8")
CHINESE = re.compile("[\u4e00-\u9fff]")
PLACE = re.compile(r"\{(\w+)\}")


@pytest.mark.parametrize("key", sorted(WORDS))
def test_a_word_is_in_both_languages_with_the_same_facts(key: str) -> None:
    word = WORDS[key]
    assert word.keys() == {"en", "zh"}
    assert all(text.strip() for text in word.values())
    assert set(PLACE.findall(word["en"])) == set(PLACE.findall(word["zh"]))
    bare = PLACE.sub("", word["zh"]).strip()
    switches = ("language.label", "language.switch")
    if key not in switches and re.search("[A-Za-z]{2}", bare):
        assert CHINESE.search(bare), "is still English"


def test_every_word_that_the_page_asks_for_is_there() -> None:
    asked = set(re.findall(r'data-[wa]="([^"]+)"', HTML))
    asked |= set(re.findall(r'say\(\s*"([^"]+)"', SCRIPT)) | set(re.findall(r'ticking\([^,]+, "([^"]+)"\)', SCRIPT)) - {"age"}
    asked |= set(re.findall(r'"((?:tile|lag|worst|letters|tenants|why|done|hour|state|letter)\.[a-z.]+)"', SCRIPT))
    assert asked - WORDS.keys() == set()
    assert len(asked) > 60


def test_every_red_state_has_its_cause_and_its_action() -> None:
    for kind in KINDS:
        assert {f"trouble.{kind}", f"trouble.{kind}.do"} <= WORDS.keys()
    named = {key.split(".")[1] for key in WORDS if key.startswith("trouble.")}
    assert named == KINDS.keys()


def test_every_line_of_the_gate_has_a_name() -> None:
    source = Path(gate.__file__).read_text(encoding="utf-8")
    names = set(re.findall(r'Line\(\s*"([a-z -]+)"', source))
    assert len(names) >= 9
    assert {f"gate.{name}" for name in names} <= WORDS.keys()


def test_nothing_of_the_page_comes_from_elsewhere_or_is_made_of_markup() -> None:
    """No address but our own, no markup from text, no script or style within the page (its rules would refuse them as well)."""
    styles = (PAGE / "board.css").read_text(encoding="utf-8")
    outside = re.findall(r"https?://[^\s\"')]+", HTML + SCRIPT + styles)
    assert set(outside) <= {"http://www.w3.org/2000/svg"}
    for word in ("innerHTML", "outerHTML", "insertAdjacentHTML", "document.write", "eval(", "new Function"):
        assert word not in SCRIPT
    assert not re.search(r"<script(?![^>]*\bsrc=)|<style|\sstyle=|\son[a-z]+=", HTML)
    assert not re.search(r"[\u4e00-\u9fff]", SCRIPT), "words stand in words.json"
