"""Cases of area incremental: other projects' mistakes with changing documents, each an example over the agents' real bodies."""

from __future__ import annotations

import pytest

from chunking.identity import length_prefixed
from streams.errors import Unavailable
from tests.support.pipeline import Pipeline, sections


async def test_in_01_a_redelivered_event_writes_nothing_however_small_the_groups() -> None:
    pipeline = Pipeline(group_size=3)
    pipeline.send("d1", 1, sections("ash", "birch", "cedar", "date", "elm", "fir", "gum", "hazel"), event_id="e1")
    await pipeline.drain()
    assert len(await pipeline.ids("d1")) == 8
    embedded, plans = len(pipeline.embedder.texts), len(pipeline.index.plans)
    pipeline.send("d1", 1, sections("ash", "birch", "cedar", "date", "elm", "fir", "gum", "hazel"), event_id="e1")
    await pipeline.drain()
    assert (len(pipeline.embedder.texts), len(pipeline.index.plans)) == (embedded, plans)
    assert min(pipeline.index.sizes) == 8


async def test_in_02_the_old_revision_stays_until_the_new_one_is_embedded() -> None:
    pipeline = Pipeline()
    pipeline.send("d1", 1, sections("ash", "birch"))
    await pipeline.drain()
    old = await pipeline.ids("d1")
    pipeline.send("d1", 2, sections("cedar", "date"))
    pipeline.embedder.answers = [Unavailable("model is away")] * 3
    sizes_before = len(pipeline.index.sizes)
    await pipeline.drain()
    assert pipeline.embedder.calls == 1 + 4
    assert set(await pipeline.ids("d1")).isdisjoint(old)
    assert len(await pipeline.ids("d1")) == 2
    assert 0 not in pipeline.index.sizes[sizes_before:]


async def test_in_03_documents_with_the_same_content_do_not_share_points() -> None:
    pipeline = Pipeline()
    pipeline.send("d1", 1, sections("ash", "birch"))
    pipeline.send("d2", 1, sections("ash", "birch"))
    pipeline.send("d3", 1, sections("birch", "cedar"))
    await pipeline.drain()
    pipeline.send("d1", 2, None)
    await pipeline.drain()
    assert [len(await pipeline.ids(name)) for name in ("d1", "d2", "d3")] == [0, 2, 2]
    pipeline.send("d2", 2, None)
    pipeline.send("d3", 2, None)
    await pipeline.drain()
    assert await pipeline.index.count(pipeline.batch) == 0


async def test_in_04_a_moved_document_keeps_its_chunks_and_vectors() -> None:
    pipeline = Pipeline()
    pipeline.send("d1", 1, sections("ash", "birch"), source_uri="/a/x", attributes={"slug": "x"})
    await pipeline.drain()
    ids, embedded = await pipeline.ids("d1"), len(pipeline.embedder.texts)
    pipeline.send("d1", 2, sections("ash", "birch"), source_uri="/b/x", attributes={"slug": "y"})
    await pipeline.drain()
    assert await pipeline.ids("d1") == ids
    assert len(pipeline.embedder.texts) == embedded
    points = await pipeline.index.document_points(pipeline.batch, "A", "d1")
    assert {(point.payload["source_uri"], point.payload["attributes"]["slug"]) for point in points} == {("/b/x", "y")}


@pytest.mark.parametrize("order", ["delete-first", "create-first"])
async def test_in_04_a_new_identity_ends_the_same_in_either_order(order: str) -> None:
    pipeline = Pipeline()
    pipeline.send("old", 1, sections("ash", "birch"))
    await pipeline.drain()
    steps = [("old", 2, None), ("new", 1, sections("ash", "birch"))]
    for document, revision, text in steps if order == "delete-first" else reversed(steps):
        pipeline.send(document, revision, text)
    await pipeline.drain()
    assert await pipeline.ids("old") == []
    assert len(await pipeline.ids("new")) == 2


@pytest.mark.parametrize("body", ["", "   ", "<p></p>"])
async def test_in_05_an_emptied_document_leaves_no_points_and_stays_empty(body: str) -> None:
    pipeline = Pipeline()
    pipeline.send("d1", 1, sections("ash", "birch", "cedar"))
    await pipeline.drain()
    calls = pipeline.embedder.calls
    pipeline.send("d1", 2, body, media_type="text/html" if body.startswith("<") else "text/markdown")
    await pipeline.drain()
    assert len(pipeline.index.plans[-1].deletes) == 3
    pipeline.send("d1", 1, sections("ash", "birch", "cedar"), event_id="late")
    await pipeline.drain()
    assert await pipeline.ids("d1") == []
    assert pipeline.embedder.calls == calls
    assert pipeline.outcomes()[-1] == "stale"


