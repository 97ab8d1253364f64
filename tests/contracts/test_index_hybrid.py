"""The hybrid half of the VectorIndex contract: a sparse vector beside the dense one, the same answers from every kind of index."""

from __future__ import annotations

import math
import os
import uuid
from collections.abc import AsyncIterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from streams.errors import InvariantBroken, NotPrepared
from streams.index.memory import MemoryIndex
from streams.index.qdrant import QdrantIndex, open_index
from streams.ports import Fusion, Hit, IndexPlan, NewPoint, SparseVector, VectorIndex
from streams.settings import QdrantSettings
from tests.contracts.index_values import HYBRID, SPEC, chunk_id, contents, payload, plan, query, same, vector, words
from tests.contracts.qdrant_shim import running_shim

KINDS = ["memory", "local_memory", "local_folder", "rest", "server"]
NAME = f"docdelta-test-{uuid.uuid4().hex[:8]}-hybrid"
PLAIN = Fusion(k=60, dense_weight=1.0, sparse_weight=1.0)


@pytest.fixture(params=KINDS)
async def index(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[VectorIndex]:
    """Every kind of index in turn, with an empty hybrid collection."""
    if request.param == "server" and not os.environ.get("QDRANT_URL"):
        pytest.skip("no Qdrant server: set QDRANT_URL to run the contract against one")
    if request.param == "rest":
        async with running_shim() as shim:
            found = open_index(QdrantSettings(url=shim.url))
            await found.ensure_collection(NAME, HYBRID)
            yield found
            await found.close()
        return
    settings = {
        "local_memory": QdrantSettings(),
        "local_folder": QdrantSettings(path=tmp_path / "index"),
        "server": QdrantSettings(url=os.environ.get("QDRANT_URL", "")),
    }
    index: VectorIndex = open_index(settings[request.param]) if request.param in settings else MemoryIndex()
    await index.ensure_collection(NAME, HYBRID)
    yield index
    if isinstance(index, QdrantIndex):
        await index.store.drop(NAME)
    await index.close()


def point(name: str, at: Any, terms: SparseVector | None, revision: int = 1, **fields: Any) -> NewPoint:
    return NewPoint(chunk_id(name), at, payload(name, revision, **fields), terms)


def names(hits: list[Hit]) -> list[str]:
    return [str(hit.payload["text"]).removeprefix("text of ") for hit in hits]


async def write(index: VectorIndex, *points: NewPoint, **fields: Any) -> None:
    await index.apply(NAME, plan(1, points, **fields))


async def test_both_lists_are_fused_by_reciprocal_rank(index: VectorIndex) -> None:
    await write(
        index,
        point("near", vector(1), words(1)),
        point("word", vector(0, 1), words(7)),
        point("both", vector(1, 0.1), words(7, 8)),
    )
    hits = await index.search(NAME, query(vector(1), sparse=words(7, 8), fusion=PLAIN))
    assert names(hits) == ["both", "word", "near"]
    # dense: near, both, word. words: both (two of them), word; near shares none.
    expected = {"both": 1 / 61 + 1 / 60, "near": 1 / 60, "word": 1 / 62 + 1 / 61}
    assert {name: hit.score for name, hit in zip(names(hits), hits, strict=True)} == pytest.approx(expected, rel=1e-5)


async def test_a_rare_word_counts_more_than_a_common_one(index: VectorIndex) -> None:
    common = [point(f"common{number}", vector(0, 1), words(1)) for number in range(8)]
    await write(index, *common, point("rare", vector(0, 1), words(2)))
    only_words = Fusion(k=1, dense_weight=1e-6, sparse_weight=1.0)
    hits = await index.search(NAME, query(vector(1), sparse=words(1, 2), limit=1, fusion=only_words))
    assert names(hits) == ["rare"]


async def test_a_small_weight_lets_ranks_fall_off_faster(index: VectorIndex) -> None:
    await write(index, point("a", vector(1), words(1)), point("b", vector(0, 1), words(2)), point("c", vector(0, 0, 1), words(2)))
    hits = await index.search(NAME, query(vector(1, 0.5, 0.2), sparse=words(2), fusion=Fusion(k=10, sparse_weight=0.5)))
    score = dict(zip(names(hits), [hit.score for hit in hits], strict=True))
    assert score["a"] == pytest.approx(1 / (1 + 9), rel=1e-5)
    # b and c hold the same word, so which comes first is the index's choice: their sums are not.
    assert score["b"] + score["c"] == pytest.approx(1 / 11 + 1 / 12 + 1 / (2 + 9) + 1 / (4 + 9), rel=1e-5)


async def test_tenant_acl_and_language_hold_before_the_cut_in_both_lists(index: VectorIndex) -> None:
    crowd = [point(f"n{number}", vector(1), words(7), tenant="rival") for number in range(150)]
    await write(index, *crowd, tenant="rival")
    await write(
        index,
        point("mine", vector(-1, 0.5), words(7)),
        point("closed", vector(1), words(7), acl=["board"]),
        point("zh", vector(1), words(7), language="zh"),
        point("parent", vector(1), words(7), role="parent"),
    )
    asked = query(vector(1), sparse=words(7), groups=("staff",), languages=("en",), fusion=replace(PLAIN, depth=1))
    assert names(await index.search(NAME, asked)) == ["mine"]


async def test_one_generation_a_document_and_light_overlaps_behind(index: VectorIndex) -> None:
    await write(index, point("old", vector(1), words(7)))
    light = {"type": "CHAPTER_TAIL", "weight": 0.1}
    newer = [
        point("body", vector(1, 0.2), words(7), revision=2),
        point("tail", vector(1), words(7, 8), revision=2, role="context", overlap=light),
    ]
    await index.apply(NAME, plan(2, newer))
    assert names(await index.search(NAME, query(vector(1), sparse=words(7, 8)))) == ["body", "tail"]


async def test_a_question_without_words_is_a_dense_one(index: VectorIndex) -> None:
    await write(index, point("a", vector(1), words(7)), point("b", vector(0, 1), words()))
    dense = await index.search(NAME, query(vector(1)))
    assert await index.search(NAME, query(vector(1), sparse=words())) == dense
    assert dense[0].score == pytest.approx(1.0, abs=1e-5)


async def test_words_that_nobody_has_change_nothing_in_the_order(index: VectorIndex) -> None:
    await write(index, point("a", vector(1), words(7)), point("b", vector(0, 1), words(8)))
    assert names(await index.search(NAME, query(vector(1, 0.5), sparse=words(99)))) == ["a", "b"]


async def test_what_was_written_is_read_back_and_a_text_without_words_has_no_sparse_vector(index: VectorIndex) -> None:
    await write(
        index,
        point("a", vector(1), SparseVector((3, 2_147_483_647), (0.5, 1.25))),
        point("b", vector(1), words()),
        point("parent", None, None, role="parent"),
    )
    there = await contents(index, NAME)
    assert there[chunk_id("a")].sparse == SparseVector((3, 2_147_483_647), (0.5, 1.25))
    assert there[chunk_id("b")].sparse is None
    assert there[chunk_id("parent")].sparse is None
    await index.apply(NAME, plan(2, [point("a", vector(0, 1), words(9), revision=2)], {"b": payload("b", 2)}))
    there = await contents(index, NAME)
    assert there[chunk_id("a")].sparse == words(9)
    assert names(await index.search(NAME, query(vector(1), sparse=words(9), limit=1))) == ["a"]


async def test_dicts_and_this_index_agree_on_a_crowd(index: VectorIndex) -> None:
    points = [
        point(
            f"p{number}",
            vector(math.cos(number), math.sin(number), number / 50),
            SparseVector((number % 5, 10 + number % 7), (1 + number / 97, 0.5)),
        )
        for number in range(40)
    ]
    other = MemoryIndex()
    await other.ensure_collection(NAME, HYBRID)
    for each in (index, other):
        await each.apply(NAME, plan(1, points))
        await each.apply(NAME, plan(1, deletes=[f"p{number}" for number in range(0, 40, 9)]))
    same(await contents(index, NAME), await contents(other, NAME))
    for sparse in (words(1, 12), SparseVector((3,), (1.0,))):
        asked = query(vector(1, 0.3), sparse=sparse, limit=5)
        mine, theirs = await index.search(NAME, asked), await other.search(NAME, asked)
        assert [hit.chunk_id for hit in mine] == [hit.chunk_id for hit in theirs]
        assert [hit.score for hit in mine] == pytest.approx([hit.score for hit in theirs], rel=1e-5)


@pytest.mark.parametrize(
    ("bad", "words_of_error"),
    [
        pytest.param(point("a", vector(1), None), "lacks a sparse vector", id="a-vector-without-its-sparse-one"),
        pytest.param(point("a", None, words(1)), "has a sparse vector", id="a-sparse-vector-alone"),
        pytest.param(point("a", vector(1), words(1, 1)), "repeats an index", id="an-index-twice"),
        pytest.param(point("a", vector(1), words(1, value=math.inf)), "not finite", id="an-infinite-weight"),
    ],
)
async def test_a_plan_with_sparse_vectors_that_do_not_fit_is_refused_whole(
    index: VectorIndex, bad: NewPoint, words_of_error: str
) -> None:
    with pytest.raises(InvariantBroken, match=words_of_error):
        await index.apply(NAME, IndexPlan("acme", "d1", 1, upserts=(point("good", vector(1), words(1)), bad)))
    assert await index.count(NAME) == 0


async def test_a_collection_of_another_sparse_spec_is_refused_both_ways(index: VectorIndex) -> None:
    assert await index.collection_spec(NAME) == HYBRID
    for other in (SPEC, replace(HYBRID, sparse_spec="words/2")):
        with pytest.raises(InvariantBroken, match="sparse_spec"):
            await index.ensure_collection(NAME, other)


async def test_a_dense_collection_takes_no_sparse_vectors_and_no_hybrid_questions() -> None:
    for index in (MemoryIndex(), open_index(QdrantSettings())):
        await index.ensure_collection("dense", SPEC)
        with pytest.raises(InvariantBroken, match="has a sparse vector"):
            await index.apply("dense", plan(1, [point("a", vector(1), words(1))]))
        await index.apply("dense", plan(1, [point("a", vector(1), None)]))
        with pytest.raises(NotPrepared):
            await index.search("dense", query(vector(1), sparse=words(1)))
        await index.close()


async def test_a_folder_keeps_sparse_vectors_and_their_rarity(tmp_path: Path) -> None:
    settings = QdrantSettings(path=tmp_path / "index")
    answers = []
    for opened in range(2):
        index = open_index(settings)
        await index.ensure_collection(NAME, HYBRID)
        if not opened:
            await write(index, *(point(f"p{n}", vector(1, n), SparseVector((n % 3, 9), (1 + n / 10, 0.1))) for n in range(12)))
        answers.append(await index.search(NAME, query(vector(1), sparse=words(1), limit=3)))
        await index.close()
    assert answers[0] == answers[1]
