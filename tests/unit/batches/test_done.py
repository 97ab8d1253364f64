"""A batch stands at its first record without an outcome, also where its commits are held back."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta

from hypothesis import given
from hypothesis import strategies as st

from schemas.chunk_changes import ChunkChanges
from schemas.codec import encode
from schemas.parsed_document import ParsedDocument
from schemas.receipt import Receipt
from streams.batches.done import MOST, standing
from streams.batches.gate import judge
from streams.batches.outcomes import Outcomes
from streams.kafka.offsets import PartitionLag
from streams.ports import InRecord
from tests.support.batches import NOW
from tests.unit.batches.test_gate import GOOD, LIMITS


def parsed(offset: int, event: str, later: int = 0) -> InRecord:
    at = NOW + timedelta(seconds=later)
    end = ParsedDocument(tenant_id="a", document_id="d", revision=1, op="delete", event_id=event, received_at=at)
    return InRecord("parsed", 0, offset, b"a/d", encode(end))


def changes(offset: int, event: str, part: int = 1) -> InRecord:
    delta = ChunkChanges(tenant_id="a", document_id="d", batch="b", revision=1, event_id=event, part=part, parts=2, received_at=NOW)
    return InRecord("changes", 0, offset, b"a/d", encode(delta))


def settled(*events: str) -> Outcomes:
    outcomes = Outcomes("b")
    for event in events:
        receipt = Receipt(
            tenant_id="a",
            document_id="d",
            revision=1,
            batch="b",
            stage="indexer",
            outcome="unchanged",
            event_id=event,
            received_at=NOW,
        )
        outcomes.take(InRecord("receipts", 0, 0, b"a/d", encode(receipt)))
    return outcomes


class Kept:
    """A log; it notes what was read of it."""

    def __init__(self, *records: InRecord) -> None:
        self.records = records
        self.read: list[tuple[str, int, int, int]] = []

    def __call__(self, topic: str, partition: int, begin: int, end: int) -> list[InRecord]:
        self.read.append((topic, partition, begin, end))
        mine = (each for each in self.records if (each.topic, each.partition) == (topic, partition))
        return [each for each in mine if begin <= each.offset < end]


def test_what_has_an_outcome_is_done_up_to_the_first_that_has_none() -> None:
    log = Kept(parsed(3, "x"), parsed(5, "y"), parsed(6, "z"), parsed(7, "x"))
    place = PartitionLag("parsed", 0, 0, 3, 8)
    assert standing([place], settled("x", "y"), "parsed", log) == [replace(place, committed=6)]
    assert standing([place], settled("x", "y", "z"), "parsed", log) == [replace(place, committed=8)]
    assert standing([place], settled("y", "z"), "parsed", log) == [place]


def test_parts_of_a_delta_are_done_with_its_receipt() -> None:
    log = Kept(changes(0, "x", 1), changes(1, "x", 2), changes(2, "y"))
    place = PartitionLag("changes", 0, 0, None, 3)
    assert [each.lag for each in standing([place], settled("x"), "parsed", log)] == [1]


def test_the_same_event_received_again_is_another_and_what_can_not_be_read_is_not_done() -> None:
    for odd in (parsed(0, "x", later=1), InRecord("parsed", 0, 0, b"a/d", b"no JSON"), InRecord("parsed", 0, 0, b"a/d", None)):
        assert standing([PartitionLag("parsed", 0, 0, None, 1)], settled("x"), "parsed", Kept(odd))[0].lag == 1


def test_nothing_is_read_without_lag_nor_with_too_much() -> None:
    log = Kept()
    for place in (PartitionLag("parsed", 0, 0, 8, 8), PartitionLag("parsed", 0, 0, 0, MOST + 1)):
        assert standing([place], settled(), "parsed", log) == [place]
    assert log.read == []


@given(st.lists(st.booleans(), max_size=40), st.integers(0, 40))
def test_a_batch_never_stands_behind_its_commits_nor_past_an_open_record(done: list[bool], committed: int) -> None:
    records = [parsed(number, f"e{number}") for number in range(len(done))]
    outcomes = settled(*(f"e{number}" for number, is_done in enumerate(done) if is_done))
    place = PartitionLag("parsed", 0, 0, min(committed, len(done)), len(done))
    (found,) = standing([place], outcomes, "parsed", Kept(*records))
    assert (place.committed or 0) <= (found.committed or 0) <= place.end
    assert all(done[place.committed or 0 : found.committed or 0])
    assert found.committed == place.end or not done[found.committed or 0]


def test_the_gate_says_that_commits_are_held_back() -> None:
    verdict = judge(replace(GOOD, uncommitted=1200), LIMITS)
    assert verdict.passed
    assert "lag: 4 records, limit 4; 1,200 more are done and not committed yet: after a restart" in str(verdict)
    assert "committed yet" not in str(judge(GOOD, LIMITS))
