"""The feeder's body and runner: what passes on, when, in which order, and that crashes lose nothing."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import pytest

from schemas.codec import decode, encode
from schemas.dead_letter import DeadLetter
from schemas.document_change import Content, DocumentChange
from schemas.receipt import Receipt
from schemas.record import document_key
from streams.agents.refusals import Outbox
from streams.errors import PoisonRecord, Stopping
from streams.feeder_app import FeederRunner
from streams.lanes.feeder import Feeder
from streams.lanes.listening import chase
from streams.lanes.mark import HEADER
from streams.lanes.passed import Chases, Offsets
from streams.lanes.window import Window
from streams.ports import InRecord
from streams.steps.settle_change import AlreadySettled, Seen, settle_change
from streams.topics import TopicNames
from tests.agents.fake_faust import FakeApp, FakeEvent, FakeMessage, FakeStream, settle
from tests.support.ports import MemoryLog, SteppingClock, impatient

NAMES = TopicNames()
NAME = "0123456789abcdef"


@dataclass
class Bench:
    """A feeder whose [documents] is a list."""

    batch: str | None = "blue"
    now: float = 0.0
    window: Window = field(default_factory=Window)
    log: MemoryLog = field(default_factory=MemoryLog)
    passed: list[InRecord] = field(default_factory=list)
    refuse: Callable[[InRecord], bool] = lambda record: False
    feeder: Feeder = field(init=False)

    def __post_init__(self) -> None:
        outbox = Outbox(self.log, NAMES, impatient(), SteppingClock(), stage="parser")
        self.feeder = Feeder(NAME, outbox, self._forward, lambda: self.batch, lambda: self.now, self.window)
        self.feeder.listening = True

    async def _forward(self, record: InRecord, mark: bytes) -> None:
        if self.refuse(record):
            raise PoisonRecord("record is over the topic's size limit")
        await asyncio.sleep(0)
        headers = {**record.headers, HEADER: mark}
        self.passed.append(InRecord(NAMES.documents, 0, len(self.passed), record.key, record.value, headers))

    @property
    def order(self) -> list[bytes | None]:
        return [record.key for record in self.passed]

    def hear(self, record: InRecord, stage: str = "indexer", batch: str = "blue", letter: bool = False) -> None:
        """Tell the feeder of an outcome of a record that was passed on."""
        about = {"stage": stage, "batch": "" if stage == "parser" else batch}
        if letter:
            value = encode(
                DeadLetter(topic="t", partition=0, offset=0, key=None, value=None, error="E", reason="r", **about, failed_at=T0)
            )
        else:
            value = encode(Receipt(tenant_id="a", document_id="d", revision=1, outcome="indexed", **about))
        topic = NAMES.dead_letters if letter else NAMES.receipts
        self.feeder.heard(InRecord(topic, 0, 0, record.key, value, {HEADER: record.headers[HEADER]}))


T0 = SteppingClock()()


def a_record(key: str, value: bytes | None = b"{}", offset: int = 0, **headers: bytes) -> InRecord:
    return InRecord(NAMES.bulk, 0, offset, key.encode(), value, headers)


def start(bench: Bench, *keys: str) -> list[asyncio.Task[None]]:
    return [asyncio.create_task(bench.feeder.handle(a_record(key))) for key in keys]


async def test_no_more_is_under_way_than_the_window_holds_and_an_outcome_lets_the_next_one_in() -> None:
    bench = Bench()
    tasks = start(bench, *(f"a/{number}" for number in range(20)))
    await settle()
    assert len(bench.passed) == int(bench.window.size) == 4
    bench.now = 0.1
    bench.hear(bench.passed[0])
    await settle()
    assert len(bench.passed) == 5
    assert sum(task.done() for task in tasks) == 5, "done is passed on, not settled: offsets go on"
    bench.feeder.turn_away()
    await asyncio.gather(*tasks, return_exceptions=True)


async def test_turns_go_round_among_tenants() -> None:
    bench = Bench()
    tasks = start(bench, *(f"big/{number}" for number in range(30)), "small/1", "other/1", "no key of ours")
    await settle()
    for step in range(6):
        bench.now += 0.05
        bench.hear(bench.passed[step])
        await settle()
    assert {b"small/1", b"other/1", b"no key of ours"} <= set(bench.order[:8]), "behind 30 of another tenant they would come last"
    bench.feeder.turn_away()
    await asyncio.gather(*tasks, return_exceptions=True)


@pytest.mark.parametrize(
    ("outcome", "lets_in"),
    [
        pytest.param({"stage": "indexer"}, True, id="of-the-served-batch"),
        pytest.param({"stage": "chunker"}, True, id="unchanged"),
        pytest.param({"stage": "parser"}, True, id="settled-or-held-by-the-parser"),
        pytest.param({"stage": "indexer", "batch": "green"}, False, id="of-a-build"),
        pytest.param({"stage": "parser", "letter": True}, True, id="garbage-has-a-letter-and-no-receipt"),
        pytest.param({"stage": "chunker", "batch": "green", "letter": True}, False, id="a-build-refused-it"),
    ],
)
async def test_what_counts_as_settled(outcome: dict[str, Any], lets_in: bool) -> None:
    bench = Bench()
    tasks = start(bench, *(f"a/{number}" for number in range(5)))
    await settle()
    bench.hear(bench.passed[0], **outcome)
    await settle()
    assert len(bench.passed) == (5 if lets_in else 4)
    bench.feeder.turn_away()
    await asyncio.gather(*tasks, return_exceptions=True)


async def test_after_a_switch_the_outcome_of_either_batch_counts() -> None:
    bench = Bench()
    await asyncio.gather(*start(bench, "a/1", "a/2"))
    bench.batch = "green"
    bench.hear(bench.passed[0], batch="blue")
    bench.hear(bench.passed[1], batch="green")
    assert not bench.window.under_way


async def test_outcomes_of_others_and_repeats_change_nothing() -> None:
    bench = Bench()
    await asyncio.gather(*start(bench, "a/1", "a/2"))
    stranger = InRecord("t", 0, 0, b"a/1", b"", {HEADER: bench.passed[0].headers[HEADER].replace(b"0123", b"ffff")})
    bench.hear(stranger)
    bench.feeder.heard(InRecord(NAMES.receipts, 0, 0, b"a/1", b"not a receipt", dict(bench.passed[0].headers)))
    assert len(bench.window.under_way) == 2
    for _ in range(2):
        bench.hear(bench.passed[0])
    assert len(bench.window.under_way) == 1


async def test_nothing_is_passed_on_before_a_batch_is_served_and_outcomes_are_heard() -> None:
    bench = Bench(batch=None)
    bench.feeder.listening = False
    (task,) = start(bench, "a/1")
    await settle()
    assert bench.feeder.wanted.is_set()
    bench.feeder.listening = True
    bench.feeder.let_in()
    await settle()
    assert bench.passed == []
    bench.batch = "blue"
    bench.feeder.let_in()
    await task
    assert bench.order == [b"a/1"]


async def test_a_record_goes_on_as_it_came() -> None:
    bench = Bench()
    came = [a_record("a/1", b"not json at all", other=b"header"), InRecord(NAMES.bulk, 0, 1, None, b"{}"), a_record("", b"\xff")]
    for record in came:
        await bench.feeder.handle(record)
    assert [(record.key, record.value) for record in bench.passed] == [(record.key, record.value) for record in came]
    assert bench.passed[0].headers["other"] == b"header"


async def test_a_null_value_is_parked_and_not_passed_on() -> None:
    """Passed on twice after a crash it would delete what came after it."""
    bench = Bench()
    await bench.feeder.handle(a_record("a/1", None))
    assert bench.passed == []
    (letter,) = bench.log.topics[NAMES.dead_letters]
    assert "no revision" in decode(letter.value or b"", DeadLetter).reason


async def test_what_documents_does_not_take_is_parked_and_takes_no_room() -> None:
    bench = Bench(refuse=lambda record: record.key == b"a/large")
    await asyncio.gather(*start(bench, "a/large", "a/1"))
    assert bench.order == [b"a/1"]
    assert len(bench.window.under_way) == 1
    (letter,) = bench.log.topics[NAMES.dead_letters]
    assert decode(letter.value or b"", DeadLetter).topic == NAMES.bulk


async def test_who_waits_when_partitions_are_given_up_stops_at_once() -> None:
    bench = Bench(batch=None)
    tasks = start(bench, "a/1", "a/2")
    await settle()
    bench.feeder.turn_away()
    ended = await asyncio.gather(*tasks, return_exceptions=True)
    assert all(isinstance(end, Stopping) for end in ended)
    assert bench.feeder.idle


async def test_a_cancelled_handler_leaves_no_room_taken() -> None:
    for steps in range(6):
        bench = Bench()
        (task,) = start(bench, "a/1")
        for _ in range(steps):
            await asyncio.sleep(0)
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)
        assert len(bench.window.under_way) == len(bench.passed), steps


async def test_a_change_whose_outcome_is_lost_is_let_go_by_the_brokers_word_alone() -> None:
    bench, chases = Bench(), Chases()
    await asyncio.gather(*start(bench, "a/1", "a/2"))
    at_work, done = {0: Offsets((5, 5), (4, 5), (4, 4))}, {0: Offsets((9, 9), (9, 9), (9, 9))}
    await chase(bench.feeder, chases, lambda batch: done)
    assert len(bench.window.under_way) == 2, "it is not overdue"
    bench.now = 60.0
    for _ in range(5):
        await chase(bench.feeder, chases, lambda batch: at_work)
    assert len(bench.window.under_way) == 2, "somebody works on it, however long it takes"
    await chase(bench.feeder, chases, lambda batch: done)
    assert not bench.window.under_way


@dataclass
class World:
    """Logs of [bulk] and [documents], and what is committed. Lives of a feeder come and go."""

    dice: random.Random
    bulk: list[DocumentChange]
    bench: Bench = field(default_factory=Bench)
    committed: int = 0
    live: list[tuple[int, DocumentChange]] = field(default_factory=list)
    """Edits sent straight to [documents], and before which of its records."""

    async def life(self, forwards: int) -> None:
        """Run a feeder from the committed offset; kill it after so many records are on [documents] (and perhaps nobody told)."""
        before, self.bench = self.bench, Bench(passed=self.bench.passed)
        del before
        app, end = FakeApp(), len(self.bench.passed) + forwards
        runner = FeederRunner(app, "feeder", self.bench.feeder.handle, 16, self.bench.feeder.turn_away)
        stream = FakeStream(
            FakeEvent(FakeMessage(NAMES.bulk, 0, offset, document_key(c.tenant_id, c.document_id), encode(c), headers={}))
            for offset, c in enumerate(self.bulk)
            if offset >= self.committed
        )
        running = asyncio.create_task(runner.run(stream))
        told: set[bytes] = set()
        first = self.committed
        for _ in range(1500):
            await asyncio.sleep(0)
            self.bench.now += 0.01
            assert len(self.bench.window.under_way) <= max(4, int(self.bench.window.size) + 1)
            if len(self.bench.passed) >= end or len(stream.acked) == len(self.bulk) - first:
                break
            for record in self.bench.passed[-40:]:
                mark = record.headers[HEADER]
                if mark not in told and self.dice.random() < 0.3:
                    told.add(mark)
                    if self.dice.random() < 0.9:
                        self.bench.hear(record)  # the others' outcomes are lost
            self.bench.feeder.through(set(self.bench.feeder.overdue(0.3)))
            if self.dice.random() < 0.1:
                self._edit()
        self.committed = first + len(stream.acked)
        running.cancel()
        runner.close()
        await runner.cancel()
        await asyncio.gather(running, return_exceptions=True)

    def _edit(self) -> None:
        """Somebody edits a document that waits in [bulk], or one that is there already."""
        old = self.dice.choice(self.bulk)
        newest = max([old.revision, *(c.revision for _, c in self.live if c.document_id == old.document_id)])
        fresh = old.model_copy(
            update={"revision": newest + 100, "event_id": f"live{len(self.live)}", "content": Content(text="live")}
        )
        self.live.append((len(self.bench.passed), fresh))

    def documents(self) -> list[DocumentChange]:
        """Return [documents] as it stands."""
        said: list[DocumentChange] = []
        edits = list(self.live)
        for number, record in enumerate(self.bench.passed):
            while edits and edits[0][0] <= number:
                said.append(edits.pop(0)[1])
            said.append(decode(record.value or b"", DocumentChange))
        return said + [change for _, change in edits]


def an_import(dice: random.Random) -> list[DocumentChange]:
    """Return changes of a few tenants; some documents come several times, with rising revisions, upserts and deletes."""
    revisions: dict[tuple[str, str], int] = {}
    changes = []
    for number in range(60):
        tenant, document = dice.choice("ab"), f"d{dice.randrange(25)}"
        revision = revisions[tenant, document] = revisions.get((tenant, document), 0) + dice.randint(1, 3)
        gone = dice.random() < 0.2
        changes.append(
            DocumentChange(
                tenant_id=tenant,
                document_id=document,
                revision=revision,
                op="delete" if gone else "upsert",
                content=None if gone else Content(text=f"text {number}"),
                event_id=f"bulk{number}",
            )
        )
    return changes


async def test_whatever_crashes_nothing_is_lost_and_the_newest_revision_wins() -> None:
    """Lives of random length, killed between a record on [documents] and its offset; live edits beside; lost receipts."""
    repeats = overtaken = 0
    for seed in range(60):
        dice = random.Random(seed)
        world = World(dice, an_import(dice))
        for _ in range(60):
            if world.committed == len(world.bulk):
                break
            await world.life(dice.randint(1, 25))
        assert world.committed == len(world.bulk), seed

        documents = world.documents()
        events = [change.event_id for change in documents]
        assert {change.event_id for change in world.bulk} <= set(events), "a record of [bulk] never came"
        repeats += len(events) - len(set(events))

        seen: dict[tuple[str, str], Seen] = {}
        for change in documents:
            key = (change.tenant_id, change.document_id)
            decision = settle_change(change, seen.get(key))
            overtaken += isinstance(decision, AlreadySettled) and decision.outcome == "stale"
            seen[key] = decision.seen or seen[key]
        for key, last in seen.items():
            of_key = [c for c in (*world.bulk, *(c for _, c in world.live)) if (c.tenant_id, c.document_id) == key]
            newest = max(of_key, key=lambda change: change.revision)
            assert (last.revision, last.event_id) == (newest.revision, newest.event_id), (seed, key)
    assert repeats > 100, "no life was killed where it hurts"
    assert overtaken > 100, "no edit overtook what waited"
