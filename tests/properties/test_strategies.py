"""Laws of every strategy, for any document and any options: nothing lost, nothing twice, nothing too large, nothing parted."""

from __future__ import annotations

import hashlib
import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import regex
from hypothesis import assume, given
from hypothesis import settings as hypothesis_settings
from hypothesis import strategies as st

from chunking.document import Document
from chunking.graphemes import LONGEST
from chunking.parsers import media_type_of, parse_document
from chunking.passage import Passage, Role
from chunking.strategies import STRATEGIES
from chunking.strategies.base import Budget
from chunking.strategies.visible import is_blank, is_worthless
from chunking.tally import Plain, Tally
from chunking.tokens import TokenCounter, counter
from tests.support.texts import is_text

ROOT = Path(__file__).resolve().parents[2]
CORPUS = ROOT / "../shared/corpus"
TOKENS = counter("cl100k_base")
FAMILY = "\U0001f468\u200d\U0001f469\u200d\U0001f467\u200d\U0001f466"
FRAGMENTS = [
    "# Title",
    "## Part two",
    "### 第三节 巡查",
    "##### deep",
    "##",
    "第一章 总则",
    "第十条　值班员每两小时巡查一次。发现异常的，应当立即报告；情况紧急的，可以先行处置，再补办手续。",
    "违反第十条规定的，按第二十一条处理。",
    "（一）警告；\n（二）罚款；\n（三）责令停业。",
    "有下列情形之一的：",
    "- **Lamp**: two cells.\n- Rope\n  - thin `4 mm`\n  - thick 9 mm\n- Tent",
    "Bring these things:",
    "1. one\n2. two\n\n   more of two\n3. three",
    "| Day | Team |\n|---|---|\n| Mon | A |\n| Tue | B with a rather long name, indeed |\n| Wed | C |",
    "| 区域 | 预计时效 |\n|---|---|\n| 华东 | 两天 |\n| 西南 | 五到七天，遇雪顺延 |",
    "```py\ndef f():\n    x = 1\n\n    return x\n```",
    "> quoted words\n> and more",
    "Dr. Smith paid $3.50 to J. Doe, e.g. for tea... and left. He said “Go.” Then nothing; nothing at all, ever.",
    "“今天关门早。”店主说完就走了。「明天见！」她挥手。（门没锁。）屋里很静……",
    "Write <|endoftext|> and <|im_start|> literally.",
    f"ab{FAMILY}cd🇨🇳🇫🇷ef👍🏽gh café क्षि ก็ํา",
    "e\u0301" * 40,
    "🇨🇳" * 30,
    "龘" * 90,
    "a" * 400,
    "(" * 120 + ")." * 60,
    "---",
    "\u200b",
    "　　次日，他出门去了。",
    "诗曰：\n床前明月光，\n疑是地上霜。",
    "x" + " " * 300 + "y",
    "한국어 문장입니다. 다음 문장도 있습니다.",
    "一二三四五六七八九十，" * 12,
]
MEDIA = ["text/markdown", "text/plain"]


@st.composite
def documents(draw: st.DrawFn) -> Document:
    parts = draw(st.lists(st.sampled_from(FRAGMENTS) | st.text(max_size=30), max_size=12))
    joint = draw(st.sampled_from(["\n\n", "\n", "\n\n\n"]))
    text = joint.join(parts)
    assume(is_text(text))
    return parse_document(text, draw(st.sampled_from(MEDIA)))


def windows(largest: int) -> st.SearchStrategy[dict[str, Any]]:
    return st.integers(2, largest).flatmap(
        lambda size: st.fixed_dictionaries({"size": st.just(size), "overlap": st.integers(0, size - 1)})
    )


def with_extras(base: st.SearchStrategy[dict[str, Any]], **extras: st.SearchStrategy[Any]) -> st.SearchStrategy[dict[str, Any]]:
    return st.tuples(base, st.fixed_dictionaries({}, optional=extras)).map(lambda pair: {**pair[0], **pair[1]})


NOTHING: st.SearchStrategy[dict[str, Any]] = st.just({})
UNITS = st.sampled_from(["characters", "tokens"])
PACKINGS = st.sampled_from(["greedy", "strength"])
OPTIONS: dict[str, st.SearchStrategy[dict[str, Any]]] = {
    "structure": with_extras(
        NOTHING, size=st.integers(60, 300), walls=st.integers(0, 6), packing=PACKINGS, tables=st.sampled_from(["rows", "sentences"])
    ),
    "chapters": with_extras(NOTHING, size=st.integers(60, 300), overlap=st.booleans(), min_chapter=st.integers(0, 100)),
    "recursive": with_extras(windows(200), unit=UNITS, packing=PACKINGS, separators=st.sampled_from(["zh", "en", "mixed"])),
    "tokens": NOTHING | windows(100),
    "parent_child": st.fixed_dictionaries(
        {
            "child_size": st.integers(90, 110),
            "parent_size": st.integers(110, 300),
            "overlap": st.integers(0, 29),
            "above": st.integers(0, 200),
        }
    ),
    "sentences": with_extras(windows(200), unit=st.sampled_from(["characters", "tokens", "sentences"]), packing=PACKINGS),
    "semantic": with_extras(
        NOTHING,
        size=st.integers(1, 400),
        threshold=st.sampled_from(["percentile", "gradient", "fixed"]),
        amount=st.floats(0, 1),
        buffer=st.integers(0, 2),
    ),
    "fixed": with_extras(windows(200), unit=UNITS),
}


