"""The door: a mass delete is held, a paused tenant is parked, and both go on, or are dropped, as a person decides."""

from __future__ import annotations

from dataclasses import replace

import pytest

from schemas.control import Verdict
from schemas.record import document_key
from streams.errors import InvariantBroken, NotPrepared
from streams.repair.letters import LetterBook
from streams.steps.limits import Limits
from streams.steps.settle_change import Seen
from tests.support.desk import desk_over
from tests.support.door import NAMES, a_site, delete_all, held, there
from tests.support.pipeline import sections


async def test_what_goes_beyond_the_share_is_held_and_stays_served() -> None:
    pipeline = await a_site()
    delete_all(pipeline)
    await pipeline.drain()
    # Three pass; the fourth would make it half.
    assert await there(pipeline) == NAMES[3:]
    assert held(pipeline) == set(NAMES[3:])
    outcomes = {receipt.event_id: receipt for receipt in pipeline.receipts()}
    assert [outcomes[f"{name}@2"].outcome for name in NAMES] == ["indexed"] * 3 + ["held"] * 5
    assert "4 of 8 documents (50%) were deleted within 3,600 s" in outcomes["d7@2"].reason
    assert "docdelta breaker approve A" in outcomes["d7@2"].reason


async def test_a_delete_that_is_dropped_says_so_and_heals_no_letter() -> None:
    pipeline = await a_site()
    pipeline.send("d7", 2, "%unreadable%", event_id="bad")
    delete_all(pipeline, 3)
    await pipeline.drain()
    desk = desk_over(pipeline)
    desk.rule(desk.plan("A", "reject", ""), 0)
    pipeline.view.look()
    await pipeline.drain()
    told = [receipt for receipt in pipeline.receipts() if receipt.event_id == "d7@3"]
    assert [(receipt.outcome, receipt.dropped) for receipt in told] == [("held", False), ("unchanged", True)]
    assert {receipt.event_id for receipt in pipeline.receipts() if receipt.dropped} == {f"{name}@3" for name in NAMES[3:]}
    book = LetterBook()
    for record in pipeline.log.topics["t.dead-letters"]:
        book.take_letter(record)
    for record in pipeline.log.topics["t.receipts"]:
        book.take_receipt(record)
    assert [entry.event_id for entry in book.open()] == ["bad"]


async def test_upserts_and_other_tenants_go_on_while_a_breaker_is_open() -> None:
    pipeline = await a_site()
    for name in NAMES[:2]:
        pipeline.send(name, 1, sections(name), "B")
    delete_all(pipeline)
    pipeline.send("d7", 3, sections("edited"), event_id="edit")
    pipeline.send("new", 1, sections("new"))
    pipeline.send("d0", 2, None, "B")
    await pipeline.drain()
    assert await pipeline.texts("d7") == ["# edited\n\nedited is told about here at some length, in a sentence of its own."]
    assert await pipeline.ids("new")
    assert not await pipeline.ids("d0", "B")
    # The edit is newer than the delete that was held: that one is over, and says so.
    assert held(pipeline) == set(NAMES[3:7])
    last = [receipt for receipt in pipeline.receipts() if receipt.event_id == "d7@2"][-1]
    assert (last.outcome, last.batch) == ("stale", "")


@pytest.mark.parametrize("verdict", ["approve", "reject"])
async def test_a_decision_covers_nothing_of_a_topic_that_was_made_anew(verdict: Verdict) -> None:
    """The new topic's offsets begin at nothing, below the ends that were decided on."""
    pipeline = await a_site()
    pipeline.view.topic_id = "old"
    delete_all(pipeline)
    await pipeline.drain()
    desk = desk_over(pipeline)
    assert desk.rule(desk.plan("A", verdict, ""), 0) == 5
    pipeline.view.look()
    await pipeline.drain()
    assert held(pipeline) == set()
    (decision,) = desk.controls().decided["A"]
    far = decision.model_copy(update={"ends": {0: 1000}})  # as of a topic that was long
    pipeline.view.now.decided["A"] = (far,)
    for name in NAMES:
        pipeline.send(name, 5, sections(name))
    await pipeline.drain()
    assert await there(pipeline) == NAMES
    pipeline.view.topic_id = "new"
    delete_all(pipeline, 6)
    await pipeline.drain()
    assert await there(pipeline) == NAMES[3:], "counted and held, as if nothing had been decided"
    assert held(pipeline) == set(NAMES[3:])


