"""Claims about search: what a citation needs is there, neighbours are in document order, tenants and readers never meet."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest

from chunking.chunk import Chunk
from chunking.chunker import Provenance, chunk
from chunking.diff import diff
from chunking.document import DocumentKey
from chunking.parsers import parse_document
from chunking.policy import ChunkPolicy, Embedding, load_policy
from chunking.tokens import counter
from streams.errors import NotPrepared, UsageError
from streams.index.memory import MemoryIndex
from streams.ports import CollectionSpec, IndexPlan, NewPoint, Vector
from streams.reading.search import Question, embedding_of, search, served

POLICY = """
name: try
version: 1
limits: {max_tokens: 40, tokenizer: characters}
embedding: {model: letters, dimensions: 26, document_prefix: "passage ", query_prefix: "query "}
rules:
  - use: structure
"""
PAGE = "# Handbook\n\n## Apples\n\nappla appla appla\n\n## Berries\n\nberry berry berry\n\n## 樱桃\n\ncccc cccc cccc\n"


class Letters:
    """Embeds a text as its counts of the letters a-z, and remembers what it was given."""

    model, dimensions, max_tokens = "letters", 26, None

    def __init__(self) -> None:
        self.given: list[str] = []

    def count_tokens(self, text: str) -> int:
        return len(text)

    async def embed(self, texts: Sequence[str]) -> list[Vector]:
        self.given += texts
        return [
            np.array([text.lower().count(letter) + 0.01 for letter in "abcdefghijklmnopqrstuvwxyz"], np.float32) for text in texts
        ]


def policy() -> ChunkPolicy:
    return load_policy(POLICY)


async def indexed(
    index: MemoryIndex, tenant: str, page: str, acl: tuple[str, ...] | None = None, revision: int = 7
) -> tuple[Chunk, ...]:
    """Write a page as the pipeline would."""
    chosen = policy()
    document = parse_document(page.encode(), "text/markdown", title="Handbook", language="en")
    provenance = Provenance(DocumentKey(tenant, "handbook"), revision, document.title, "https://example.org/h", acl)
    chunks = chunk(document, provenance, chosen, counter("characters"))
    delta, _ = diff(None, chunks, revision)
    vectors = await Letters().embed([placed.chunk.embed_text for placed in delta.added])
    spec = CollectionSpec(chosen.batch_id, chosen.fingerprint, chosen.embedding.spec, 26, "cosine")
    await index.ensure_collection(chosen.batch_id, spec)
    await index.set_alias("live", chosen.batch_id)

    def payload(placed: Any) -> dict[str, Any]:
        return {**placed.chunk.payload, "revision": revision, "order_key": placed.order_key}

    points = tuple(
        NewPoint(placed.chunk.chunk_id, vector, payload(placed)) for placed, vector in zip(delta.added, vectors, strict=True)
    )
    await index.apply(chosen.batch_id, IndexPlan(tenant, "handbook", revision, upserts=points))
    return chunks


async def test_a_hit_has_all_that_a_citation_needs() -> None:
    index = MemoryIndex()
    chunks = await indexed(index, "acme", PAGE)
    (hit,) = await search(index, lambda embedding: Letters(), "live", Question("acme", "berry", limit=1))
    cited = next(each for each in chunks if "berry" in each.text)
    assert hit.text == cited.text
    assert (hit.chunk_id, hit.ordinal, hit.span) == (cited.chunk_id, cited.ordinal, (cited.span.start, cited.span.end))
    assert (hit.document_id, hit.revision, hit.title, hit.source_uri) == ("handbook", 7, "Handbook", "https://example.org/h")
    assert hit.heading_path == cited.heading_path
    assert hit.as_json()["span"] == {"start": cited.span.start, "end": cited.span.end}


async def test_the_json_shape_is_fixed() -> None:
    index = MemoryIndex()
    await indexed(index, "acme", PAGE)
    (hit,) = await search(index, lambda embedding: Letters(), "live", Question("acme", "berry", limit=1))
    assert list(hit.as_json()) == [
        "score",
        "text",
        "document_id",
        "revision",
        "title",
        "source_uri",
        "heading_path",
        "clause",
        "clauses",
        "parts",
        "page",
        "span",
        "chunk_id",
        "ordinal",
        "language",
        "kind",
        "parent",
        "parent_text",
        "before",
        "after",
    ]


async def test_the_query_gets_the_query_prefix_of_what_is_served() -> None:
    index, embedder, asked = MemoryIndex(), Letters(), list[Embedding]()
    await indexed(index, "acme", PAGE)

    def opened(embedding: Embedding) -> Letters:
        asked.append(embedding)
        return embedder

    await search(index, opened, "live", Question("acme", "berry"))
    assert embedder.given == ["query berry"]
    assert asked == [policy().embedding]


async def test_neighbours_stand_around_a_hit_in_document_order() -> None:
    index = MemoryIndex()
    chunks = await indexed(index, "acme", PAGE)
    (hit,) = await search(index, lambda embedding: Letters(), "live", Question("acme", "berry", limit=1, neighbours=1))
    assert [passage.chunk_id for passage in hit.before] == [chunks[hit.ordinal - 1].chunk_id]
    assert [passage.chunk_id for passage in hit.after] == [chunks[hit.ordinal + 1].chunk_id]


async def test_another_tenant_finds_nothing_of_the_same_document() -> None:
    index = MemoryIndex()
    await indexed(index, "acme", PAGE)
    assert await search(index, lambda embedding: Letters(), "live", Question("other", "berry")) == []


@pytest.mark.parametrize(("groups", "found"), [(None, True), (("staff",), True), (("guests",), False), ((), False)])
async def test_only_readers_in_its_groups_find_a_restricted_page(groups: tuple[str, ...] | None, found: bool) -> None:
    index = MemoryIndex()
    await indexed(index, "acme", PAGE, acl=("staff",))
    hits = await search(index, lambda embedding: Letters(), "live", Question("acme", "berry", groups=groups))
    assert bool(hits) == found


async def test_an_alias_that_points_nowhere_says_what_to_run() -> None:
    with pytest.raises(NotPrepared, match="docdelta init"):
        await served(MemoryIndex(), "live")


@pytest.mark.parametrize("spec", ["", "{}", "[1, 2]", '["m", 0, "cosine", "", ""]'])
def test_a_foreign_embedding_spec_is_refused(spec: str) -> None:
    with pytest.raises(NotPrepared):
        embedding_of(spec)


@pytest.mark.parametrize("wrong", [{"text": " "}, {"limit": 0}, {"limit": 1001}, {"neighbours": -1}, {"neighbours": 51}])
def test_a_question_out_of_range_is_refused(wrong: dict[str, Any]) -> None:
    with pytest.raises(UsageError):
        Question(**{"tenant_id": "acme", "text": "x", **wrong})