def cut(name: str, document: Document, options: dict[str, Any], limit: int, by: TokenCounter = TOKENS) -> list[Passage]:
    strategy = STRATEGIES[name]
    return strategy.cut(document, strategy.options(**options), Budget(by, limit))


def said(passage: Passage, document: Document) -> str:
    body = passage.rendering if passage.rendering is not None else passage.span.of(document.text)
    return passage.repeat + body


_CONTROLS = regex.compile(r"\p{Cc}")
"""What Python takes for a blank (U+001F) or not (U+0001), and nobody sees: either may stand outside of all passages."""


def assert_lawful(passages: list[Passage], document: Document, limit: int) -> None:
    text = document.text
    position = 0
    for place, passage in enumerate(passages):
        assert not is_blank(passage.span.of(text))
        if passage.role is not Role.PARENT:
            assert TOKENS.count(said(passage, document)) <= limit
        if passage.parent is not None:
            parent = passages[passage.parent]
            assert parent.role is Role.PARENT
            assert passage.parent < place
            assert parent.span.start <= passage.span.start <= passage.span.end <= parent.span.end
        assert (passage.repeat == "") == (passage.overlap is None) or passage.role is Role.CONTEXT
        if passage.role is Role.BODY:
            assert passage.span.start >= position
            gap = text[position : passage.span.start]
            assert is_worthless(_CONTROLS.sub("", gap)), f"lost {gap!r}"
            position = passage.span.end
    assert is_worthless(_CONTROLS.sub("", text[position:])), f"lost {text[position:]!r}"


def assert_whole_clusters(passages: list[Passage], document: Document, limit: int) -> None:
    """A cut may stand in a cluster only where the cluster alone is over the limit or too long to be writing."""
    inside: dict[int, str] = {}
    for cluster in regex.finditer(r"\X", document.text):
        inside.update(dict.fromkeys(range(cluster.start() + 1, cluster.end()), cluster.group()))
    for passage in passages:
        for edge in (passage.span.start, passage.span.end):
            cluster = inside.get(edge, "")
            excused = len(cluster) > LONGEST or TOKENS.count(cluster) > limit // 3 or cluster.isspace()
            # Blanks with marks on them at an end are left out with the blanks.
            assert not cluster or excused or cluster[0].isspace(), f"parted {cluster!r}"


@pytest.mark.parametrize("name", sorted(STRATEGIES))
@hypothesis_settings(max_examples=120, deadline=None)
@given(data=st.data())
def test_nothing_is_lost_twice_blank_parted_or_over_the_limit(name: str, data: st.DataObject) -> None:
    document = data.draw(documents())
    options = data.draw(OPTIONS[name])
    limit = data.draw(st.integers(60, 400))
    passages = cut(name, document, options, limit)
    assert_lawful(passages, document, limit)
    assert_whole_clusters(passages, document, limit)


@pytest.mark.parametrize("name", sorted(STRATEGIES))
@hypothesis_settings(max_examples=40, deadline=None)
@given(parts=st.lists(st.sampled_from(FRAGMENTS), max_size=8), media=st.sampled_from(MEDIA))
def test_line_ends_make_no_difference(name: str, parts: list[str], media: str) -> None:
    source = "\n\n".join(parts)
    texts = []
    for ends in ("\n", "\r\n", "\r"):
        document = parse_document(source.replace("\n", ends), media)
        texts.append([said(passage, document) for passage in cut(name, document, {}, 100)])
    assert texts[0] == texts[1] == texts[2]


SECTIONS = st.lists(st.sampled_from([f for f in FRAGMENTS if not f.startswith(("# ", "##", "第一章"))]), min_size=1, max_size=5)