async def test_approved_they_go_and_what_comes_later_is_counted_anew() -> None:
    pipeline = await a_site()
    delete_all(pipeline)
    await pipeline.drain()
    desk = desk_over(pipeline)
    assert desk.rule(desk.plan("A", "approve", "moved away"), 0) == 5
    await pipeline.drain()
    assert await there(pipeline) == []
    assert held(pipeline) == set()
    assert desk.standing().breakers() == []
    for name in NAMES:
        pipeline.send(name, 5, sections(name))
    delete_all(pipeline, 6)
    await pipeline.drain()
    assert len(await there(pipeline)) == 5


@pytest.mark.parametrize(("first", "then"), [("approve", "reject"), ("reject", "approve")])
async def test_what_a_command_decided_that_was_cut_short_stands_and_the_next_one_says_so(first: Verdict, then: Verdict) -> None:
    pipeline = await a_site()
    delete_all(pipeline)
    await pipeline.drain()
    desk = desk_over(pipeline)

    def killed(number: float) -> None:
        raise InvariantBroken("killed")

    cut_short = replace(desk, held=lambda: killed(0))  # type: ignore[arg-type,return-value]
    with pytest.raises(InvariantBroken):
        cut_short.rule(cut_short.plan("A", first, ""), 0)
    pipeline.view.look()
    others = [f"e{number}" for number in range(8)]
    for name in others:
        pipeline.send(name, 1, sections(name))
    for name in others:
        pipeline.send(name, 2, None, event_id=f"{name}@2")
    await pipeline.drain()
    late = held(pipeline) - set(NAMES)
    assert late
    plan = desk.plan("A", then, "")
    assert len(plan.held) == 5 + len(late)
    word, does = ("approved", "lets pass") if first == "approve" else ("rejected", "drops")
    assert f"ops {word} at" in str(plan)
    assert f"that stands, and {does} 5 held events\n{len(late)} held events " in str(plan)
    with pytest.raises(InvariantBroken):
        cut_short.rule(plan, 0)
    again = desk.plan("A", then, "")
    assert again.decision is None
    assert f"that stands, and {does} 5 held events\n{len(late)} held events " in str(again)
    desk.rule(again, 0)
    pipeline.view.look()
    await pipeline.drain()
    assert held(pipeline) == set()
    assert await there(pipeline) == ([] if first == "approve" else NAMES[3:])
    assert {name for name in others if await pipeline.ids(name)} == (late if then == "reject" else set())


async def test_rejected_they_stay_and_so_does_what_is_behind_them_on_the_broker() -> None:
    pipeline = await a_site()
    delete_all(pipeline)
    await pipeline.drain()
    delete_all(pipeline, 3)  # on the broker when it is decided, and not yet reached
    desk = desk_over(pipeline)
    desk.rule(desk.plan("A", "reject", ""), 0)
    pipeline.view.look()
    await pipeline.drain()
    assert await there(pipeline) == NAMES[3:]
    assert held(pipeline) == set()
    last = [receipt for receipt in pipeline.receipts() if receipt.event_id == "d7@3"][-1]
    assert (last.outcome, "ops decided against it" in last.reason) == ("unchanged", True)
    pipeline.send("d7", 4, None)
    await pipeline.drain()
    assert await there(pipeline) == NAMES[3:7]


@pytest.mark.parametrize("verdict", ["approve", "reject"])
async def test_whatever_is_delivered_again_nothing_counts_twice(verdict: str) -> None:
    pipeline = await a_site()
    delete_all(pipeline)
    for _ in range(3):
        await pipeline.drain()
        pipeline.rewind(20)
        pipeline.restart()
    await pipeline.drain()
    assert len(await there(pipeline)) == 5
    desk = desk_over(pipeline)
    for _ in range(2):  # killed after it had sent them again, and run anew
        desk.rule(desk.plan("A", verdict, ""), 0)  # type: ignore[arg-type]
    for _ in range(3):
        await pipeline.drain()
        pipeline.rewind(20)
        pipeline.restart()
    await pipeline.drain()
    assert len(await there(pipeline)) == (0 if verdict == "approve" else 5)
    assert held(pipeline) == set()


async def test_a_worker_that_does_not_know_the_decision_yet_reads_it_before_it_looks_at_a_released_event() -> None:
    pipeline = await a_site()
    delete_all(pipeline)
    await pipeline.drain()
    desk = desk_over(pipeline)
    desk.rule(desk.plan("A", "approve", ""), 0)
    assert pipeline.view.now.open_breaker("A") is not None
    await pipeline.drain()
    assert await there(pipeline) == []


