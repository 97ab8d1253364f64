"""A chunk that holds several clauses, or stands under several headings, says where each of them begins."""

from __future__ import annotations

from typing import Any

from hypothesis import given, settings

from chunking.chunk import Chunk
from chunking.chunker import Provenance, chunk
from chunking.document import Document, DocumentKey
from chunking.outline import clauses_of, heading_paths, outline
from chunking.parsers import parse_document
from chunking.policy import load_policy
from chunking.tokens import counter
from streams.reading.citation import part_at
from tests.properties.test_strategies import documents

LAW = "# 某法\n\n## 第一章 总则\n\n第一条 甲。\n\n第二条 有下列情形之一的：\n（一）乙；\n（二）丙。\n\n第三条 丁。\n"


def chunks_of(text: str, options: str = "{}", **fields: Any) -> tuple[Chunk, ...]:
    return chunks(parse_document(text, "text/markdown"), options, **fields)


def chunks(document: Document, options: str = "{}", use: str = "structure") -> tuple[Chunk, ...]:
    policy = load_policy(f"name: p\nversion: 1\nrules: [{{use: {use}, options: {options}}}]\n")
    return chunk(document, Provenance(DocumentKey("t", "d"), 1), policy, counter("cl100k_base"))


def said(each: Chunk) -> list[tuple[str, str]]:
    """Return clause and text of every part."""
    ends = [*(part.at for part in each.parts[1:]), len(each.text)]
    return [(part.clause, each.text[part.at : end].strip()) for part, end in zip(each.parts, ends, strict=True)]


def test_every_clause_of_a_chunk_is_named_with_the_place_where_it_begins() -> None:
    (law,) = chunks_of(LAW)
    assert law.payload["clause"] == "第一条"
    assert law.payload["clauses"] == ["第一条", "第二条", "第二条（一）", "第二条（二）", "第三条"]
    assert said(law) == [
        ("第一条", "# 某法\n\n## 第一章 总则\n\n第一条 甲。"),
        ("第二条", "第二条 有下列情形之一的："),
        ("第二条（一）", "（一）乙；"),
        ("第二条（二）", "（二）丙。"),
        ("第三条", "第三条 丁。"),
    ]
    assert all("heading_path" not in part for part in law.payload["parts"]), "the chunk's own holds for all of them"


def test_a_heading_path_is_said_where_it_is_not_the_chunks() -> None:
    (page,) = chunks_of("# 手册\n\n## 甲\n\n一。\n\n## 乙\n\n### 丙\n\n二。\n\n## 丁\n", "{walls: 0}")
    assert page.heading_path == ("手册",)
    assert [(part["at"], part["heading_path"]) for part in page.payload["parts"]] == [
        (0, ["手册", "甲"]),
        (page.text.index("## 乙"), ["手册", "乙", "丙"]),
        (page.text.index("## 丁"), ["手册", "丁"]),
    ]
    assert page.payload["clauses"] == []


def test_a_chunk_of_one_place_stores_no_parts() -> None:
    for each in chunks_of("# 手册\n\n## 甲\n\n一。\n\n二。\n\n## 乙\n\n第一条 三。\n"):
        assert "parts" not in each.payload
        assert each.parts == ()
    assert each.payload["clauses"] == ["第一条"]


def test_a_bridge_between_chapters_stands_in_both() -> None:
    bridge = next(
        each
        for each in chunks_of("# 甲\n\n" + "风起。" * 60 + "\n\n# 乙\n\n" + "雨落。" * 60 + "\n", use="chapters")
        if each.role == "context"
    )
    assert [part.heading_path for part in bridge.parts] == [("甲",), ("乙",)]
    assert bridge.text[bridge.parts[1].at :].startswith("# 乙")


@settings(max_examples=60)
@given(documents())
def test_the_part_of_a_block_names_the_place_of_the_block(document: Document) -> None:
    """Law: for each block that begins in a chunk, the part that its first character stands in has its clause and heading path."""
    found = outline(document)
    paths, clauses = heading_paths(found.blocks), clauses_of(found.blocks)
    for each in chunks(document, "{walls: 0}"):
        assert list(each.parts) == sorted(each.parts, key=lambda part: part.at)
        for block, path, clause in zip(found.blocks, paths, clauses, strict=True):
            if block.kind == "heading" or not each.span.start <= block.span.start < each.span.end:
                continue
            part = part_at(each.payload, block.span.start - each.span.start)
            assert (part.heading_path, part.clause) == (path, clause)