async def test_in_07_a_shrunk_document_leaves_no_tail() -> None:
    pipeline = Pipeline(group_size=4)
    words = ["ash", "birch", "cedar", "date", "elm", "fir", "gum", "hazel", "iris", "juniper"]
    pipeline.send("d1", 1, sections(*words))
    await pipeline.drain()
    pipeline.send("d1", 2, sections(*words[:5], "kapok", "larch"))
    await pipeline.drain()
    last = pipeline.receipts()[-1]
    assert (last.kept + last.updated, last.added, last.removed, last.embedded) == (5, 2, 5, 2)
    assert len(await pipeline.ids("d1")) == 7
    assert not any("hazel" in text for text in await pipeline.texts("d1"))


async def test_in_08_bookkeeping_outside_of_the_embedded_text_embeds_nothing() -> None:
    pipeline = Pipeline()
    pipeline.send("d1", 1, sections("ash"), attributes={"updated_at": 1, "views": 10})
    await pipeline.drain()
    ids = await pipeline.ids("d1")
    pipeline.send("d1", 2, sections("ash"), attributes={"views": 11, "updated_at": 2})
    await pipeline.drain()
    assert await pipeline.ids("d1") == ids
    assert len(pipeline.embedder.texts) == 1
    points = await pipeline.index.document_points(pipeline.batch, "A", "d1")
    assert [point.payload["attributes"] for point in points] == [{"views": 11}]


async def test_in_10_a_repeat_after_a_lost_answer_writes_the_same_ids() -> None:
    pipeline = Pipeline()
    pipeline.send("d1", 1, sections("ash", "birch", "cedar", "date"))
    pipeline.index.after = [Unavailable("the answer is lost")]
    await pipeline.drain()
    ids = await pipeline.ids("d1")
    embedded = len(pipeline.embedder.texts)
    for _ in range(3):
        pipeline.rewind()
        pipeline.restart()
        await pipeline.drain()
    assert await pipeline.ids("d1") == ids
    assert len(ids) == 4
    assert len(pipeline.embedder.texts) == embedded


async def test_in_13_a_late_event_changes_nothing_and_a_deleted_document_stays_deleted() -> None:
    pipeline = Pipeline()
    pipeline.send("d1", 5, sections("five"), event_id="e5")
    pipeline.send("d1", 7, sections("seven"), event_id="e7")
    pipeline.send("d1", 6, sections("six"), event_id="e6")
    pipeline.send("d1", 7, sections("seven"), event_id="e7")
    await pipeline.drain()
    assert [text.splitlines()[0] for text in await pipeline.texts("d1")] == ["# seven"]
    assert not any("six" in text for text in pipeline.embedder.texts)
    pipeline.send("d1", 8, None, event_id="e8")
    pipeline.send("d1", 7, sections("seven"), event_id="e9")
    await pipeline.drain()
    assert await pipeline.ids("d1") == []
    assert {receipt.event_id: receipt.outcome for receipt in pipeline.receipts()}["e9"] == "stale"


async def test_in_13_the_batch_refuses_a_late_event_even_where_the_parser_forgot() -> None:
    pipeline = Pipeline()
    pipeline.send("d1", 7, sections("seven"), event_id="e7")
    pipeline.send("d1", 8, None, event_id="e8")
    await pipeline.drain()
    pipeline.seen.values.clear()
    pipeline.send("d1", 7, sections("seven"), event_id="e9")
    await pipeline.drain()
    assert await pipeline.ids("d1") == []
    assert pipeline.outcomes()[-1] == "stale"


def test_in_15_fields_of_an_id_can_not_run_into_each_other() -> None:
    assert length_prefixed("ab", "c") != length_prefixed("a", "bc")


async def test_in_16_the_tenant_comes_from_the_envelope_alone() -> None:
    pipeline = Pipeline()
    pipeline.send("d1", 1, sections("ash"), tenant="A", attributes={"tenant_id": "B", "policy_version": "x"})
    pipeline.send("d1", 1, sections("ash"), tenant="B")
    pipeline.send_raw(b"A/d2", b'{"schema":"docdelta.document_change/1","document_id":"d2","revision":1,"op":"delete"}')
    await pipeline.drain()
    pipeline.send("d1", 2, None, tenant="B")
    await pipeline.drain()
    points = await pipeline.index.document_points(pipeline.batch, "A", "d1")
    assert [point.payload["tenant_id"] for point in points] == ["A"]
    assert await pipeline.ids("d1", "B") == []
    assert len(pipeline.dead_letters()) == 1
