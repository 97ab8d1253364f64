"""Cases of area kafka-faust that are about the agents' bodies: poison, failures, tombstones, repeats."""

from __future__ import annotations

import base64

import pytest

from schemas.record import document_key
from streams.errors import Stopping, Unavailable
from tests.support.pipeline import Pipeline, garbage, sections


async def test_ka_01_poison_is_parked_once_with_its_bytes_and_stops_nobody() -> None:
    pipeline = Pipeline()
    pipeline.send("d1", 1, sections("ash"))
    poison = [b"not json", garbage(id=None), garbage(schema="docdelta.receipt/1", tenant_id="A")]
    for value in poison:
        pipeline.send_raw(b"A/dx", value)
    pipeline.send("dy", 1, "%unreadable%")
    pipeline.send("d2", 1, sections("birch"))
    await pipeline.drain()
    assert [len(await pipeline.ids(name)) for name in ("d1", "d2")] == [1, 1]
    letters = pipeline.dead_letters()
    assert [(letter.topic, letter.partition, letter.offset) for letter in letters] == [("t.documents", 0, n) for n in (1, 2, 3, 4)]
    assert [base64.b64decode(letter.value or "") for letter in letters[:3]] == poison
    assert all(letter.error and letter.reason and letter.key and letter.attempts >= 1 for letter in letters)
    assert pipeline.positions["t.documents"] == 6


async def test_ka_01_a_text_the_model_refuses_takes_no_neighbour_with_it() -> None:
    pipeline = Pipeline()
    pipeline.embedder.max_tokens = 12
    pipeline.send("d1", 1, sections("ash"))
    pipeline.send("d2", 1, "word " * 13)
    pipeline.send("d3", 1, "short")
    await pipeline.drain()
    assert [len(await pipeline.ids(name)) for name in ("d1", "d2", "d3")] == [0, 0, 1]
    assert {letter.stage for letter in pipeline.dead_letters()} == {"chunker"}


async def test_ka_02_an_outage_is_waited_out_and_a_stop_leaves_the_event_unsettled() -> None:
    pipeline = Pipeline(group_size=1)
    for number in range(1, 10):
        pipeline.send(f"d{number}", 1, sections("ash"))
    pipeline.index.errors = [Unavailable("index is away")] * 4 + [Stopping("shutting down")]
    with pytest.raises(Stopping):
        await pipeline.drain()
    assert pipeline.outcomes() == []
    pipeline.restart()
    await pipeline.drain()
    assert pipeline.outcomes() == ["indexed"] * 9
    assert pipeline.dead_letters() == []


async def test_ka_03_a_null_value_means_delete_and_its_repeat_nothing() -> None:
    pipeline = Pipeline()
    pipeline.send("d1", 3, sections("ash"))
    await pipeline.drain()
    pipeline.send_raw(document_key("A", "d1"), None)
    await pipeline.drain()
    assert await pipeline.ids("d1") == []
    plans = len(pipeline.index.plans)
    pipeline.send_raw(document_key("A", "d1"), None)
    pipeline.send_raw(None, None)
    await pipeline.drain()
    assert len(pipeline.index.plans) == plans
    assert [letter.offset for letter in pipeline.dead_letters()] == [3]
    assert pipeline.outcomes() == ["indexed", "indexed", "unchanged"]


async def test_ka_03_a_null_value_delivered_again_does_not_reach_newer_revisions() -> None:
    pipeline = Pipeline()
    pipeline.send("d1", 1, sections("ash"))
    pipeline.send_raw(document_key("A", "d1"), None)
    pipeline.send("d1", 2, sections("birch"))
    await pipeline.drain()
    pipeline.rewind(2)
    pipeline.restart()
    await pipeline.drain()
    assert len(await pipeline.ids("d1")) == 1


async def test_ka_05_repeats_after_a_rebalance_embed_nothing_and_end_the_same() -> None:
    pipeline = Pipeline()
    for number in range(5):
        pipeline.send(f"d{number}", 1, sections("ash", "birch"))
    pipeline.send("d0", 2, sections("ash", "cedar"))
    await pipeline.drain()
    ids, embedded = await pipeline.ids("d0"), len(pipeline.embedder.texts)
    for steps in (3, 6, 1):
        pipeline.rewind(steps)
        pipeline.restart()
        await pipeline.drain()
    assert await pipeline.ids("d0") == ids
    assert len(pipeline.embedder.texts) == embedded
    for number in range(1, 5):
        assert len(await pipeline.ids(f"d{number}")) == 2
    assert await pipeline.vectors_are_right()