@pytest.mark.parametrize("name", ["structure", "chapters", "parent_child"])
@hypothesis_settings(max_examples=60, deadline=None)
@given(sections=st.lists(SECTIONS, min_size=2, max_size=4), new=SECTIONS, data=st.data())
def test_an_edit_in_one_section_changes_no_chunk_of_another(
    name: str, sections: list[list[str]], new: list[str], data: st.DataObject
) -> None:
    edited = data.draw(st.integers(0, len(sections) - 1))
    options: dict[str, Any] = {"chapters": {"min_chapter": 0, "overlap": False}, "parent_child": {"above": 0}}.get(name, {})

    def by_section(contents: list[list[str]]) -> list[list[str]]:
        pages = [f"## Section {number}\n\nWords of it.\n\n" + "\n\n".join(parts) for number, parts in enumerate(contents)]
        document = parse_document("\n\n".join(pages), "text/markdown")
        found: list[list[str]] = [[] for _ in contents]
        for passage in cut(name, document, options, 80):
            found[int(passage.heading_path[0].removeprefix("Section "))].append(said(passage, document))
        return found

    before = by_section(sections)
    after = by_section([new if number == edited else parts for number, parts in enumerate(sections)])
    for number in range(len(sections)):
        if number != edited:
            assert before[number] == after[number]


class Metered:
    """A counter that adds up the characters it was given: the steps of a strategy."""

    name = "metered"

    def __init__(self) -> None:
        self.steps = 0

    def count(self, text: str) -> int:
        self.steps += len(text) + 1
        return TOKENS.count(text)

    def count_many(self, texts: list[str]) -> list[int]:
        return [self.count(text) for text in texts]

    def tally(self, text: str) -> Tally:
        return Plain(text, self.count)


HARD: dict[str, Callable[[int], str]] = {
    "one letter": lambda n: "a" * n,
    "one mark": lambda n: "^" * n,
    "no marks": lambda n: "春夏秋冬" * (n // 4),
    "one line": lambda n: "今天天气很好。" * (n // 7),
    "quotes": lambda n: "“" * (n // 2) + "”" * (n // 2),
    "brackets": lambda n: "(" * (n // 2) + ")." * (n // 4),
    "deep list": lambda n: "".join("  " * (i % 60) + f"- item {i}\n" for i in range(n // 70)),
    "deep quote": lambda n: "> " * (n // 4) + "end\n" + "> more\n" * (n // 14),
    "headings": lambda n: "# a\n" * (n // 4),
    "flags": lambda n: "🇨🇳" * (n // 2),
    "joined": lambda n: "👨\u200d" * (n // 2),
    "marks on one letter": lambda n: "a" + "\u0301" * n,
    "blanks": lambda n: "x" + " " * n + "y",
    "one table": lambda n: "| a | b |\n|---|---|\n" + "".join(f"| {i} | 名称 |\n" for i in range(n // 12)),
    "one fence": lambda n: "```\n" + "value = compute(value, 1)\n" * (n // 26) + "```\n",
}


@pytest.mark.parametrize("name", sorted(STRATEGIES))
@pytest.mark.parametrize("shape", sorted(HARD))
def test_steps_grow_with_the_text_and_no_faster(name: str, shape: str) -> None:
    steps = []
    for size in (10_000, 20_000):
        document = parse_document(HARD[shape](size), "text/plain" if shape == "blanks" else "text/markdown")
        meter = Metered()
        passages = cut(name, document, {}, 400, meter)
        assert_lawful(passages, document, 400)
        steps.append(meter.steps)
    assert steps[1] <= 2.6 * steps[0] + 20_000
    assert steps[1] <= 14 * 20_000


SAMPLE = "\n\n".join(FRAGMENTS * 3)


def digest_of_all() -> str:
    """Return a digest over the passages of every strategy on one document."""
    digest = hashlib.sha256()
    document = parse_document(SAMPLE, "text/markdown")
    for name in sorted(STRATEGIES):
        for passage in cut(name, document, {}, 120):
            digest.update(repr((name, passage.span, passage.repeat, passage.heading_path, passage.boundary)).encode())
    return digest.hexdigest()


def test_another_process_with_another_hash_seed_cuts_the_same() -> None:
    seen = {digest_of_all()}
    for seed in ("1", "4242"):
        script = "from tests.properties.test_strategies import digest_of_all; print(digest_of_all())"
        environment = {**os.environ, "PYTHONHASHSEED": seed, "PYTHONPATH": str(ROOT)}
        run = subprocess.run([sys.executable, "-c", script], env=environment, capture_output=True, text=True, check=True)
        seen.add(run.stdout.strip())
    assert len(seen) == 1


def corpus_files() -> Iterator[Path]:
    if CORPUS.is_dir():
        yield from sorted(path for path in CORPUS.rglob("*") if path.suffix in (".md", ".txt"))[::6]


@pytest.mark.skipif(not CORPUS.is_dir(), reason="the shared corpus is not beside this checkout")
@pytest.mark.parametrize("name", sorted(STRATEGIES))
@pytest.mark.parametrize("limit", [60, 500])
def test_the_laws_hold_on_the_corpus(name: str, limit: int) -> None:
    for path in corpus_files():
        document = parse_document(path.read_bytes()[:60_000].decode("utf-8", "ignore"), media_type_of(path))
        assert_lawful(cut(name, document, {}, limit), document, limit)
