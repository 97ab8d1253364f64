"""The ledger: of two who decide at once, one holds and the other is told who was first."""

from __future__ import annotations

import random
from collections.abc import Callable
from datetime import UTC, datetime

import pytest

from chunking.policy import load_policy
from schemas.batch import BatchRecord, BatchState
from schemas.codec import encode
from streams.batches.ledger import Clerk, Ledger, Outrun, fold, with_state
from streams.batches.record import batch_record
from streams.ports import InRecord

NOW = datetime(2031, 1, 1, tzinfo=UTC)


def a_batch(version: int = 1, state: BatchState = "active") -> BatchRecord:
    text = f"name: p\nversion: {version}\n"
    return batch_record(load_policy(text), text, state, "docs", NOW)


class Topic:
    """[batches] as a list: what two clerks share."""

    def __init__(self) -> None:
        self.records: list[InRecord] = []

    def write(self, key: bytes, value: bytes) -> None:
        self.records.append(InRecord("batches", 0, len(self.records), key, value))

    def clerk(self, name: str) -> Clerk:
        return Clerk(lambda: fold(self.records), self.write, lambda: NOW, by=name)


def test_a_claim_that_knew_all_that_holds_is_taken() -> None:
    topic = Topic()
    one = topic.clerk("one")
    ledger = one.claim(Ledger(), a_batch())
    ledger = one.claim(ledger, a_batch(2, "building"))
    assert {batch.batch: batch.state for batch in ledger.in_order()} == {a_batch().batch: "active", a_batch(2).batch: "building"}
    assert ledger.batches[a_batch().batch].by == "one"


def test_of_two_operators_one_wins_and_the_other_hears_who_and_since_when() -> None:
    """PO-07."""
    topic = Topic()
    one, two = topic.clerk("anna@a (process 1)"), topic.clerk("bert@b (process 2)")
    start = one.claim(one.claim(one.claim(Ledger(), a_batch(1)), a_batch(2, "ready")), a_batch(3, "ready"))
    one.claim(start, with_state(a_batch(2), state="active"))
    with pytest.raises(Outrun, match=r"anna@a \(process 1\) since 2031-01-01"):
        two.claim(start, with_state(a_batch(3), state="active"))
    served = one.read().served("docs")
    assert served is not None
    assert served.batch == a_batch(2).batch
    assert one.read().batches[a_batch(3).batch].state == "ready"


def test_a_batch_becomes_warm_in_the_step_that_makes_another_active() -> None:
    topic = Topic()
    one = topic.clerk("one")
    ledger = one.claim(Ledger(), a_batch(1))
    ledger = one.claim(ledger, a_batch(2))
    old = ledger.batches[a_batch(1).batch]
    assert (old.state, old.warm_since) == ("warm", NOW)


def test_an_init_of_an_earlier_release_holds_without_a_claim() -> None:
    topic = Topic()
    topic.write(b"x", encode(a_batch()))
    assert fold(topic.records).served("docs") is not None


@pytest.mark.parametrize("seed", range(40))
def test_whatever_the_order_exactly_one_is_active_and_no_refused_claim_shows(seed: int) -> None:
    """Operators read at random moments and claim later: what holds is a chain in which each knew its predecessor."""
    dice = random.Random(seed)
    topic = Topic()
    clerks = [topic.clerk(f"operator {number}") for number in range(3)]
    clerks[0].claim(Ledger(), a_batch(1))
    views = [clerk.read() for clerk in clerks]
    won: list[str] = []
    for _ in range(40):
        who = dice.randrange(3)
        if dice.random() < 0.5:
            views[who] = clerks[who].read()
            continue
        wanted = a_batch(dice.randrange(1, 5), "active")
        try:
            views[who] = clerks[who].claim(views[who], wanted)
            won.append(wanted.batch)
        except Outrun:
            pass
        ledger = fold(topic.records)
        active = [batch.batch for batch in ledger.in_order() if batch.state == "active"]
        assert active == [won[-1]] if won else active == [a_batch(1).batch]


def test_compaction_never_takes_a_claim_that_holds() -> None:
    """Each claim has a key of its own: the newest record of each key, in order, folds to the same."""
    topic = Topic()
    one, two = topic.clerk("one"), topic.clerk("two")
    start = one.claim(one.claim(Ledger(), a_batch(1)), a_batch(2, "ready"))
    one.claim(start, with_state(a_batch(2), state="active"))
    with pytest.raises(Outrun):
        two.claim(start, with_state(a_batch(2, "ready"), state="retired"))
    newest: dict[bytes | None, InRecord] = {record.key: record for record in topic.records}
    compacted = sorted(newest.values(), key=lambda record: record.offset)
    state: Callable[[Ledger], dict[str, str]] = lambda ledger: {b.batch: b.state for b in ledger.in_order()}  # noqa: E731
    assert state(fold(compacted)) == state(fold(topic.records))
