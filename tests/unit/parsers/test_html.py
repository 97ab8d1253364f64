"""HTML: what readers see, in plain blocks."""

from __future__ import annotations

import pytest

from chunking.document import BlockKind, Document
from chunking.parsers import UnreadableMarkup, parse_document


def parse(html: str | bytes, media_type: str = "text/html") -> Document:
    return parse_document(html, media_type)


@pytest.mark.parametrize(
    ("html", "text"),
    [
        pytest.param("<ul><li>a<ul><li>b</ul><li>c</ul>", "- a\n  - b\n- c", id="nested-lists"),
        pytest.param("<ol start=3><li>a<li>b</ol>", "3. a\n4. b", id="numbered-lists"),
        pytest.param("<ul><li><p>a</p><p>b</p></li></ul>", "- a\n  b", id="a-second-paragraph-of-an-item"),
        pytest.param("<dl><dt>T<dd>d</dl>", "- T\n  - d", id="definitions"),
        pytest.param("<p>a<br>b<br><br>c", "a\nb\n\nc", id="line-breaks"),
        pytest.param("<pre>\n  a\n\n b</pre>", "  a\n\n b", id="preformatted-text-is-verbatim"),
        pytest.param("<figure><img alt=pic><figcaption>Cap</figcaption></figure>", "pic\n\nCap", id="figures"),
        pytest.param("<details><summary>S</summary>d</details>", "S\n\nd", id="details"),
        pytest.param("<!-- wp:paragraph --><p>a</p><!-- /wp:paragraph -->", "a", id="comments-go"),
        pytest.param("<p hidden>x</p><p style='display : none'>x</p><p aria-hidden=true>x</p>y", "y", id="hidden-elements-go"),
        pytest.param(
            "<nav>n</nav><header>h</header><main><header>t</header>m</main><footer>f</footer>", "t\n\nm", id="furniture-goes"
        ),
        pytest.param("<header><h1>T</h1></header>", "T", id="a-header-with-the-title-stays"),
        pytest.param("<ruby>字<rp>(</rp><rt>zi</rt></ruby>", "字", id="ruby-keeps-its-base"),
        pytest.param("<p>a<div>b</div>c", "a\n\nb\n\nc", id="blocks-end-paragraphs"),
        pytest.param("a&lt;b&gt; &amp;amp; &#x4e2d;", "a<b> &amp; 中", id="entities-once"),
        pytest.param("第&#8203;十条", "第十条", id="entities-can-not-smuggle-hidden-characters"),
    ],
)
def test_a_page_reads_as_its_readers_see_it(html: str, text: str) -> None:
    assert parse(html).text == text


def test_tables_have_captions_headers_and_whole_rows() -> None:
    document = parse(
        "<table><caption>Cap</caption><thead><tr><th rowspan=2>Site<th colspan=2>Load<tr><th>min<th>max</thead>"
        "<tr><td rowspan=0>N<td>1<td>2<tr><td colspan=2>x</table>"
    )
    assert [(block.kind, block.cells) for block in document.blocks] == [
        (BlockKind.CAPTION, ()),
        (BlockKind.TABLE_HEADER, ("Site", "Load min", "Load max")),
        (BlockKind.TABLE_ROW, ("N", "1", "2")),
        (BlockKind.TABLE_ROW, ("N", "x", "x")),
    ]
    assert len({block.group for block in document.blocks}) == 1


def test_a_table_that_arranges_a_page_is_no_table() -> None:
    document = parse("<table><tr><td><h1>T</h1><p>a</p><p>b</p></td><td><table><tr><td>1<td>2</table></td></tr></table>")
    assert [block.kind.value for block in document.blocks] == ["heading", "paragraph", "paragraph", "table_row"]


def test_hostile_spans_do_not_explode() -> None:
    cell = "<td rowspan=100000 colspan=100000>" + "x" * 150
    document = parse(f"<table><tr>{cell}</td></tr>" + "<tr><td>1</td></tr>" * 5_000 + "</table>")
    assert len(document.text) < 4_000_000
    assert sum("1" in block.cells for block in document.blocks) == 5_000


def test_title_and_language_come_from_the_page() -> None:
    document = parse("<html lang=zh-CN><head><title> A &amp;\n B </title></head><body>x")
    assert (document.title, document.language, document.text) == ("A & B", "zh-CN", "x")


def test_code_carries_its_language() -> None:
    assert [block.label for block in parse("<pre><code class='hljs language-c++'>x</code></pre>").blocks] == ["c++"]


@pytest.mark.parametrize(
    ("page", "media_type"),
    [
        pytest.param("<p>镕中文</p>".encode("gb18030"), "text/html; charset=GBK", id="the-media-type"),
        pytest.param("<meta charset='gb2312'><p>镕中文</p>".encode("gb18030"), "text/html", id="a-meta-element"),
        pytest.param("<?xml version='1.0' encoding='gb18030'?><p>镕中文</p>".encode("gb18030"), "application/xhtml+xml", id="xml"),
        pytest.param("\ufeff<meta charset=gbk><p>镕中文</p>".encode(), "text/html; charset=gbk", id="a-byte-order-mark-goes-first"),
    ],
)
def test_the_charset_is_where_the_page_says_it(page: bytes, media_type: str) -> None:
    assert parse(page, media_type).text == "镕中文"


@pytest.mark.parametrize("tag", ["div", "blockquote", "ul><li", "table><tr><td", "b", "section"])
def test_ten_thousand_levels_are_read(tag: str) -> None:
    assert parse(f"<{tag}>" * 10_000 + "deep").text.strip("- ").endswith("deep")


def test_what_is_nested_beyond_that_is_refused_with_place_and_advice() -> None:
    with pytest.raises(UnreadableMarkup, match=r"at character \d+: close them"):
        parse("<div>" * 50_000 + "deep")


def test_an_entity_bomb_is_text() -> None:
    bomb = '<!DOCTYPE x [<!ENTITY a "ha"><!ENTITY b "&a;&a;&a;">]><p>&b;</p>'
    assert len(parse(bomb, "application/xhtml+xml").text) < 100
