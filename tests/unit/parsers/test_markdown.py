"""Markdown: block boundaries, what is hidden, hostile input."""

from __future__ import annotations

import pytest

from chunking.document import BlockKind, Document
from chunking.parsers import parse_document


def parse(text: str) -> Document:
    return parse_document(text, "text/markdown")


def shape(text: str) -> list[tuple[str, int, str]]:
    document = parse(text)
    return [(block.kind.value, block.level, document.text_of(block)) for block in document.blocks]


@pytest.mark.parametrize(
    ("text", "blocks"),
    [
        pytest.param(
            "- a\n\n  second\n- b", [("list_item", 1, "- a\n\n  second"), ("list_item", 1, "- b")], id="a-second-paragraph-stays"
        ),
        pytest.param(
            "- a\nlazy\n- b", [("list_item", 1, "- a\nlazy"), ("list_item", 1, "- b")], id="a-lazy-line-stays-with-its-item"
        ),
        pytest.param(
            "- a\n\n  ```sh\n  x\n  ```\n\n  after\n",
            [("list_item", 1, "- a"), ("code", 0, "  ```sh\n  x\n  ```"), ("list_item", 1, "  after")],
            id="code-in-an-item-is-a-block",
        ),
        pytest.param(
            "1. a\n   1. b\n2. c", [("list_item", 1, "1. a"), ("list_item", 2, "   1. b"), ("list_item", 1, "2. c")], id="nested"
        ),
        pytest.param("    code\n\n    more", [("code", 0, "    code\n\n    more")], id="indented-code-keeps-its-indent"),
        pytest.param("> a\n> b\n\nc", [("quote", 0, "> a\n> b"), ("paragraph", 0, "c")], id="a-quote"),
        pytest.param("[^1]: one\n[^2]: two", [("footnote", 0, "[^1]: one"), ("footnote", 0, "[^2]: two")], id="footnotes"),
        pytest.param("[x]: http://y\n\nz", [("paragraph", 0, "[x]: http://y"), ("paragraph", 0, "z")], id="definitions-are-kept"),
        pytest.param("a\n\n---\n\nb", [("paragraph", 0, "a"), ("paragraph", 0, "b")], id="a-rule-is-not-text"),
        pytest.param("```\na", [("code", 0, "```\na")], id="an-open-fence-ends-with-the-file"),
        pytest.param(
            "<h2>T &amp; U</h2>\n<p>x</p>", [("heading", 2, "T & U"), ("paragraph", 0, "x")], id="html-blocks-give-their-text"
        ),
        pytest.param("a <!-- secret --> b", [("paragraph", 0, "a  b")], id="an-inline-comment-is-hidden"),
        pytest.param("`<!-- shown -->` b", [("paragraph", 0, "`<!-- shown -->` b")], id="a-comment-in-a-code-span-is-text"),
        pytest.param('<img src="x" alt="pic">', [("paragraph", 0, "pic")], id="an-image-element-leaves-its-alternative-text"),
        pytest.param("<template>\n\nhid\n\n</template>\n\nb", [("paragraph", 0, "b")], id="an-element-hides-across-blank-lines"),
        pytest.param("<template>\n\nshown", [("paragraph", 0, "shown")], id="an-element-never-closed-hides-nothing"),
    ],
)
def test_source_is_cut_where_its_blocks_end(text: str, blocks: list[tuple[str, int, str]]) -> None:
    assert shape(text) == blocks


@pytest.mark.parametrize(
    ("line", "title"),
    [
        pytest.param("## **Bold** and `code *x*`", "Bold and code *x*", id="marks-go-but-not-in-code"),
        pytest.param("# [Link](http://x) ![pic](y)", "Link pic", id="links-leave-their-text"),
        pytest.param("# snake_case_name", "snake_case_name", id="underscores-in-a-word-stay"),
        pytest.param("# Title {#anchor}", "Title", id="anchors-go"),
        pytest.param("# C#", "C#", id="c-sharp"),
        pytest.param("# a \\* b &amp; c", "a * b & c", id="escapes-and-entities-are-read"),
        pytest.param("# A <!-- x --> <sup>b</sup>", "A b", id="tags-and-comments-go"),
    ],
)
def test_a_heading_label_is_what_readers_see(line: str, title: str) -> None:
    assert [block.label for block in parse(line).blocks] == [title]


def test_a_table_is_a_header_and_a_row_a_line() -> None:
    document = parse("|a|**b**|\n|-|-|\n|1|x\\|y|\n|2|\n\nafter")
    header, first, second, after = document.blocks
    assert (header.kind, header.cells, document.text_of(header)) == (BlockKind.TABLE_HEADER, ("a", "b"), "|a|**b**|\n|-|-|")
    assert (first.kind, first.cells, second.cells) == (BlockKind.TABLE_ROW, ("1", "x|y"), ("2", ""))
    assert header.group == first.group == second.group > 0 == after.group


def test_code_carries_its_language() -> None:
    assert [block.label for block in parse("```js{4}\n1\n```\n\n~~~ c++\n2\n~~~\n\n```\n3\n```").blocks] == ["js", "c++", ""]


def test_items_of_one_outermost_list_share_a_group() -> None:
    groups = [block.group for block in parse("- a\n  - b\n- c\n\ntext\n\n1. d").blocks]
    assert groups == [1, 1, 1, 0, 2]


def test_front_matter_gives_title_and_language_and_is_not_text() -> None:
    document = parse("---\ntitle: 'Demo: page'\nlang: zh\ntags: [a]\n---\n\nbody")
    assert (document.title, document.language, document.text.strip()) == ("Demo: page", "zh", "body")


def test_rules_around_text_are_not_front_matter() -> None:
    assert "just words" in parse("---\njust words\n---\n\nbody").text


@pytest.mark.parametrize("name", ["data", "DATA"])
def test_embedded_images_leave_their_alternative_text(name: str) -> None:
    text = parse(f"Before ![pic]({name}:image/png;base64,{'QUJD' * 50_000}) after.").text
    assert text == "Before ![pic](data:) after."


HOSTILE = {
    "quotes-in-quotes": ">" * 10_000 + " x",
    "lists-in-lists": "- " * 10_000 + "x",
    "brackets": "[" * 200_000,
    "one-letter": "a" * 200_000,
    "one-han-character": "汉" * 200_000,
    "blanks": " " * 200_000,
    "blanks-in-a-heading": "# x" + " " * 100_000 + "y",
    "backticks": "` `` " * 40_000,
    "open-comments": "a <!-- b " * 20_000,
    "open-scripts": "a <script b " * 15_000,
    "open-elements": "<div>" * 11_000,
    "bars": "|" * 200_000,
    "underscores": "_a " * 60_000,
    "escapes": "\\" * 200_000,
}


@pytest.mark.parametrize("text", HOSTILE.values(), ids=HOSTILE.keys())
def test_hostile_source_neither_recurses_nor_loses_text(text: str) -> None:
    document = parse(text)
    letters = sum(character.isalpha() for character in document.text)
    assert letters == (0 if text.startswith("<div>") else sum(character.isalpha() for character in text))
