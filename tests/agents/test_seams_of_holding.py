"""The door beside the other parts: what a person decided outlives re-index, repair, duplicates and a lost memory."""

from __future__ import annotations

from dataclasses import replace

import pytest

from schemas.codec import decode, encode
from schemas.document_change import DocumentChange
from streams.agents.memory import remembered
from streams.kafka.produce import OutRecord
from streams.steps.limits import Limits
from streams.steps.settle_change import Seen
from tests.support.desk import desk_over
from tests.support.pipeline import Pipeline, sections

LIMITS = Limits(share=0.5, minimum=4)
NAMES = [f"d{number}" for number in range(8)]


async def a_mass_delete(null: bool = False) -> Pipeline:
    """Return a site of eight documents at revision 1; the deletes of d0 to d2 passed, the other five are held."""
    pipeline = Pipeline(breaker=LIMITS)
    for name in NAMES:
        pipeline.send(name, 1, sections(name), event_id=f"{name}@1")
    await pipeline.drain()
    for name in NAMES:
        if null:
            pipeline.send_raw(f"A/{name}".encode(), None)
        else:
            pipeline.send(name, 2, None, event_id=f"{name}@2")
    await pipeline.drain()
    assert await there(pipeline) == NAMES[3:]
    return pipeline


async def there(pipeline: Pipeline) -> list[str]:
    return [name for name in NAMES if await pipeline.ids(name)]


def rule(pipeline: Pipeline, verdict: str) -> None:
    desk = desk_over(pipeline)
    desk.rule(desk.plan("A", verdict, ""), 0)  # type: ignore[arg-type]
    pipeline.view.look()


def sent_again(pipeline: Pipeline, name: str, revision: int = 2) -> None:
    """Send a document's delete as `reindex` and `audit --repair` do: it is its newest event."""
    pipeline.send(name, revision, None, event_id=f"{name}@2#reindex-1", reindex=True)


def lose_memory(pipeline: Pipeline) -> None:
    """Lose table `seen`, and make it again from the log as the parser's duties do."""
    topics, names = pipeline.log.topics, pipeline.names
    held = desk_over(pipeline).held()
    settled = topics[names.documents][: pipeline.positions[names.documents]]
    rows = remembered(settled, {key: each.change for key, each in held.items()}, topics[names.parsed])
    pipeline.seen.values.clear()
    pipeline.seen.values |= {key: seen.to_bytes() for key, seen in rows.items()}
    pipeline.restart()


@pytest.mark.parametrize("null", [False, True])
async def test_a_delete_that_was_rejected_is_not_brought_back_by_a_re_index(null: bool) -> None:
    pipeline = await a_mass_delete(null)
    rule(pipeline, "reject")
    await pipeline.drain()
    for name in NAMES:
        sent_again(pipeline, name, 1 if null else 2)
    await pipeline.drain()
    pipeline.rewind(4)
    pipeline.restart()
    await pipeline.drain()
    assert await there(pipeline) == NAMES[3:]
    assert desk_over(pipeline).held() == {}
    last = next(receipt for receipt in pipeline.receipts() if receipt.event_id == "d7@2#reindex-1")
    assert (last.outcome, "decided against" in last.reason) == ("unchanged", True)


async def test_nor_by_one_that_comes_before_the_held_delete_is_dropped() -> None:
    pipeline = await a_mass_delete()
    desk = desk_over(pipeline)
    plan = desk.plan("A", "reject", "")
    assert plan.decision is not None
    record = desk.controls().with_decision("A", plan.decision, "ops")
    desk.write([OutRecord(desk.controls_topic, record.key, encode(record))])
    pipeline.view.look()
    sent_again(pipeline, "d7")  # and only now the command sends what is held
    rule(pipeline, "reject")
    await pipeline.drain()
    assert await there(pipeline) == NAMES[3:]
    assert desk.held() == {}


async def test_a_delete_that_its_source_sends_later_goes_in_spite_of_it() -> None:
    pipeline = await a_mass_delete()
    rule(pipeline, "reject")
    await pipeline.drain()
    pipeline.send("d3", 2, None, event_id="once more")
    pipeline.send("d4", 3, sections("d4 anew"), event_id="d4@3")
    sent_again(pipeline, "d4", 4)
    await pipeline.drain()
    assert await there(pipeline) == NAMES[5:]


async def test_what_was_rejected_stays_rejected_where_the_newest_revision_is_parsed_again() -> None:
    pipeline = await a_mass_delete()
    rule(pipeline, "reject")
    await pipeline.drain()
    pipeline.send("d7", 1, sections("d7"), event_id="d7@1#replay", reindex=True)
    sent_again(pipeline, "d7")
    await pipeline.drain()
    assert await there(pipeline) == NAMES[3:]


