"""A null value that only lets compaction forget (`docdelta gc`) says nothing to the parser, whenever and however often it comes."""

from __future__ import annotations

import pytest

from schemas.codec import decode
from schemas.document_change import FORGET, DocumentChange
from streams.ports import InRecord
from tests.support.pipeline import Pipeline, sections


@pytest.mark.parametrize("state", ["deleted", "unknown"])
async def test_a_forgetting_changes_nothing_and_settles_nothing(state: str) -> None:
    pipeline = Pipeline()
    if state == "deleted":
        pipeline.send("d1", 1, sections("ash"))
        pipeline.send("d1", 2, None)
    await pipeline.drain()
    before = (dict(pipeline.seen.values), {name: len(records) for name, records in pipeline.log.topics.items()})
    for _ in range(2):
        await pipeline.parser.handle(InRecord("t.documents", 0, 99, b"A/d1", None, {FORGET: b"2"}))
    assert (pipeline.seen.values, {name: len(records) for name, records in pipeline.log.topics.items()}) == before


async def test_a_forgetting_that_came_behind_a_revival_is_followed_by_it_once_more() -> None:
    """`docdelta gc` mends that by itself; killed before, it is the parser that does."""
    pipeline = Pipeline()
    pipeline.send("d1", 1, None)
    pipeline.send("d1", 2, sections("ash"), event_id="back")
    pipeline.send_raw(b"A/d1", None, {FORGET: b"1"})
    await pipeline.drain()
    pipeline.compact()
    (left,) = pipeline.log.topics["t.documents"]
    assert left.value is not None
    assert decode(left.value, DocumentChange).event_id == "back"
    assert await pipeline.texts("d1") != []


async def test_a_late_event_of_a_forgotten_document_is_stale() -> None:
    pipeline = Pipeline()
    pipeline.send("d1", 1, sections("ash"))
    pipeline.send("d1", 2, None)
    await pipeline.drain()
    await pipeline.parser.handle(InRecord("t.documents", 0, 99, b"A/d1", None, {FORGET: b"2"}))
    pipeline.send("d1", 1, sections("ash"), event_id="late")
    await pipeline.drain()
    assert [receipt.outcome for receipt in pipeline.receipts() if receipt.event_id == "late"] == ["stale"]
