"""The parser's memory made again from the log refuses what the lost one refused, and lets pass what it let pass."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest

from schemas.codec import encode
from schemas.document_change import FORGET, Content, DocumentChange
from streams.agents.memory import forgotten, remembered
from streams.kafka.offsets import PartitionLag
from streams.ports import InRecord
from streams.steps.settle_change import AlreadySettled, ToParse, settle_change


def change(revision: int, text: str = "", document: str = "d", **more: object) -> DocumentChange:
    told = {"op": "upsert", "content": Content(text=text)} if text else {"op": "delete"}
    return DocumentChange(tenant_id="acme", document_id=document, revision=revision, event_id=f"e{revision}", **told, **more)  # type: ignore[arg-type]


def log(*said: DocumentChange | bytes | None, key: bytes = b"acme/d") -> list[InRecord]:
    values = [encode(each) if isinstance(each, DocumentChange) else each for each in said]
    return [InRecord("documents", 0, offset, key, value) for offset, value in enumerate(values)]


@pytest.mark.parametrize(
    ("begin", "committed", "memory", "lost"),
    [
        pytest.param(0, 7, (0, 0), range(7), id="a changelog made anew"),
        pytest.param(3, 7, (9, 9), range(3, 7), id="one that was truncated, and a log that was compacted"),
        pytest.param(0, 7, (8, 9), None, id="memory is there"),
        pytest.param(0, None, (0, 0), None, id="nothing was settled yet"),
        pytest.param(7, 7, (0, 0), None, id="nothing of what was settled is kept"),
    ],
)
def test_memory_is_lost_where_events_were_settled_and_nothing_is_remembered(
    begin: int, committed: int | None, memory: tuple[int, int], lost: range | None
) -> None:
    places = [PartitionLag("documents", 0, begin, committed, 9), PartitionLag("changelog", 0, memory[0], None, memory[1])]
    assert forgotten(places, "documents", "changelog", {0}) == ({} if lost is None else {0: lost})


def test_the_newest_revision_is_remembered_and_older_ones_stay_stale() -> None:
    seen = remembered(log(change(1, "one"), change(3, "three"), change(2, "two")))[b"acme/d"]
    assert (seen.revision, seen.deleted, seen.offset) == (3, False, 1)
    assert isinstance(settle_change(change(2, "two"), seen), AlreadySettled)


def test_a_deleted_document_stays_deleted() -> None:
    for end in (change(5), None):
        seen = remembered(log(change(5, "five"), end))[b"acme/d"]
        assert (seen.revision, seen.deleted) == (5, True)
        for late in (4, 5):
            decision = settle_change(change(late, "late"), seen)
            assert isinstance(decision, AlreadySettled)
            assert decision.outcome == "stale"
        assert isinstance(settle_change(change(6, "again"), seen), ToParse)


def test_what_may_have_failed_is_parsed_once_more() -> None:
    seen = remembered(log(change(1, "one")))[b"acme/d"]
    assert isinstance(settle_change(replace_event(change(1, "one"), "x"), seen), ToParse)
    assert isinstance(settle_change(change(2, "one"), seen), ToParse)


def replace_event(event: DocumentChange, name: str) -> DocumentChange:
    return event.model_copy(update={"event_id": name})


def test_what_was_refused_or_says_nothing_is_not_remembered() -> None:
    records = log(b"{", change(1, "one", document="other"), change(2, "two"), change(2, "not two"))
    assert remembered(records)[b"acme/d"].revision == 2
    assert remembered(log(None)) == {}
    forget = replace(log(None)[0], headers={FORGET: b"1"}, offset=9)
    assert not remembered([*log(change(1, "one")), forget])[b"acme/d"].deleted


def parsed(*said: tuple[int, str], key: bytes = b"acme/d") -> list[InRecord]:
    told = [{"revision": revision, "op": op, "text": "a page"} for revision, op in said]
    return [InRecord("parsed", 0, offset, key, json.dumps(each).encode()) for offset, each in enumerate(told)]


@pytest.mark.parametrize(
    ("left", "passed", "expected"),
    [
        pytest.param([change(4, "late")], [(4, "upsert"), (6, "delete")], (6, True), id="a late event is the last record of a key"),
        pytest.param([change(6, "late")], [(6, "upsert"), (6, "delete")], (6, True), id="as old as the end"),
        pytest.param([], [(6, "delete")], (6, True), id="an end that gc took away"),
        pytest.param([change(4)], [(6, "upsert")], (6, False), id="a late end"),
        pytest.param([change(7, "anew")], [(6, "delete")], (7, False), id="one that could not be parsed, or said nothing new"),
        pytest.param([change(7)], [(6, "delete")], (7, True), id="ended twice"),
    ],
)
def test_where_the_log_was_compacted_what_was_passed_on_is_remembered(
    left: list[DocumentChange], passed: list[tuple[int, str]], expected: tuple[int, bool]
) -> None:
    seen = remembered(log(*left), parsed=parsed(*passed))[b"acme/d"]
    assert (seen.revision, seen.deleted, seen.dropped) == (*expected, -1)
    assert isinstance(settle_change(change(5, "older", reindex=True), seen), AlreadySettled)


def test_a_delete_that_was_not_passed_on_was_decided_against() -> None:
    seen = remembered(log(change(4, "four"), change(5)), parsed=parsed((4, "upsert")))[b"acme/d"]
    assert (seen.revision, seen.deleted, seen.dropped, seen.offset) == (4, False, 5, 1)
    assert isinstance(settle_change(change(4, "four"), seen), ToParse)