async def test_what_was_held_by_a_worker_that_knew_nothing_of_the_decision_is_released_by_the_same_command() -> None:
    pipeline = await a_site()
    delete_all(pipeline)
    await pipeline.drain()
    desk = desk_over(pipeline)
    pipeline.send("d3", 3, None)
    desk.rule(desk.plan("A", "approve", ""), 0)
    released = pipeline.log.topics["t.documents"][-5:]
    del pipeline.log.topics["t.documents"][-5:]  # they come later; first the worker goes on without having looked
    await pipeline.drain()
    pipeline.log.topics["t.documents"] += released
    await pipeline.drain()
    assert held(pipeline) == {"d3"}
    plan = desk.plan("A", "approve", "")
    assert plan.decision is None
    desk.rule(plan, 0)
    await pipeline.drain()
    assert held(pipeline) == set()
    assert await there(pipeline) == []


async def test_two_that_trip_at_once_are_one_state_and_a_late_one_does_not_undo_a_decision() -> None:
    pipeline = await a_site()
    delete_all(pipeline)
    await pipeline.drain()
    topics = pipeline.log.topics
    (trip,) = topics["t.controls"]
    desk = desk_over(pipeline)
    desk.rule(desk.plan("A", "approve", ""), 0)
    late = trip.value.replace(b'"partition":0', b'"partition":1')  # type: ignore[union-attr]
    topics["t.controls"].append(type(trip)("t.controls", 0, len(topics["t.controls"]), b"breaker/A/1", late))
    assert desk.controls().open_breaker("A") is None


async def test_nothing_is_decided_where_nothing_is_open_and_a_decision_is_not_turned_round() -> None:
    pipeline = await a_site()
    desk = desk_over(pipeline)
    with pytest.raises(NotPrepared, match="is not open"):
        desk.plan("A", "approve", "")
    delete_all(pipeline)
    await pipeline.drain()
    desk.rule(desk.plan("A", "reject", ""), 0)
    with pytest.raises(NotPrepared, match="run docdelta breaker reject A"):
        desk.plan("A", "approve", "")


async def test_a_paused_tenant_is_parked_newest_first_and_goes_on_where_it_was() -> None:
    pipeline = await a_site()
    desk = desk_over(pipeline)
    assert desk.pause("A", "", "import runs wild") is None
    assert desk.pause("A", "", "again") is not None
    pipeline.view.look()
    pipeline.send("d0", 2, sections("two"), event_id="d0@2")
    pipeline.send("d0", 4, sections("four"), event_id="d0@4")
    pipeline.send("d0", 3, sections("three"), event_id="d0@3")
    pipeline.send("d0", 1, sections("d0"), event_id="d0@1")
    pipeline.send("new", 1, sections("new"), event_id="new@1")
    pipeline.send_raw(b"A/d1", None)
    pipeline.send("d0", 1, sections("other"), "B")
    await pipeline.drain()
    assert held(pipeline) == {"d0", "d1", "new"}
    assert len(await there(pipeline)) == 8
    assert not await pipeline.ids("new")
    assert await pipeline.ids("d0", "B")
    pipeline.rewind(7)
    pipeline.restart()
    await pipeline.drain()
    assert desk.resume("A", "", 0) == (True, 3)
    await pipeline.drain()
    assert held(pipeline) == set()
    assert (await pipeline.texts("d0"))[0].startswith("# four")
    assert await pipeline.ids("new")
    assert not await pipeline.ids("d1")
    first: dict[str, str] = {}
    for receipt in pipeline.receipts():
        if receipt.tenant_id == "A" and receipt.batch == "":
            first.setdefault(receipt.event_id, receipt.outcome)
    assert {name: first[name] for name in ("d0@2", "d0@4", "d0@3", "new@1")} == {
        "d0@2": "held",
        "d0@4": "held",
        "d0@3": "stale",
        "new@1": "held",
    }
    row = Seen.from_bytes(pipeline.seen.values[b"A/d0"])
    assert (row.revision, row.held) == (4, None)


async def test_a_mass_delete_of_a_paused_tenant_meets_the_breaker_when_it_goes_on() -> None:
    pipeline = await a_site()
    desk = desk_over(pipeline)
    desk.pause("A", "", "")
    pipeline.view.look()
    delete_all(pipeline)
    await pipeline.drain()
    assert len(held(pipeline)) == 8
    desk.resume("A", "", 0)
    await pipeline.drain()
    assert await there(pipeline) == NAMES[3:]
    assert {each.change.reason for each in desk.held().values()} == {"breaker"}
    desk.rule(desk.plan("A", "approve", ""), 0)
    await pipeline.drain()
    assert await there(pipeline) == []


