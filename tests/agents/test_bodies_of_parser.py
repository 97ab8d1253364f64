"""The parser's body: what it passes on, what it settles by itself, and in which order it does things."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from schemas.codec import decode
from schemas.parsed_document import ParsedDocument
from streams.errors import Unavailable
from streams.ports import InRecord
from streams.steps.settle_change import Seen
from tests.support.pipeline import Pipeline, sections


def passed_on(pipeline: Pipeline) -> list[tuple[int, str]]:
    records = pipeline.log.topics["t.parsed"]
    return [(parsed.revision, parsed.op) for record in records if record.value for parsed in [decode(record.value, ParsedDocument)]]


async def test_same_content_under_a_newer_revision_is_settled_before_it_is_parsed() -> None:
    pipeline = Pipeline()
    pipeline.send("d1", 1, sections("ash"))
    pipeline.send("d1", 2, sections("ash"))
    await pipeline.drain()
    assert pipeline.parses == 1
    assert passed_on(pipeline) == [(1, "upsert")]
    assert Seen.from_bytes(pipeline.seen.values[b"A/d1"]).revision == 2


async def test_a_failed_revision_makes_older_ones_stale_and_is_parsed_again_when_sent_again() -> None:
    pipeline = Pipeline()
    pipeline.send("d1", 1, sections("ash"))
    pipeline.send("d1", 3, "%unreadable%", event_id="bad")
    pipeline.send("d1", 2, sections("birch"), event_id="late")
    pipeline.send("d1", 3, "%unreadable%", event_id="again")
    await pipeline.drain()
    assert passed_on(pipeline) == [(1, "upsert")]
    outcomes = {receipt.event_id: receipt.outcome for receipt in pipeline.receipts()}
    assert (outcomes["bad"], outcomes["late"], outcomes["again"]) == ("dead_lettered", "stale", "dead_lettered")
    assert pipeline.parses == 3


async def test_nothing_is_remembered_before_the_broker_has_what_is_passed_on() -> None:
    pipeline = Pipeline()
    publish, refusals = pipeline.log.publish, [3]

    async def away(topic: str, key: bytes, value: bytes, *more: Any) -> None:
        assert pipeline.seen.values == {}
        if refusals[0]:
            refusals[0] -= 1
            raise Unavailable("broker is away")
        await publish(topic, key, value, *more)

    pipeline.log.publish = away  # type: ignore[method-assign]
    pipeline.send("d1", 1, sections("ash"))
    await pipeline._each("t.documents", pipeline.parser.handle)
    assert passed_on(pipeline) == [(1, "upsert")]
    assert list(pipeline.seen.values) == [b"A/d1"]


async def test_a_crash_after_passing_on_passes_the_same_on_again() -> None:
    pipeline = Pipeline()
    pipeline.send("d1", 1, sections("ash"))
    await pipeline.drain()
    pipeline.seen.values.clear()
    pipeline.rewind()
    pipeline.restart()
    await pipeline.drain()
    assert passed_on(pipeline) == [(1, "upsert"), (1, "upsert")]
    assert pipeline.outcomes().count("indexed") == len(pipeline.outcomes())
    assert len(await pipeline.ids("d1")) == 1


@pytest.mark.parametrize(
    "value",
    [
        pytest.param(b'{"schema":"docdelta.document_change/' + b"1" * 5000 + b'"}', id="a version of 5000 digits"),
        pytest.param(b'{"schema":"docdelta.document_change/1","revision":' + b"1" * 5000 + b"}", id="a number of 5000 digits"),
        pytest.param(b"[" * 100_000, id="nested without end"),
        pytest.param(b'{"a":' * 100_000, id="objects without end"),
        pytest.param("{}".encode("utf-16"), id="another encoding"),
        pytest.param(b"", id="nothing"),
    ],
)
async def test_no_bytes_on_any_topic_leave_an_agent_as_an_error(value: bytes) -> None:
    pipeline = Pipeline()
    record = InRecord("topic", 0, 1, b"A/d1", value, {"h": b"\xff"}, timestamp=1e15)
    await pipeline.parser.handle(record)
    await pipeline.chunker.handle(record)
    await pipeline.indexer.handle([record])
    assert [letter.stage for letter in pipeline.dead_letters()] == ["parser", "chunker", "indexer"]


async def test_a_time_that_no_calendar_has_does_not_stop_a_document() -> None:
    pipeline = Pipeline()
    pipeline.send("d1", 1, sections("ash"))
    (record,) = pipeline.log.topics["t.documents"]
    for moment in (1e15, -1e15, float("inf")):
        await Pipeline().parser.handle(replace(record, timestamp=moment))
    await pipeline.parser.handle(replace(record, timestamp=1e15))
    assert passed_on(pipeline) == [(1, "upsert")]
