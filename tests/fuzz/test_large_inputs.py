"""Large and hostile documents: in the parse sandbox a document or a named error, and work that grows with the size only."""

from __future__ import annotations

import sys
from collections.abc import Callable
from contextlib import suppress
from types import FrameType
from typing import Any

import pytest

from chunking.chunker import Provenance, TooManyChunks, chunk
from chunking.document import DocumentKey
from chunking.parsers import UnreadableMarkup, parse_document
from chunking.policy import ChunkPolicy
from chunking.tokens import counter
from streams.errors import PoisonRecord
from streams.sandbox import ParsePool
from streams.settings import ParserSettings

HTML, MARKDOWN, PLAIN = "text/html", "text/markdown", "text/plain"
Made = Callable[[int], str]
"""A document of about so many characters; a table with spans becomes so many, as merged cells are told in each row and column."""

HOSTILE: dict[str, tuple[str, Made]] = {
    "deep-divs": (HTML, lambda n: "<div>" * (n // 5) + "x"),
    "deep-lists": (HTML, lambda n: "<ul><li>" * (n // 8) + "x"),
    "deep-tables": (HTML, lambda n: "<table><tr><td>" * (n // 15) + "x"),
    "deep-inline": (HTML, lambda n: "<b><i>" * (n // 6) + "x"),
    "deep-blockquotes": (HTML, lambda n: "<blockquote>" * (n // 12) + "x"),
    "deep-closed": (HTML, lambda n: "<div>" * (n // 11) + "x" + "</div>" * (n // 11)),
    "a-huge-table": (HTML, lambda n: "<table>" + "<tr><td>1<td>二<td>3" * (n // 20) + "</table>"),
    "rowspans": (HTML, lambda n: "<table>" + "<tr><td rowspan=100000>a<td>b" * (n // 900) + "</table>"),
    "colspans": (HTML, lambda n: "<table>" + "<tr><td colspan=100000>a<td>b" * (n // 2000) + "</table>"),
    "both-spans": (HTML, lambda n: "<table>" + "<tr><td rowspan=100000 colspan=1000>a" * (n // 2000) + "</table>"),
    "many-attributes": (HTML, lambda n: "<p " + " ".join(f"a{i}=b" for i in range(n // 8)) + ">x"),
    "one-long-attribute": (HTML, lambda n: f"<p title='{'x' * n}'>x"),
    "entities": (HTML, lambda n: "&amp;&lt;&#x4e2d;&zwj;" * (n // 21)),
    "unclosed-comments": (HTML, lambda n: "<!-- " * (n // 5)),
    "open-brackets": (HTML, lambda n: "<" * n),
    "an-entity-bomb": (
        "application/xhtml+xml",
        lambda n: (
            "<!DOCTYPE x ["
            + "".join(f"<!ENTITY e{i} '{f'&e{i - 1};' * 10 if i else 'x' * 10}'>" for i in range(12))
            + "]><html><body><p>&e11;</p></body></html>"
            + " " * n
        ),
    ),
    "an-outside-entity": (
        "application/xhtml+xml",
        lambda n: "<!DOCTYPE x [<!ENTITY e SYSTEM 'file:///etc/passwd'>]><html><body><p>&e;</p></body></html>" + " " * n,
    ),
    "nested-quotes": (MARKDOWN, lambda n: ">" * n + " x"),
    "nested-lists": (MARKDOWN, lambda n: "\n".join("  " * depth + "- x" for depth in range(int(n**0.5)))),
    "dashes-in-a-row": (MARKDOWN, lambda n: "- " * (n // 2) + "x"),
    "brackets": (MARKDOWN, lambda n: "[" * n),
    "links-in-links": (MARKDOWN, lambda n: "[a](" * (n // 4)),
    "emphasis": (MARKDOWN, lambda n: "*a_ " * (n // 4)),
    "backticks": (MARKDOWN, lambda n: "".join("`" * (i % 50 + 1) + "a" for i in range(n // 26))),
    "a-wide-table": (MARKDOWN, lambda n: "|a" * (n // 5) + "|\n" + "|-" * (n // 5) + "|\n" + "|b" * 100),
    "a-long-table": (MARKDOWN, lambda n: "|a|b|\n|-|-|\n" + "| 1 | 二 |\n" * (n // 10)),
    "references": (MARKDOWN, lambda n: "".join(f"[a{i}]: b\n" for i in range(n // 10))),
    "footnotes": (MARKDOWN, lambda n: "".join(f"[^{i}]: b\n" for i in range(n // 10)) + "".join(f"[^{i}]" for i in range(n // 10))),
    "html-in-markdown": (MARKDOWN, lambda n: "<div>\n" * (n // 6)),
    "headings": (MARKDOWN, lambda n: "# a\n" * (n // 4)),
    "fences": (MARKDOWN, lambda n: "```\n" * (n // 4)),
    "front-matter": (MARKDOWN, lambda n: "---\na: &a [x]\nb: [" + "*a, " * (n // 4) + "]\n---\nx"),
    "blank-lines": (PLAIN, lambda n: "\n" * n),
    "one-line": (PLAIN, lambda n: "中" * n),
    "marks": (PLAIN, lambda n: "e" + "\u0301\u0323" * (n // 2)),
    "zero-width": (PLAIN, lambda n: "a\u200b\u200c\u2060" * (n // 4)),
    "joiners": (PLAIN, lambda n: "\u200d" * n + "a"),
    "bidi": (PLAIN, lambda n: "\u202ea\u2066b\u2069" * (n // 5)),
    "emoji": (PLAIN, lambda n: "👩‍👩‍👧‍👦" * (n // 7)),
    "clauses": (PLAIN, lambda n: "".join(f"第{i}条 x。\n" for i in range(n // 8))),
    "numbers": (PLAIN, lambda n: "1." * (n // 2) + " x"),
    "dots": (PLAIN, lambda n: "第一章 x " + "." * n + " 3\n"),
    "spaces": (PLAIN, lambda n: "a" + " " * n + "b\n" + "\u3000" * n),
}
SMALL, LARGE = 3_000, 24_000
GROWTH = 2.0
"""Lines of Python a character at the large size, at most, as a multiple of those at the small one: 8 would be quadratic."""
DENSE_LINES = 20.0
"""Lines a character that the densest of these inputs cost. Below it the ratio says little: it may start from nearly nothing."""
TIME_LIMIT_ONLY = {"many-attributes"}
"""The HTML library compares each attribute of a tag with all before it: 125,000 in one tag are left to the time limit."""


@pytest.fixture(scope="module")
def policies() -> list[ChunkPolicy]:
    rules = {"name": "fuzz", "version": 1, "limits": {"max_tokens": 120, "tokenizer": "characters"}}
    return [
        ChunkPolicy.model_validate({**rules, "rules": [{"use": name}]})
        for name in ("structure", "parent_child", "recursive", "sentences")
    ]


class Lines:
    """Counts the lines of `chunking` that are run: the same number on every machine, however busy it is."""

    def __init__(self) -> None:
        self.run = 0

    def __enter__(self) -> Lines:
        self._before = sys.gettrace()
        sys.settrace(self._call)
        return self

    def __exit__(self, *_: object) -> None:
        sys.settrace(self._before)

    def _call(self, frame: FrameType, event: str, argument: object) -> Callable[..., Any] | None:
        return self._line if "/chunking/" in frame.f_code.co_filename else None

    def _line(self, frame: FrameType, event: str, argument: object) -> Callable[..., Any]:
        self.run += 1
        return self._line


def _lines_a_character(media_type: str, text: str, policies: list[ChunkPolicy]) -> dict[str, float]:
    """Return the lines run by the parser and by each strategy, a character of the source and of what was made of it."""
    lines: dict[str, Lines] = {"parse": Lines()}
    try:
        with lines["parse"]:
            document = parse_document(text, media_type)
    except (UnreadableMarkup, RecursionError):
        return {"parse": lines["parse"].run / len(text)}
    for policy in policies:
        with suppress(TooManyChunks), lines.setdefault(policy.rules[0].use, Lines()):
            chunk(document, Provenance(DocumentKey("t", "d"), 1), policy, counter("characters"))
    return {part: counted.run / (len(text) + len(document.text)) for part, counted in lines.items()}


@pytest.mark.parametrize("name", sorted(HOSTILE.keys() - TIME_LIMIT_ONLY))
def test_work_grows_with_the_size_and_not_with_its_square(name: str, policies: list[ChunkPolicy]) -> None:
    """Counted in lines of our own Python; what libraries in C do is left to the limits of the sandbox, below."""
    media_type, made = HOSTILE[name]
    small = _lines_a_character(media_type, made(SMALL), policies)
    for part, lines in _lines_a_character(media_type, made(LARGE), policies).items():
        before = small.get(part, 0.0)
        assert lines <= GROWTH * max(DENSE_LINES, before), f"{part}: {before:.1f} lines a character, then {lines:.1f}"


def test_work_that_grows_with_the_square_is_seen() -> None:
    """The count can fail: a walk over all blocks for each block."""
    source = "def walk(blocks):\n    return sum(1 for first in blocks for second in blocks if first is second)\n"
    scope: dict[str, Any] = {}
    exec(compile(source, "/chunking/quadratic.py", "exec"), scope)
    densities = []
    for size in (SMALL, LARGE):
        with Lines() as lines:
            scope["walk"](list(range(size // 20)))
        densities.append(lines.run / size)
    assert densities[1] > GROWTH * max(DENSE_LINES, densities[0])


@pytest.fixture(scope="module")
def outcomes() -> dict[str, str]:
    """What the parse sandbox says of a megabyte of each, within 60 s and 512 MiB."""
    import asyncio

    async def all_of_them() -> dict[str, str]:
        pool = ParsePool(ParserSettings(processes=1, timeout_seconds=60, memory_bytes=512 << 20))
        said = {}
        try:
            for name, (media_type, made) in HOSTILE.items():
                try:
                    document = await pool.parse(made(1_000_000), media_type)
                    assert all(document.text_of(block).strip() for block in document.blocks)
                    said[name] = "document"
                except PoisonRecord as error:
                    said[name] = str(error.facts["error"])
        finally:
            await pool.close()
        return said

    return asyncio.run(all_of_them())


@pytest.mark.parametrize("name", HOSTILE)
def test_a_megabyte_of_it_is_a_document_or_a_named_error(name: str, outcomes: dict[str, str]) -> None:
    """Neither time, memory nor the process may run out: those limits are for what nobody has thought of."""
    allowed = {"document", "NestedTooDeeply", "UnreadableMarkup"} | ({"ParseTimedOut"} if name in TIME_LIMIT_ONLY else set())
    assert outcomes[name] in allowed, outcomes[name]


def test_an_outside_entity_is_not_read() -> None:
    media_type, made = HOSTILE["an-outside-entity"]
    try:
        assert "root:" not in parse_document(made(10), media_type).text
    except UnreadableMarkup:
        return
