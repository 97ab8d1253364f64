"""The bodies of chunker and indexer: what is refused, overtaken, suspect or lost, and what comes after."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from chunking.manifest import Manifest
from schemas.chunk_changes import ChunkChanges
from schemas.codec import decode
from schemas.record import document_key
from streams.agents.recheck import recheck, recheck_seen
from streams.errors import PoisonRecord, Unavailable
from streams.ports import IndexPlan, Vector
from tests.support.pipeline import Pipeline, WatchedEmbedder, sections

BAD = "nettle"


class Squeamish(WatchedEmbedder):
    """Refuses every call with BAD in it."""

    async def embed(self, texts: Sequence[str]) -> list[Vector]:
        if any(BAD in text for text in texts):
            raise PoisonRecord("no finite vector")
        return await super().embed(texts)


def manifest(pipeline: Pipeline, document: str) -> Manifest:
    value = pipeline.table.get(document_key("A", document))
    assert value is not None
    return Manifest.from_bytes(value)


def changes(pipeline: Pipeline) -> list[ChunkChanges]:
    return [decode(record.value, ChunkChanges) for record in pipeline.log.topics["t.changes." + pipeline.batch] if record.value]


async def test_one_change_embeds_one_chunk() -> None:
    pipeline = Pipeline()
    pipeline.send("d1", 1, sections("ash", "birch", "cedar"))
    await pipeline.drain()
    pipeline.send("d1", 2, sections("ash", "date", "cedar"))
    await pipeline.drain()
    last = pipeline.receipts()[-1]
    assert (last.outcome, last.added, last.removed, last.embedded) == ("indexed", 1, 1, 1)


async def test_what_writes_nothing_says_why() -> None:
    pipeline = Pipeline()
    pipeline.send("empty", 1, "")
    await pipeline.drain()
    assert [(each.outcome, each.reason) for each in pipeline.receipts()] == [("unchanged", "there is no text in it")]


async def test_a_moved_section_embeds_nothing_and_keeps_its_id() -> None:
    pipeline = Pipeline()
    pipeline.send("d1", 1, sections("ash", "birch", "cedar"))
    await pipeline.drain()
    ids = await pipeline.ids("d1")
    pipeline.send("d1", 2, sections("cedar", "ash", "birch"))
    await pipeline.drain()
    assert await pipeline.ids("d1") == [ids[2], ids[0], ids[1]]
    assert pipeline.receipts()[-1].embedded == 0


async def test_while_a_newer_revision_is_refused_the_last_good_one_keeps_serving() -> None:
    pipeline = Pipeline(embedder=Squeamish())
    pipeline.send("d1", 1, sections("ash", "birch"))
    await pipeline.drain()
    ids = await pipeline.ids("d1")
    pipeline.send("d1", 2, sections("cedar", BAD))
    await pipeline.drain()
    assert await pipeline.ids("d1") == ids
    assert pipeline.outcomes()[-1] == "dead_lettered"
    assert manifest(pipeline, "d1").suspect


async def test_the_event_after_a_refused_one_compares_with_the_index_and_is_whole() -> None:
    pipeline = Pipeline(embedder=Squeamish())
    pipeline.send("d1", 1, sections("ash", BAD))
    await pipeline.drain()
    pipeline.send("d1", 2, sections("ash", "birch"))
    await pipeline.drain()
    assert len(await pipeline.ids("d1")) == 2
    assert pipeline.outcomes() == ["dead_lettered", "indexed"]
    assert not manifest(pipeline, "d1").suspect


async def test_a_revision_planned_on_top_of_a_refused_one_is_still_indexed_whole() -> None:
    pipeline = Pipeline(embedder=Squeamish(), group_size=1)
    pipeline.send("d1", 1, sections("ash", BAD))
    pipeline.send("d1", 2, sections("ash", "birch"))
    await pipeline.drain()  # the chunker plans both before the indexer sees the first
    assert [text.splitlines()[0] for text in await pipeline.texts("d1")] == ["# ash", "# birch"]
    assert pipeline.outcomes()[-1] == "indexed"


async def test_a_text_the_model_refuses_takes_no_other_document_of_its_group_with_it() -> None:
    pipeline = Pipeline(embedder=Squeamish())
    for name, words in (("d1", ("ash",)), ("d2", (BAD,)), ("d3", ("cedar",))):
        pipeline.send(name, 1, sections(*words))
    await pipeline.drain()
    assert [len(await pipeline.ids(name)) for name in ("d1", "d2", "d3")] == [1, 0, 1]
    assert [letter.document_id for letter in pipeline.dead_letters()] == ["d2"]
    assert await pipeline.vectors_are_right()


async def test_an_overtaken_revision_is_not_embedded_and_readers_never_find_less_than_a_whole_revision() -> None:
    pipeline = Pipeline(group_size=1)
    pipeline.send("d1", 1, sections("ash", "birch"))
    await pipeline.drain()
    for revision, word in enumerate(("cedar", "date", "elm"), start=2):
        pipeline.send("d1", revision, sections("ash", word))
    await pipeline.drain()
    assert not any("cedar" in text or "date" in text for text in pipeline.embedder.texts)
    assert [text.splitlines()[0] for text in await pipeline.texts("d1")] == ["# ash", "# elm"]
    assert min(pipeline.index.sizes) == 2
    assert not manifest(pipeline, "d1").suspect


async def test_a_lost_manifest_costs_no_embedding_and_leaves_nothing_over() -> None:
    pipeline = Pipeline()
    pipeline.send("d1", 1, sections("ash", "birch", "cedar"))
    await pipeline.drain()
    embedded = len(pipeline.embedder.texts)
    pipeline.table.values.clear()
    pipeline.send("d1", 2, sections("ash", "cedar"))
    await pipeline.drain()
    assert [text.splitlines()[0] for text in await pipeline.texts("d1")] == ["# ash", "# cedar"]
    assert len(pipeline.embedder.texts) == embedded
    assert changes(pipeline)[-1].complete


@pytest.mark.parametrize("last", [None, sections("elm"), sections("ash", "date")], ids=["deleted", "edited", "edited back"])
async def test_a_revision_planned_by_an_owner_that_is_gone_and_compacted_since_leaves_nothing_over(last: str | None) -> None:
    """Its changes are in, its manifest is not, and nobody meets it in [parsed] again."""
    pipeline = Pipeline()
    pipeline.send("d1", 1, sections("ash", "birch"))
    await pipeline.drain()
    before = pipeline.table.values[b"A/d1"]
    pipeline.send("d1", 2, sections("ash", "cedar", "date"))
    await pipeline.drain()
    pipeline.table.values[b"A/d1"] = before
    pipeline.send("d1", 3, last)
    await pipeline.drain()
    assert await pipeline.texts("d1") == ([] if last is None else await expected(last))
    assert changes(pipeline)[-1].complete


async def test_revisions_that_were_never_passed_on_are_not_missed_by_a_batch() -> None:
    pipeline = Pipeline()
    for revision, text in enumerate([*[sections("ash", "birch")] * 2, "%unreadable%", sections("ash", "date")], start=1):
        pipeline.send("d1", revision, text)
        await pipeline.drain()
    assert pipeline.outcomes() == ["indexed", "unchanged", "dead_lettered", "indexed"]
    assert not any(each.complete for each in changes(pipeline)[1:]), "nothing is asked of the index"


async def expected(text: str) -> list[str]:
    """Chunk texts of a document that is all there ever was."""
    alone = Pipeline()
    alone.send("d1", 1, text)
    await alone.drain()
    return await alone.texts("d1")


async def test_a_reindex_repairs_what_the_index_lost() -> None:
    pipeline = Pipeline()
    pipeline.send("d1", 1, sections("ash", "birch"))
    await pipeline.drain()
    pipeline.index = type(pipeline.index)()
    pipeline.restart()
    pipeline.send("d1", 1, sections("ash", "birch"), reindex=True)
    await pipeline.drain()
    assert len(await pipeline.ids("d1")) == 2


async def test_a_reindex_brings_back_no_document_deleted_at_its_revision() -> None:
    pipeline = Pipeline()
    pipeline.send("d1", 1, sections("ash"))
    pipeline.send("d1", 1, None)
    pipeline.send("d1", 1, sections("ash"), reindex=True)
    await pipeline.drain()
    assert await pipeline.ids("d1") == []
    assert pipeline.outcomes()[-1] in ("stale", "indexed")
    assert manifest(pipeline, "d1").deleted


async def test_two_ends_at_one_revision_are_not_poison() -> None:
    pipeline = Pipeline()
    pipeline.send("d1", 1, sections("ash"), title="A title")
    pipeline.send("d1", 2, None, title="A title")
    pipeline.send("d1", 2, None)
    await pipeline.drain()
    assert pipeline.dead_letters() == []


async def test_em_01_the_indexer_waits_out_a_wrong_number_of_vectors() -> None:
    pipeline = Pipeline()
    pipeline.embedder.answers = [Unavailable("another number of vectors than texts")] * 2
    pipeline.send("d1", 1, sections("ash", "birch", "cedar"))
    await pipeline.drain()
    assert len(pipeline.index.plans) == 1
    assert await pipeline.vectors_are_right()


async def test_em_04_a_chunk_the_model_would_cut_is_refused_by_name_and_size() -> None:
    pipeline = Pipeline(embedder=WatchedEmbedder(max_tokens=10))
    pipeline.send("d1", 1, "common start " * 12 + "needle one")
    await pipeline.drain()
    (letter,) = pipeline.dead_letters()
    assert "26 tokens" in letter.reason
    assert letter.facts["chunk_id"].startswith("chk_")
    assert pipeline.embedder.texts == []


async def test_a_recheck_does_over_what_a_late_predecessor_undid() -> None:
    pipeline = Pipeline()
    pipeline.send("d1", 1, sections("ash", "birch"))
    pipeline.send("d1", 2, sections("ash", "cedar"))
    pipeline.group_size = 1
    await pipeline.drain()
    ids, late = await pipeline.ids("d1"), pipeline.index.plans[0]
    await pipeline.index.apply(pipeline.batch, late)  # birch is back, as an older owner's upsert would bring it
    handled = pipeline.log.topics["t.changes." + pipeline.batch]
    late_manifest = pipeline.table.values[b"A/d1"]
    await recheck(pipeline.indexer, pipeline.indexer.manifests, [b"A/d1"], handled)
    await recheck_seen(pipeline.seen, pipeline.parser.outbox.patience, [b"A/d1", b"A/unknown"])
    assert await pipeline.ids("d1") == ids
    assert Manifest.from_bytes(pipeline.table.values[b"A/d1"]).entries == Manifest.from_bytes(late_manifest).entries


@pytest.mark.parametrize("rechecked", [True, False])
async def test_a_recheck_puts_kept_chunks_where_this_owner_has_them(rechecked: bool) -> None:
    """A predecessor planned the same revisions with other order keys, and has stamped what the newest one keeps with it."""
    pipeline = Pipeline()
    pipeline.send("d1", 1, sections("ash", "birch", "cedar"))
    pipeline.send("d1", 2, sections("ash", "birch", "elm"))
    await pipeline.drain()
    ids = await pipeline.ids("d1")
    handled = pipeline.log.topics["t.changes." + pipeline.batch]
    ash = (await pipeline.index.retrieve(pipeline.batch, ids))[ids[0]].payload
    assert ash["revision"] == 2
    other = {name: value for name, value in ash.items() if name != "order_key"} | {"order_key": 1 << 40}
    await pipeline.index.apply(pipeline.batch, IndexPlan("A", "d1", 2, payloads=((ids[0], other),)))
    assert await pipeline.ids("d1") != ids
    await pipeline.indexer.handle(handled, again=rechecked)
    assert (await pipeline.ids("d1") == ids) is rechecked
    keys = {entry.chunk_id: entry.order_key for entry in Manifest.from_bytes(pipeline.table.values[b"A/d1"]).entries}
    points = await pipeline.index.retrieve(pipeline.batch, ids)
    assert ({name: point.payload["order_key"] for name, point in points.items()} == keys) is rechecked
    assert await pipeline.vectors_are_right()