async def test_changes_of_all_pages_pass_unless_they_are_asked_to_be_counted() -> None:
    pipeline, counting = await a_site(), await a_site(Limits(share=0.5, churn_share=0.5, minimum=4))
    for each in (pipeline, counting):
        for name in NAMES:
            each.send(name, 2, sections(f"{name} anew"))
        each.send("new", 1, sections("new"))
        await each.drain()
        assert await each.ids("new")
    assert held(pipeline) == set()
    assert held(counting) == set(NAMES[3:])
    desk = desk_over(counting)
    desk.rule(desk.plan("A", "approve", ""), 0)
    await counting.drain()
    assert held(counting) == set()
    assert [(await counting.texts(name))[0].split("\n")[0] for name in NAMES] == [f"# {name} anew" for name in NAMES]


async def test_ends_and_re_checks_that_take_nothing_away_are_never_held() -> None:
    pipeline = await a_site()
    for number in range(20):
        pipeline.send(f"never-{number}", 1, None)
    for name in NAMES:
        pipeline.send(name, 1, sections(name), event_id=f"{name}@again", reindex=True)
    await pipeline.drain()
    assert held(pipeline) == set()
    assert not pipeline.log.topics["t.controls"]


async def test_a_small_tenant_is_not_guarded() -> None:
    pipeline = await a_site(Limits(share=0.5, minimum=100))
    delete_all(pipeline)
    await pipeline.drain()
    assert await there(pipeline) == []


async def test_with_the_breaker_off_an_open_one_holds_nothing_more() -> None:
    pipeline = await a_site()
    delete_all(pipeline)
    await pipeline.drain()
    pipeline.breaker = Limits(enabled=False)
    pipeline.restart()
    delete_all(pipeline, 3)
    await pipeline.drain()
    assert await there(pipeline) == []
    assert held(pipeline) == set()


async def test_a_header_that_is_not_ours_is_ignored() -> None:
    pipeline = await a_site()
    delete_all(pipeline)
    await pipeline.drain()
    value = pipeline.log.topics["t.documents"][-1].value
    for header in (b"999/x", b"x/y", b"1", b"/", b"\xff/\xff", b"1/" + b"x" * 100):
        pipeline.send_raw(document_key("A", "d7"), value, {"docdelta-released": header})
    await pipeline.drain()
    assert "d7" in held(pipeline)
    assert await pipeline.ids("d7")


@pytest.mark.parametrize("verdict", ["approve", "reject"])
async def test_a_held_delete_outlives_an_edit_that_can_not_be_parsed(verdict: Verdict) -> None:
    """The edit is newer, but nothing of it goes on: what a person decides of the delete is what the page becomes."""
    pipeline = await a_site()
    delete_all(pipeline)
    pipeline.send("d7", 3, "%unreadable%", event_id="d7@3")
    await pipeline.drain()
    assert held(pipeline) == set(NAMES[3:])
    pipeline.restart()
    desk = desk_over(pipeline)
    desk.rule(desk.plan("A", verdict, ""), 0)
    pipeline.view.look()
    for _ in range(2):  # and once more, as after a crash before the commit
        await pipeline.drain()
        assert held(pipeline) == set()
        assert await there(pipeline) == ([] if verdict == "approve" else NAMES[3:])
        pipeline.rewind(3)
    row = Seen.from_bytes(pipeline.seen.values[document_key("A", "d7")])
    assert (row.revision, row.failed, row.held) == (3, True, None)
    assert [letter.event_id for letter in pipeline.dead_letters()] == ["d7@3"]
    pipeline.compact()
    assert b'"event_id":"d7@3"' in (pipeline.log.topics["t.documents"][-1].value or b"")
    pipeline.send("d7", 4, sections("good"), event_id="d7@4")
    pipeline.send("d7", 2, None, event_id="late")
    await pipeline.drain()
    assert "good" in "".join(await pipeline.texts("d7"))


async def test_a_held_delete_gives_way_to_an_edit_that_can_be_parsed() -> None:
    pipeline = await a_site()
    delete_all(pipeline)
    pipeline.send("d7", 3, sections("edited"), event_id="d7@3")
    await pipeline.drain()
    assert held(pipeline) == set(NAMES[3:7])
    assert "edited" in "".join(await pipeline.texts("d7"))
    assert [receipt.outcome for receipt in pipeline.receipts() if receipt.event_id == "d7@2"] == ["held", "stale"]
