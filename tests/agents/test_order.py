"""Whatever comes late, the last record of a document in [documents] says its newest revision: compaction can't lose it."""

from __future__ import annotations

import asyncio
from dataclasses import replace

import pytest

from schemas.codec import decode, encode
from schemas.document_change import AGAIN, Content, DocumentChange
from streams import metrics
from streams.agents.memory import remembered
from streams.agents.order import Order
from streams.errors import Unavailable
from streams.lanes.mark import HEADER
from streams.ports import InRecord
from streams.steps.limits import Limits
from streams.steps.settle_change import Seen
from tests.support.desk import desk_over
from tests.support.pipeline import Pipeline, sections

KEY = b"A/d1"


def last(pipeline: Pipeline, key: bytes = KEY) -> InRecord:
    return [record for record in pipeline.log.topics["t.documents"] if record.key == key][-1]


def said(record: InRecord) -> DocumentChange:
    assert record.value is not None
    return decode(record.value, DocumentChange)


def again(pipeline: Pipeline) -> list[InRecord]:
    return [record for record in pipeline.log.topics["t.documents"] if AGAIN in record.headers]


async def rebuilt(pipeline: Pipeline) -> Pipeline:
    """Return what is built from [documents] alone, compacted as far as it can be."""
    other = Pipeline()
    pipeline.compact()
    for record in pipeline.log.topics["t.documents"]:
        other.send_raw(record.key, record.value, record.headers)
    await other.drain()
    return other


def late(pipeline: Pipeline, how: str) -> None:
    """Put a record that says something else behind the newest event."""
    if how == "older":
        pipeline.send("d1", 1, sections("ash"), event_id="late")
    elif how == "older-delete":
        pipeline.send("d1", 2, None, event_id="late")
    elif how == "equal-with-other-content":
        pipeline.send("d1", 3, sections("other"), event_id="late")
    elif how == "unreadable-bytes":
        pipeline.send_raw(KEY, b"not a record")
    elif how == "from-bulk":
        change = DocumentChange(
            tenant_id="A", document_id="d1", revision=1, op="upsert", content=Content(text="old"), event_id="late"
        )
        pipeline.send_raw(KEY, encode(change), {HEADER: b"bulk/0123456789abcdef/7"})


LATE = ("older", "older-delete", "equal-with-other-content", "unreadable-bytes", "from-bulk")


@pytest.mark.parametrize("how", LATE)
async def test_a_rebuild_from_the_compacted_log_has_the_newest_revision(how: str) -> None:
    pipeline = Pipeline()
    pipeline.send("d1", 1, sections("ash"), event_id="first")
    pipeline.send("d1", 3, sections("birch", "cedar"), event_id="newest")
    late(pipeline, how)
    await pipeline.drain()
    other = await rebuilt(pipeline)
    assert said(last(pipeline)).event_id == "newest"
    assert await other.ids("d1") == await pipeline.ids("d1") != []


@pytest.mark.parametrize("how", LATE)
@pytest.mark.parametrize("null", [False, True])
async def test_a_delete_stays_the_last_word(how: str, null: bool) -> None:
    pipeline = Pipeline()
    pipeline.send("d1", 1, sections("ash"), event_id="first")
    if null:
        pipeline.send("d1", 3, sections("birch"))
        pipeline.send_raw(KEY, None)
    else:
        pipeline.send("d1", 3, None, event_id="end")
    late(pipeline, how)
    await pipeline.drain()
    assert (said(last(pipeline)).op, said(last(pipeline)).revision) == ("delete", 3)
    other = await rebuilt(pipeline)
    assert await other.ids("d1") == await pipeline.ids("d1") == []
    other.send("d1", 2, sections("cedar"), event_id="from the grave")
    await other.drain()
    assert await other.ids("d1") == []


async def test_what_is_said_again_has_no_outcome_of_its_own_and_changes_nothing() -> None:
    pipeline = Pipeline()
    pipeline.send("d1", 3, sections("ash"), event_id="newest")
    late(pipeline, "older")
    await pipeline.drain()
    (copy,) = again(pipeline)
    first = pipeline.log.topics["t.documents"][0]
    assert (copy.key, copy.value) == (first.key, first.value)
    assert HEADER not in copy.headers
    assert sorted((r.event_id, r.outcome) for r in pipeline.receipts()) == [("late", "stale"), ("newest", "indexed")]
    assert pipeline.parses == 1
    assert Seen.from_bytes(pipeline.seen.values[KEY]).offset == copy.offset, "the next late event finds it there"


