"""A null value that only lets compaction forget (`docdelta gc`) says nothing to the parser, whenever and however often it comes."""

from __future__ import annotations

import pytest

from schemas.document_change import FORGET
from streams.ports import InRecord
from tests.support.pipeline import Pipeline, sections


@pytest.mark.parametrize("state", ["alive", "deleted", "unknown"])
async def test_a_forgetting_changes_nothing_and_settles_nothing(state: str) -> None:
    pipeline = Pipeline()
    if state != "unknown":
        pipeline.send("d1", 1, sections("ash"))
    if state == "deleted":
        pipeline.send("d1", 2, None)
    await pipeline.drain()
    before = (dict(pipeline.seen.values), {name: len(records) for name, records in pipeline.log.topics.items()})
    for _ in range(2):
        await pipeline.parser.handle(InRecord("t.documents", 0, 99, b"A/d1", None, {FORGET: b"2"}))
    assert (pipeline.seen.values, {name: len(records) for name, records in pipeline.log.topics.items()}) == before


async def test_a_late_event_of_a_forgotten_document_is_stale() -> None:
    pipeline = Pipeline()
    pipeline.send("d1", 1, sections("ash"))
    pipeline.send("d1", 2, None)
    await pipeline.drain()
    await pipeline.parser.handle(InRecord("t.documents", 0, 99, b"A/d1", None, {FORGET: b"2"}))
    pipeline.send("d1", 1, sections("ash"), event_id="late")
    await pipeline.drain()
    assert [receipt.outcome for receipt in pipeline.receipts() if receipt.event_id == "late"] == ["stale"]
