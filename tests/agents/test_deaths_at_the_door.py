"""A worker dies while it lets an event pass or keeps it back: no more pass than may, and nothing is held for ever."""

from __future__ import annotations

from typing import Any

import pytest

from schemas.codec import encode
from schemas.control import Control
from schemas.record import document_key
from streams.errors import InvariantBroken
from streams.steps.limits import Limits
from streams.steps.settle_change import Seen
from tests.support.desk import desk_over
from tests.support.door import NAMES, a_site, delete_all, held, there
from tests.support.pipeline import Pipeline, sections


async def three_under_way(pipeline: Pipeline) -> None:
    """Let a worker die when the first three of the newest events had room and none was out; its heir gets the others first."""
    records = pipeline.log.topics["t.documents"][-len(NAMES) :]
    publish = pipeline.log.publish

    async def dies(topic: str, *record: Any) -> None:
        raise InvariantBroken(f"died before {topic} had it")

    pipeline.log.publish = dies  # type: ignore[assignment,method-assign]
    for record in records[:3]:
        with pytest.raises(InvariantBroken):
            await pipeline.parser.handle(record)
    pipeline.log.publish = publish  # type: ignore[method-assign]
    pipeline.restart()
    for record in records[3:]:
        await pipeline.parser.handle(record)


async def test_what_is_out_when_the_breaker_trips_passes_again_and_is_not_held() -> None:
    """A worker died between passing an end on and remembering it, and by then another one had tripped."""
    pipeline = await a_site()
    put, out = pipeline.seen.put, []

    async def dies(key: bytes, value: bytes) -> None:
        if Seen.from_bytes(value).deleted:
            out.append(key)
            raise InvariantBroken("died")
        await put(key, value)

    pipeline.seen.put = dies  # type: ignore[method-assign]
    pipeline.send("d0", 2, None, event_id="d0@2")
    with pytest.raises(InvariantBroken):
        await pipeline.drain()
    assert out == [b"A/d0"]
    pipeline.seen.put = put  # type: ignore[method-assign]
    trip = Control(kind="tripped", at=pipeline.holding.outbox.now(), tenant_id="A", partition=1)
    await pipeline.log.publish("t.controls", trip.key, encode(trip))
    pipeline.restart()
    pipeline.send("d1", 2, None)
    await pipeline.drain()
    assert held(pipeline) == {"d1"}
    assert await there(pipeline) == NAMES[1:]
    assert Seen.from_bytes(pipeline.seen.values[b"A/d0"]).deleted


@pytest.mark.parametrize("what", ["deletes", "changes"])
async def test_what_was_under_way_when_a_worker_died_counts_before_it_comes_again(what: str) -> None:
    """Three had room, and the worker died before any was out. Records of other partitions come first to its heir."""
    pipeline = await a_site(Limits(share=0.5, churn_share=0.5, minimum=4))
    for name in NAMES:
        pipeline.send(name, 2, None if what == "deletes" else sections(f"{name} again"), event_id=f"{name}@2")
    await three_under_way(pipeline)
    assert held(pipeline) == set(NAMES[3:])
    await pipeline.drain()
    assert held(pipeline) == set(NAMES[3:])
    rows = {name: Seen.from_bytes(pipeline.seen.values[document_key("A", name)]) for name in NAMES}
    assert [name for name in NAMES if rows[name].revision == 2] == NAMES[:3]
    assert all(row.passing < 0 for row in rows.values())


async def test_what_was_under_way_when_it_was_decided_is_not_counted_against_what_comes_later() -> None:
    """Three had room and their worker died; the rest was held and approved. What was decided begins to count anew."""
    pipeline = await a_site()
    delete_all(pipeline)
    await three_under_way(pipeline)
    desk = desk_over(pipeline)
    desk.rule(desk.plan("A", "approve", ""), 0)
    pipeline.view.look()
    await pipeline.drain()
    assert await there(pipeline) == []
    for number in range(8):
        pipeline.send(f"e{number}", 1, sections("new"))
    for number in range(3):
        pipeline.send(f"e{number}", 2, None)
    await pipeline.drain()
    assert held(pipeline) == set()
    pipeline.send("e3", 2, None)
    await pipeline.drain()
    assert held(pipeline) == {"e3"}


@pytest.mark.parametrize("lifted_first", [True, False])
async def test_what_took_another_ones_place_is_released_also_if_its_mark_was_not_written(lifted_first: bool) -> None:
    """[held] has the newer of two, and the worker died before the document's row said so."""
    pipeline = await a_site()
    desk = desk_over(pipeline)
    desk.pause("A", "", "")
    pipeline.view.look()
    pipeline.send("d0", 2, sections("edited"), event_id="first")
    await pipeline.drain()
    put = pipeline.seen.put

    async def dies(key: bytes, value: bytes) -> None:
        raise InvariantBroken("died")

    pipeline.seen.put = dies  # type: ignore[method-assign]
    pipeline.send("d0", 2, sections("edited"), event_id="second", reindex=True)
    with pytest.raises(InvariantBroken):
        await pipeline.drain()
    pipeline.seen.put = put  # type: ignore[method-assign]
    if lifted_first:
        desk.resume("A", "", 0)
        pipeline.restart()
        await pipeline.drain()
    else:
        pipeline.restart()
        await pipeline.drain()
        desk.resume("A", "", 0)
        pipeline.view.look()
        await pipeline.drain()
    assert held(pipeline) == set()
    row = Seen.from_bytes(pipeline.seen.values[document_key("A", "d0")])
    assert (row.revision, row.held) == (2, None)
    outcomes = {receipt.event_id: receipt.outcome for receipt in pipeline.receipts()}
    assert outcomes["first"] == "stale"
    assert outcomes["second"] in ("indexed", "unchanged")
    assert "edited" in "".join(await pipeline.texts("d0"))