@pytest.mark.parametrize("how", ["delete", "other content", "newer"])
async def test_an_event_whose_producer_sets_the_header_himself_has_its_outcome(how: str) -> None:
    pipeline = Pipeline()
    pipeline.send("d1", 3, sections("ash"), event_id="first")
    await pipeline.drain()
    change = said(last(pipeline)).model_copy(update={"event_id": "mine"})
    if how == "delete":
        change = change.model_copy(update={"op": "delete", "content": None})
    elif how == "other content":
        change = change.model_copy(update={"content": Content(text=sections("birch"))})
    else:
        change = change.model_copy(update={"revision": 4, "content": Content(text=sections("birch"))})
    pipeline.send_raw(KEY, encode(change), {AGAIN: b"0"})
    await pipeline.drain()
    outcomes = {r.event_id: r.outcome for r in pipeline.receipts()}
    assert outcomes["mine"] == ("dead_lettered" if how == "other content" else "indexed")
    assert bool(await pipeline.texts("d1")) == (how != "delete")


async def test_a_delete_at_the_same_revision_overtakes_what_is_said_again() -> None:
    pipeline = Pipeline()
    pipeline.send("d1", 3, sections("ash"), event_id="newest")
    late(pipeline, "older")
    pipeline.send("d1", 3, None, event_id="end")
    await pipeline.drain()
    assert (said(last(pipeline)).op, said(last(pipeline)).event_id) == ("delete", "end")
    assert sorted(r.event_id for r in pipeline.receipts()) == ["end", "late", "newest"]


async def test_a_revision_that_failed_is_said_again_and_not_refused_again() -> None:
    pipeline = Pipeline()
    pipeline.send("d1", 1, sections("ash"))
    pipeline.send("d1", 3, "%unreadable%", event_id="bad")
    pipeline.send("d1", 2, sections("birch"), event_id="late")
    await pipeline.drain()
    assert said(last(pipeline)).event_id == "bad"
    assert len(pipeline.dead_letters()) == 1
    assert pipeline.parses == 2


async def test_nothing_is_said_again_where_order_is_kept() -> None:
    pipeline = Pipeline()
    for revision in (1, 2, 3):
        pipeline.send("d1", revision, sections("ash", str(revision)))
        pipeline.send("d1", revision, sections("ash", str(revision)), event_id="repeated")
    pipeline.send("d1", 4, sections("ash", "3"), event_id="nothing new")
    pipeline.send("d1", 5, None)
    pipeline.send("d1", 5, None, event_id="twice")
    pipeline.send_raw(KEY, None)
    await pipeline.drain()
    pipeline.rewind()
    pipeline.restart()
    await pipeline.drain()
    assert again(pipeline) == []


async def test_a_repeated_event_is_where_it_stood_last() -> None:
    """Compaction may have taken the first of two equal records when a late one comes."""
    pipeline = Pipeline()
    pipeline.send("d1", 3, sections("ash"), event_id="newest")
    pipeline.send("d1", 3, sections("ash"), event_id="repeated")
    await pipeline.drain()
    pipeline.compact()
    late(pipeline, "older")
    await pipeline.drain()
    assert said(last(pipeline)).revision == 3


async def test_an_edit_that_comes_between_is_said_again_in_its_turn() -> None:
    pipeline = Pipeline()
    pipeline.send("d1", 3, sections("ash"), event_id="three")
    late(pipeline, "older")
    pipeline.send("d1", 4, sections("birch"), event_id="four")
    await pipeline.drain()
    words = [said(record).event_id for record in pipeline.log.topics["t.documents"]]
    assert words == ["three", "late", "four", "three", "four"]
    assert [(r.event_id, r.outcome) for r in pipeline.receipts()].count(("four", "indexed")) == 1
    assert len(pipeline.receipts()) == 3


async def test_a_death_before_it_is_said_again_lets_the_late_event_come_again() -> None:
    pipeline = Pipeline()
    pipeline.send("d1", 3, sections("ash"), event_id="newest")
    late(pipeline, "older")
    order = pipeline.parser.order
    assert order is not None

    async def dies(*arguments: object) -> None:
        raise asyncio.CancelledError

    pipeline.parser = replace(pipeline.parser, order=replace(order, say=dies))
    with pytest.raises(asyncio.CancelledError):
        await pipeline.drain()
    pipeline.restart()
    await pipeline.drain()
    assert said(last(pipeline)).event_id == "newest"


