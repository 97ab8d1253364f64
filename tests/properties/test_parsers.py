"""Laws of the parsers and the outline pass, for any text."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from chunking.charset import decode
from chunking.clauses import number_of
from chunking.document import BlockKind
from chunking.normalize import normalize
from chunking.outline import clauses_of, heading_paths, outline
from chunking.parsers import PARSERS, UnreadableMarkup, media_type_of, parse_document
from chunking.parsers.markdown import MARKDOWN, parse_slowly
from tests.support.texts import is_text

CORPUS = Path(__file__).resolve().parents[2] / "../shared/corpus"
MEDIA_TYPES = sorted(PARSERS)

MARKDOWN_LINES = [
    *(
        "# a",
        "## b #",
        "#c",
        "#\tq",
        " # i",
        "##",
        "text",
        "中文 text",
        "  cont",
        "  ",
        "　",
        "　段",
        "**b** c",
        "_u_",
        "__",
        "*a*",
        "-a",
        "",
    ),
    *(
        "- a",
        "- b",
        "  - c",
        "    - d",
        "* x",
        "+ p",
        "-\tt",
        "- ",
        "- - n",
        "- # h",
        "- ```",
        "- |a|",
        "- <div>",
        "- [ ] t",
        "   - w",
    ),
    *(
        "1. y",
        "2. z",
        "   para",
        "    - four",
        "     - five",
        "   ```",
        "     y",
        "    ```js",
        "      z",
        "   1. q",
        "   2. q",
        "10) k",
        "1986. x",
        "1.",
        "> q",
        "> - l",
        "   > z",
        ">",
    ),
    *(
        "```",
        "```py",
        "~~~",
        "  ```",
        "``` `x",
        "    code",
        "\tcode",
        "|a|b|",
        "|-|-|",
        "| 1 | 2 |",
        "a|b",
        "a \\| b",
        "|x\\|y|`|`|",
        "|",
        "||",
    ),
    *("---", "***", "* * *", "===", "-", "--", "=", "= b", " = c = ", ":::", "::: tip", "[x]: y", "[^1]: n", "[^2]: m"),
    *(
        "<!-- c",
        "-->",
        "<!-->",
        "<!-- o -->",
        "<!-- o --> t",
        "<div>",
        "</div>",
        "<b>x</b>",
        "<script>",
        "</script>",
        "<template>",
        "</template>",
    ),
    *(
        "<pre>",
        "</pre>",
        "<table>",
        "<tr><td>1</td></tr>",
        "</table>",
        "<?php",
        "?>",
        "<!DOCTYPE x>",
        "<h2>T</h2>",
        "<ul><li>i</ul>",
    ),
]
OUTLINE_LINES = [
    *(
        "第一章 总则",
        "第二章 分则",
        "第一节 甲",
        "第一条 内容。",
        "第二条　标题",
        "第十条规定的，",
        "（一）甲；",
        "（二）乙。",
        "1. 丙",
        "① 丁",
        "一、戊",
    ),
    *(
        "1 总则",
        "1.1 范围",
        "1.1.1 x。",
        "7.2.2的要求",
        "Chapter 1",
        "Article 5 The A",
        "楔子",
        "目录",
        "第一章 总则 ..... 3",
        "正文。",
        "  正文，续",
        "",
    ),
    *("　　第三回 风起", "**第三条** 粗体", "# 第一章 总则", "## 题", "- 项", "> 引", "```", "|a|b|", "|-|-|"),
]
HTML_PIECES = [
    *(
        "<p>",
        "</p>",
        "<div>",
        "</div>",
        "<ul>",
        "</ul>",
        "<ol start=3>",
        "</ol>",
        "<li>",
        "</li>",
        "<dl>",
        "<dt>",
        "<dd>",
        "</dl>",
        "<br>",
        "<h1>",
    ),
    *(
        "</h1>",
        "<h2>",
        "</h2>",
        "<table>",
        "</table>",
        "<tr>",
        "<td rowspan=2>",
        "<td colspan=3>",
        "<th>",
        "</td>",
        "<caption>",
        "<thead>",
        "</thead>",
    ),
    *(
        "<pre>",
        "</pre>",
        "<code class=language-js>",
        "</code>",
        "<blockquote>",
        "</blockquote>",
        "<nav>",
        "</nav>",
        "<script>",
        "</script>",
        "<!--",
    ),
    *(
        "-->",
        "<template>",
        "</template>",
        "<svg>",
        "</svg>",
        "<details>",
        "<summary>",
        "<figure>",
        "<figcaption>",
        "<header>",
        "</header>",
        "<main>",
    ),
    *(
        "<span hidden>",
        "</span>",
        "&lt;",
        "&amp;amp;",
        "&#8203;",
        "&#0;",
        "text",
        "中文",
        " ",
        "\n",
        "<b>",
        "</b>",
        "<img alt=x>",
        "<body>",
        "<select>",
    ),
]


def joined(lines: list[str], most: int = 16) -> st.SearchStrategy[str]:
    """Texts of such lines, with some of any text between."""
    line = st.one_of(st.sampled_from(lines), st.sampled_from(lines), st.just(""), st.text(max_size=12))
    return st.lists(line, max_size=most).map("\n".join).filter(is_text)


markdown = joined(MARKDOWN_LINES)
html = st.lists(st.one_of(st.sampled_from(HTML_PIECES), st.text(max_size=6)), max_size=40).map("".join).filter(is_text)
chapters = joined(OUTLINE_LINES)
any_text = st.text().filter(is_text)
texts = st.one_of(any_text, markdown, html, chapters)


@given(texts, st.sampled_from(MEDIA_TYPES))
def test_any_text_gives_a_document_that_is_whole(text: str, media_type: str) -> None:
    document = parse_document(text, media_type)
    assert all(document.text_of(block).strip() for block in document.blocks)
    assert normalize(document.text) == document.text
    assert parse_document(text, media_type) == document


@given(
    st.binary(max_size=200), st.sampled_from(MEDIA_TYPES), st.sampled_from(["", "; charset=gbk", "; charset=utf-16", "; charset=x"])
)
def test_any_bytes_give_a_document_or_a_refusal(data: bytes, media_type: str, parameter: str) -> None:
    try:
        document = parse_document(data, media_type + parameter)
    except UnreadableMarkup:
        return
    assert document.text.encode("utf-8").decode("utf-8") == document.text


@given(texts, st.sampled_from(["\r\n", "\r"]), st.sampled_from(MEDIA_TYPES))
def test_line_ends_make_no_difference(text: str, line_end: str, media_type: str) -> None:
    text = text.replace("\r", "\n")
    assert parse_document(text.replace("\n", line_end), media_type) == parse_document(text, media_type)


@given(any_text)
def test_plain_text_is_covered_to_the_last_visible_character(text: str) -> None:
    document = parse_document(text, "text/plain")
    visible = "".join(document.text_of(block) for block in document.blocks)
    assert "".join(visible.split()) == "".join(normalize(text).split())


@given(st.one_of(st.text(), st.text("aé́ि\u200b\u200c\u200d\u2060\u00ad\ufeff中。\r\n\u0344\u0958\u0323", max_size=200)))
def test_normalising_twice_changes_nothing_more(text: str) -> None:
    assert normalize(normalize(text)) == normalize(text)


@given(st.text(st.characters(codec="utf-8"), min_size=1))
def test_utf_8_is_always_read_as_utf_8(text: str) -> None:
    if "\x00" not in text and not text.startswith("\ufeff"):
        assert decode(text.encode())[0] == text


@given(markdown)
def test_the_line_scan_gives_what_the_full_markdown_parser_gives(text: str) -> None:
    assert MARKDOWN.parse(text, None) == parse_slowly(text)


@given(markdown)
def test_letters_of_markdown_stay_in_order(text: str) -> None:
    text = normalize(text)
    document = parse_document(text, "text/markdown")
    rest = iter(text)
    if "<" not in text and "&" not in text:
        assert all(character in rest for character in document.text if not character.isspace())


@given(st.one_of(chapters, markdown), st.sampled_from(["text/plain", "text/markdown"]))
def test_the_outline_keeps_the_text_and_is_done_once(text: str, media_type: str) -> None:
    document = parse_document(text, media_type)
    once = outline(document)
    assert once.text == document.text
    assert outline(once) == once
    assert len(heading_paths(once.blocks)) == len(clauses_of(once.blocks)) == len(once.blocks)
    edges = {edge for block in once.blocks for edge in (block.span.start, block.span.end)}
    assert edges >= {edge for block in document.blocks for edge in (block.span.start, block.span.end)}


@given(chapters)
def test_no_path_holds_a_title_that_was_closed(text: str) -> None:
    blocks = outline(parse_document(text, "text/plain")).blocks
    for block, path, below in zip(blocks, heading_paths(blocks), heading_paths(blocks)[1:], strict=False):
        if block.kind is BlockKind.HEADING:
            assert path[-1] == block.label
            assert len(path) <= block.level
        assert below[: len(path)] == path or len(below) <= len(path)


def _corpus() -> list[Path]:
    return sorted(path for path in CORPUS.rglob("*") if path.suffix in (".md", ".txt")) if CORPUS.is_dir() else []


@pytest.mark.parametrize("path", _corpus() or [None], ids=lambda path: path.name if path else "no-corpus")
def test_the_laws_hold_for_the_corpus(path: Path | None) -> None:
    if path is None:
        pytest.skip("the shared corpus is not beside this checkout")
    data = path.read_bytes()
    document = parse_document(data, media_type_of(path))
    assert outline(outline(document)) == outline(document)
    if path.suffix == ".md":
        assert MARKDOWN.parse(data, None) == parse_slowly(data)
        assert document == parse_document(data.replace(b"\n", b"\r\n"), "text/markdown")


@pytest.mark.parametrize("media_type", ["text/markdown", "text/plain"])
def test_every_article_of_the_statutes_is_found_in_order(media_type: str) -> None:
    statutes = [path for path in _corpus() if path.parent.name == "zh-law"]
    if not statutes:
        pytest.skip("the shared corpus is not beside this checkout")
    for path in statutes:
        source = path.read_text(encoding="utf-8")
        blocks = outline(parse_document(source if media_type == "text/markdown" else source.replace("#", ""), media_type)).blocks
        numbers = [number_of(block.clause) for block in blocks if re.fullmatch("第.+条", block.clause)]
        assert numbers == list(range(1, len(numbers) + 1)), path.name
        assert len(numbers) >= 20, path.name


def test_every_chapter_of_the_novels_is_found_in_order() -> None:
    novels = [path for path in _corpus() if path.parent.name == "zh-novel"]
    if not novels:
        pytest.skip("the shared corpus is not beside this checkout")
    for path in novels:
        document = outline(parse_document(path.read_bytes(), media_type_of(path)))
        numbers = [number_of(block.label) for block in document.blocks if block.attributes.get("rule") == "episode"]
        assert numbers == list(range(1, len(numbers) + 1)), path.name
        assert len(numbers) == len(re.findall(r"(?m)^\s*第[一二三四五六七八九十百]+回\s", document.text)), path.name
