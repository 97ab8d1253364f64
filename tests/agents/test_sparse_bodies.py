"""A policy with sparse vectors through the real bodies: each vector has its words beside it, a lent one too."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from datetime import UTC, datetime

from chunking.policy import Sparse
from streams.agents.index_changes import Lender
from streams.batches.record import batch_record, collection_spec
from streams.embedders.sparse import open_sparse
from streams.ports import CollectionSpec, StoredPoint
from tests.support.pipeline import DIMENSIONS, POLICY, Pipeline, WatchedIndex, sections

HYBRID = POLICY.model_copy(update={"version": 2, "sparse": Sparse()})


@dataclass
class HybridPipeline(Pipeline):
    """A pipeline of a policy with sparse vectors, built beside a dense one."""

    lender: Lender | None = None

    def restart(self) -> None:
        super().restart()
        assert self.policy.sparse is not None
        self.indexer.sparse = open_sparse(self.policy.sparse.spec)
        self.indexer.lender = lambda: self.lender

    async def _prepare(self) -> None:
        assert self.policy.sparse is not None
        spec = CollectionSpec(
            self.batch, self.policy.fingerprint, self.policy.embedding.spec, DIMENSIONS, "cosine", self.policy.sparse.spec
        )
        await self.index.ensure_collection(self.batch, spec)

    async def stored(self, document: str) -> list[StoredPoint]:
        return list((await self.index.retrieve(self.batch, await self.ids(document), with_vectors=True)).values())


async def words_are_right(pipeline: HybridPipeline, document: str) -> bool:
    """Return whether every point has the sparse vector of its own text."""
    points = await pipeline.stored(document)
    assert pipeline.indexer.sparse is not None
    wanted = await pipeline.indexer.sparse.documents([str(point.payload["text"]) for point in points])
    return bool(points) and [point.sparse for point in points] == wanted


async def test_every_vector_has_its_words_beside_it_through_edits_and_repeats() -> None:
    pipeline = HybridPipeline(policy=HYBRID)
    pipeline.send("d1", 1, sections("ash", "birch", "cedar"))
    await pipeline.drain()
    pipeline.send("d1", 2, sections("cedar", "ash", "date"))
    await pipeline.drain()
    assert await words_are_right(pipeline, "d1")
    pipeline.rewind()
    await pipeline.drain()
    assert await words_are_right(pipeline, "d1")
    assert pipeline.receipts()[-1].embedded == 0


async def test_a_lent_vector_gets_words_of_its_own() -> None:
    index = WatchedIndex()
    served = Pipeline(index=index)
    served.send("d1", 1, sections("ash", "birch"))
    await served.drain()
    built = HybridPipeline(policy=HYBRID, index=index, lender=Lender(served.batch, served.policy.fingerprint))
    built.send("d1", 1, sections("ash", "birch"))
    await built.drain()
    last = built.receipts()[-1]
    assert (last.embedded, last.borrowed) == (0, 2)
    assert await words_are_right(built, "d1")


def test_a_policy_without_sparse_keeps_its_fingerprint_and_one_with_it_is_another_batch() -> None:
    assert "sparse" in POLICY.model_dump()
    fingerprints = {
        POLICY.fingerprint,
        HYBRID.model_copy(update={"version": 1}).fingerprint,
        HYBRID.model_copy(update={"version": 1, "sparse": Sparse(average_words=80)}).fingerprint,
    }
    assert len(fingerprints) == 3


def test_the_collection_says_which_words_it_holds() -> None:
    now = datetime(2031, 1, 1, tzinfo=UTC)
    assert HYBRID.sparse is not None
    assert collection_spec(batch_record(HYBRID, "", "active", "kb", now), HYBRID).sparse_spec == HYBRID.sparse.spec
    assert collection_spec(batch_record(POLICY, "", "active", "kb", now), POLICY).sparse_spec == ""


async def test_two_writers_of_one_text_write_the_same_sparse_vector() -> None:
    sparse = open_sparse(Sparse().spec)
    assert sparse is not None
    texts = ["连续飞行超过八小时的国际航班，可以订超级经济舱。" * 3, "Trucks are pre-cooled for at least 45 minutes."]
    first, *others = await asyncio.gather(*(sparse.documents(texts) for _ in range(4)))
    assert all(other == first for other in others)
