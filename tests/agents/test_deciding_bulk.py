"""A decision on a mass delete covers what of it still waits in [bulk], and nothing that comes there later."""

from __future__ import annotations

import pytest

from schemas.codec import encode
from schemas.control import Decision
from schemas.document_change import DocumentChange
from streams.controls.release import WAITED, standing_of, waited_in
from streams.controls.state import KEPT_DECISIONS, Controls
from streams.lanes.mark import HEADER
from streams.ports import InRecord
from streams.steps.limits import Limits
from tests.support.desk import desk_over
from tests.support.pipeline import Pipeline, sections
from tests.support.ports import SteppingClock

NAMES = [f"d{number:02}" for number in range(20)]
BULK = "t.bulk"


def in_bulk(pipeline: Pipeline, name: str, revision: int) -> None:
    change = DocumentChange(
        tenant_id="A", document_id=name, revision=revision, op="delete", event_id=f"{name}@{revision}"
    )
    log = pipeline.log.topics[BULK]
    log.append(InRecord(BULK, 0, len(log), f"A/{name}".encode(), encode(change)))


def pass_on(pipeline: Pipeline, count: int, begin: int) -> None:
    """Do what the feeder does with records of [bulk]."""
    for record in pipeline.log.topics[BULK][begin : begin + count]:
        pipeline.send_raw(record.key, record.value, {HEADER: b"bulk/0123456789abcdef/1", WAITED: waited_in(record)})


async def half_passed_on() -> Pipeline:
    """Return a site of twenty whose deletes wait in [bulk]: twelve have come to the parser, which held them from the tenth on."""
    pipeline = Pipeline(breaker=Limits(share=0.5, minimum=4))
    for name in NAMES:
        pipeline.send(name, 1, sections(name), event_id=f"{name}@1")
    await pipeline.drain()
    for name in NAMES:
        in_bulk(pipeline, name, 2)
    pass_on(pipeline, 12, 0)
    await pipeline.drain()
    assert await there(pipeline) == NAMES[9:]
    return pipeline


async def there(pipeline: Pipeline) -> list[str]:
    return [name for name in NAMES if await pipeline.ids(name)]


def rule(pipeline: Pipeline, verdict: str) -> None:
    desk = desk_over(pipeline)
    desk.rule(desk.plan("A", verdict, ""), 0)  # type: ignore[arg-type]
    pipeline.view.look()


async def test_what_of_a_rejected_mass_delete_waits_in_bulk_is_dropped_too() -> None:
    pipeline = await half_passed_on()
    rule(pipeline, "reject")
    pass_on(pipeline, 8, 12)
    await pipeline.drain()
    assert await there(pipeline) == NAMES[9:], "without it half of what is left would go"
    dropped = [receipt for receipt in pipeline.receipts() if "decided against" in receipt.reason]
    assert len(dropped) == 11
    assert desk_over(pipeline).held() == {}


async def test_what_of_an_approved_one_waits_there_goes_on_and_is_not_counted() -> None:
    pipeline = await half_passed_on()
    rule(pipeline, "approve")
    pass_on(pipeline, 8, 12)
    await pipeline.drain()
    assert await there(pipeline) == []
    assert desk_over(pipeline).standing().controls.open_breaker("A") is None


async def test_what_comes_there_after_the_decision_is_counted_anew() -> None:
    pipeline = await half_passed_on()
    rule(pipeline, "reject")
    pass_on(pipeline, 8, 12)
    for name in NAMES[9:]:
        in_bulk(pipeline, name, 3)
    pass_on(pipeline, 11, 20)
    await pipeline.drain()
    assert await there(pipeline) == NAMES[14:], "five of eleven pass; the sixth would make it half"
    assert desk_over(pipeline).standing().controls.open_breaker("A") is not None


@pytest.mark.parametrize("header", [b"", b"1", b"/", b"x/1", b"1/x", b"-1/3", b"1/" + b"9" * 30, b"\xff/1", "１/２".encode()])
def test_a_header_that_names_no_place_is_ignored(header: bytes) -> None:
    standing = standing_of(InRecord("t.documents", 0, 7, b"A/d", b"{}", {WAITED: header}))
    assert standing.offset == 7
    assert standing.waited in (None, (1, 2))


def decision(number: int, verdict: str, end: int) -> Decision:
    return Decision(id=f"d{number}", verdict=verdict, ends={0: end}, at=SteppingClock()(), by=f"p{number}")  # type: ignore[arg-type]


def decided(*decisions: Decision) -> Controls:
    controls = Controls()
    for each in decisions:
        record = controls.with_decision("A", each, "ops")
        controls.apply(InRecord("t.controls", 0, 0, record.key, encode(record)))
    return controls


def test_a_hundred_equal_decisions_forget_nothing_of_the_first() -> None:
    controls = decided(decision(0, "reject", 5), *(decision(n, "approve", 5 + n) for n in range(1, 101)))
    assert len(controls.decided["A"]) == 2
    said = [controls.decision_on("A", 0, offset, "removal") for offset in (3, 5, 104, 105)]
    assert [each.verdict if each else None for each in said] == ["reject", "approve", "approve", None]
    newest = controls.newest_decision("A")
    assert newest is not None
    assert newest.id == "d100"


def test_decisions_that_change_their_mind_are_kept_up_to_a_bound() -> None:
    verdicts = ["approve" if number % 2 else "reject" for number in range(KEPT_DECISIONS + 6)]
    controls = decided(*(decision(number, verdict, number + 1) for number, verdict in enumerate(verdicts)))
    assert len(controls.decided["A"]) == KEPT_DECISIONS
    for offset in range(6, len(verdicts)):
        found = controls.decision_on("A", 0, offset, "removal")
        assert found is not None
        assert found.verdict == verdicts[offset]