async def test_a_broker_that_is_away_is_waited_for() -> None:
    pipeline = Pipeline()
    pipeline.send("d1", 3, sections("ash"), event_id="newest")
    late(pipeline, "older")
    order, tries = pipeline.parser.order, [0]
    assert order is not None

    async def recall(record: InRecord, offset: int) -> InRecord | None:
        tries[0] += 1
        if tries[0] < 4:
            raise Unavailable("broker is away")
        return await order.recall(record, offset)

    pipeline.parser = replace(pipeline.parser, order=Order(recall, order.say))
    await pipeline.drain()
    assert said(last(pipeline)).event_id == "newest"


@pytest.mark.parametrize("left", ["nothing", "another document's", "another revision"])
async def test_what_is_gone_is_counted_and_nothing_else_is_said_in_its_place(left: str) -> None:
    pipeline = Pipeline()
    pipeline.send("d1", 3, sections("ash"), event_id="newest")
    await pipeline.drain()
    record = pipeline.log.topics["t.documents"][0]
    before = metrics.ORDER_LOST._value.get()

    async def recall(late: InRecord, offset: int) -> InRecord | None:
        if left == "nothing":
            return None
        if left == "another document's":
            return replace(record, key=b"A/other")
        return replace(record, value=encode(said(record).model_copy(update={"revision": 2})))

    order = pipeline.parser.order
    assert order is not None
    pipeline.parser = replace(pipeline.parser, order=Order(recall, order.say))
    late(pipeline, "older")
    await pipeline.drain()
    assert again(pipeline) == []
    assert metrics.ORDER_LOST._value.get() == before + 1
    assert await pipeline.texts("d1") != []


async def test_a_document_whose_delete_was_rejected_ends_in_what_is_served() -> None:
    pipeline = Pipeline(breaker=Limits(share=0.5, minimum=4))
    names = [f"d{number}" for number in range(8)]
    for name in names:
        pipeline.send(name, 1, sections(name), event_id=f"{name}@1")
    await pipeline.drain()
    for name in names:
        pipeline.send(name, 2, None, event_id=f"{name}@2")
    await pipeline.drain()
    assert again(pipeline) == [], "nothing is said while nobody has decided"
    desk = desk_over(pipeline)
    desk.rule(desk.plan("A", "reject", ""), 0)
    pipeline.view.look()
    await pipeline.drain()
    other = await rebuilt(pipeline)
    there = [name for name in names if await pipeline.ids(name)]
    assert there == names[3:]
    assert [name for name in names if await other.ids(name)] == there


async def test_a_memory_made_again_knows_where_the_newest_of_a_kept_document_stands() -> None:
    pipeline = Pipeline(breaker=Limits(share=0.5, minimum=4))
    names = [f"d{number}" for number in range(8)]
    for name in names:
        pipeline.send(name, 1, sections(name), event_id=f"{name}@1")
    await pipeline.drain()
    for name in names:
        pipeline.send(name, 2, None, event_id=f"{name}@2")
    await pipeline.drain()
    desk = desk_over(pipeline)
    desk.rule(desk.plan("A", "reject", ""), 0)
    pipeline.view.look()
    await pipeline.drain()
    rows = remembered(pipeline.log.topics["t.documents"], {}, pipeline.log.topics["t.parsed"])
    pipeline.seen.values = {key: row.to_bytes() for key, row in rows.items()}
    pipeline.restart()
    pipeline.send("d7", 0, sections("older"), event_id="late")
    await pipeline.drain()
    assert said(last(pipeline, b"A/d7")).event_id == "d7@1"
    assert Seen.from_bytes(pipeline.seen.values[b"A/d7"]).dropped == 2, "what was rejected stays so"


async def test_a_memory_made_again_from_the_compacted_log_refuses_what_the_first_one_refused() -> None:
    pipeline = Pipeline()
    pipeline.send("d1", 3, sections("ash"), event_id="newest")
    late(pipeline, "older")
    await pipeline.drain()
    pipeline.compact()
    rows = remembered(pipeline.log.topics["t.documents"], {}, pipeline.log.topics["t.parsed"])
    pipeline.seen.values = {key: row.to_bytes() for key, row in rows.items()}
    pipeline.restart()
    pipeline.send("d1", 2, sections("birch"), event_id="late again")
    await pipeline.drain()
    assert {r.event_id: r.outcome for r in pipeline.receipts()}["late again"] == "stale"
    assert said(last(pipeline)).event_id == "newest"
