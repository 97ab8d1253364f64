"""Real pages under the packaged policies: articles complete and in order, rows with their header, code whole, text covered.

Reads the shared corpus where it lies beside the repository; nothing of it is kept here.
"""

from __future__ import annotations

import re
from functools import cache
from pathlib import Path

import pytest

from chunking.chunk import Chunk
from chunking.chunker import Provenance, chunk
from chunking.clauses import number_of
from chunking.document import BlockKind, Document, DocumentKey
from chunking.parsers import media_type_of, parse_document
from chunking.passage import Role
from chunking.policy import ChunkPolicy, load_policy
from chunking.tokens import counter

ROOT = Path(__file__).resolve().parents[2]
CORPUS = ROOT.parent / "shared" / "corpus"
PAGES = sorted(CORPUS.glob("*/*.md")) if CORPUS.is_dir() else []
LAWS = [page for page in PAGES if page.parent.name == "zh-law"]
ARTICLE = re.compile(r"^[ \t　]*第[〇零一二三四五六七八九十百千]+条(?:之[一二三四五六七八九十]+)?(?=[\s　])", re.MULTILINE)

pytestmark = pytest.mark.skipif(not PAGES, reason="the shared corpus is not beside the repository")


@cache
def policy(name: str) -> ChunkPolicy:
    return load_policy((ROOT / "deploy" / "policies" / f"{name}.yaml").read_text(encoding="utf-8"))


def chunks_of(page: Path, name: str) -> tuple[Document, tuple[Chunk, ...]]:
    document = parse_document(page.read_bytes(), media_type_of(page.name) or "text/markdown", language="zh-CN")
    chosen = policy(name)
    return document, chunk(document, Provenance(DocumentKey("t", page.name), 1), chosen, counter(chosen.limits.tokenizer))


@pytest.mark.parametrize("page", LAWS, ids=lambda page: page.name[:3])
@pytest.mark.parametrize("name", ["default", "policy-documents"])
def test_every_article_of_a_statute_is_whole_and_in_order(page: Path, name: str) -> None:
    document, chunks = chunks_of(page, name)
    starts = [match.start() + len(match.group()) - len(match.group().lstrip()) for match in ARTICLE.finditer(document.text)]
    numbers = [number_of(match.group().strip()) for match in ARTICLE.finditer(document.text)]
    assert len(starts) > 5
    assert numbers == sorted(numbers, key=lambda number: number or 0)
    body = [each for each in chunks if each.role is Role.BODY]
    limit, tokens = policy(name).limits.max_tokens, counter(policy(name).limits.tokenizer)
    for start, end in zip(starts, [*starts[1:], len(document.text)], strict=True):
        holding = [each for each in body if each.span.start <= start < each.span.end]
        assert len(holding) == 1, "an article begins in exactly one chunk"
        article = re.split(r"\n#{1,6} ", document.text[start:end])[0].rstrip()
        if tokens.count(article) <= limit - 60:  # what a heading before it may take
            assert article in holding[0].text, f"article parted: {article[:20]}"


@pytest.mark.parametrize("page", PAGES, ids=lambda page: f"{page.parent.name}-{page.name[:3]}")
def test_rows_have_their_header_and_code_that_fits_is_whole(page: Path) -> None:
    document, chunks = chunks_of(page, "default")
    body = [each for each in chunks if each.role is Role.BODY]
    limit, tokens = policy("default").limits.max_tokens, counter("cl100k_base")
    headers: dict[int, str] = {}
    for block in document.blocks:
        text = document.text_of(block)
        if block.kind is BlockKind.TABLE_HEADER:
            headers.setdefault(block.group, text)
        holding = [each for each in body if each.span.start <= block.span.start < each.span.end]
        assert len(holding) == 1
        said = holding[0].repeat + holding[0].text
        if block.kind is BlockKind.TABLE_ROW and block.group in headers:
            assert headers[block.group].split("\n")[0] in said, "a row without its header"
        if block.kind is BlockKind.CODE and tokens.count(text) <= limit - 40:
            assert text.strip() in holding[0].text, "a code block that fits is parted"