async def test_a_null_value_that_was_held_deletes_in_spite_of_what_was_parsed_again_meanwhile() -> None:
    pipeline = await a_mass_delete(null=True)
    pipeline.send("d7", 1, sections("d7"), event_id="d7@1#replay", reindex=True)
    await pipeline.drain()
    rule(pipeline, "approve")
    await pipeline.drain()
    assert await there(pipeline) == []
    assert desk_over(pipeline).held() == {}


@pytest.mark.parametrize("null", [False, True])
@pytest.mark.parametrize("verdict", ["approve", "reject"])
async def test_held_events_outlive_the_parsers_memory(verdict: str, null: bool) -> None:
    pipeline = await a_mass_delete(null)
    lose_memory(pipeline)
    assert pipeline.holding.counts.held({0}) == {"breaker": 5, "paused": 0}
    rule(pipeline, verdict)
    await pipeline.drain()
    assert await there(pipeline) == ([] if verdict == "approve" else NAMES[3:])
    assert desk_over(pipeline).held() == {}


async def test_an_older_revision_does_not_take_the_place_of_a_held_one_when_memory_was_lost() -> None:
    pipeline = Pipeline(breaker=LIMITS)
    pipeline.send("d0", 1, sections("one"), event_id="d0@1")
    await pipeline.drain()
    desk = desk_over(pipeline)
    desk.pause("A", "", "")
    pipeline.view.look()
    pipeline.send("d0", 5, sections("five"), event_id="d0@5")
    await pipeline.drain()
    lose_memory(pipeline)
    pipeline.send("d0", 4, sections("four"), event_id="d0@4")
    await pipeline.drain()
    (held,) = desk.held().values()
    assert held.change.revision == 5
    desk.resume("A", "", 0)
    await pipeline.drain()
    assert (await pipeline.texts("d0"))[0].startswith("# five")
    row = Seen.from_bytes(pipeline.seen.values[b"A/d0"])
    assert (row.revision, row.held) == (5, None)


async def test_what_was_rejected_is_there_for_a_memory_made_again() -> None:
    pipeline = await a_mass_delete()
    rule(pipeline, "reject")
    await pipeline.drain()
    lose_memory(pipeline)
    row = Seen.from_bytes(pipeline.seen.values[b"A/d7"])
    assert (row.revision, row.live, row.dropped) == (1, True, 2)
    for name in NAMES:
        sent_again(pipeline, name)
    pipeline.send("d6", 1, sections("d6"), event_id="a duplicate")
    await pipeline.drain()
    assert await there(pipeline) == NAMES[3:]
    assert pipeline.dead_letters() == []


async def test_what_is_sent_back_of_a_null_value_says_what_it_deletes() -> None:
    pipeline = await a_mass_delete(null=True)
    rule(pipeline, "approve")
    released = [record for record in pipeline.log.topics["t.documents"] if record.headers]
    changes = [decode(record.value or b"", DocumentChange) for record in released]
    assert [(each.op, each.revision, each.document_id) for each in changes] == [("delete", 1, name) for name in NAMES[3:]]


async def test_a_mass_delete_with_a_clock_that_is_hours_behind_is_counted_like_any_other() -> None:
    """A mirrored topic keeps the times of its source, and a producer's clock may be wrong."""
    assert await _held_of_a_mass_delete(hours=3) == await _held_of_a_mass_delete(hours=0) > 200


async def _held_of_a_mass_delete(hours: float) -> int:
    pipeline = Pipeline(breaker=LIMITS)
    little, much = [f"old-{number}" for number in range(200)], [f"page-{number}" for number in range(400)]
    for name in (*little, *much):
        pipeline.send(name, 1, sections("page"), event_id=f"{name}@1")
    await pipeline.drain()
    now = pipeline.holding.outbox.now().timestamp()
    for number, name in enumerate(little):  # one a minute, for hours: as it should be
        pipeline.send(name, 2, None, event_id=f"{name}@2")
        _stamped(pipeline, now - (200 - number) * 60)
    await pipeline.drain()
    assert desk_over(pipeline).held() == {}
    for name in much:
        pipeline.send(name, 2, None, event_id=f"{name}@2")
        _stamped(pipeline, now - hours * 3600)
    await pipeline.drain()
    return len(desk_over(pipeline).held())


def _stamped(pipeline: Pipeline, time: float) -> None:
    topic = pipeline.log.topics[pipeline.names.documents]
    topic[-1] = replace(topic[-1], timestamp=time)
