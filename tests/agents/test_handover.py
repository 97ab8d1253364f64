"""Handover over stand-ins: what is prepared, held back and re-checked when partitions come, stay and go."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field
from typing import Any

import pytest
from faust.types import TP

from streams.errors import InvariantBroken, Stopping
from streams.faustio.handover import Handover, Taken
from streams.faustio.keyed_runner import KeyedRunner
from streams.ports import InRecord
from streams.settings import KafkaSettings, QdrantSettings, Settings, WorkerSettings
from tests.agents.fake_faust import FakeApp, FakeStream, event, settle

GRACE = 0.05


class Owner(FakeApp):
    """A stand-in app that owns partitions of topic t."""

    def __init__(self) -> None:
        super().__init__()
        self.owned = {0, 1}
        self.consumer.assignment = lambda: {TP("t", number) for number in self.owned}  # type: ignore[attr-defined]
        self.conf: Any = type("Conf", (), {"id": "g"})
        self.runners: list[KeyedRunner] = []
        self.handover: Handover | None = None


@dataclass
class Noted:
    """Duties that note what they are called for, in one list with the records that were handled."""

    fresh: bool = False
    calls: list[Any] = field(default_factory=list)
    error: Exception | None = None

    async def begin(self, partitions: frozenset[int]) -> bool:
        self.calls.append(("begin", sorted(partitions)))
        if self.error is not None:
            raise self.error
        return self.fresh

    async def recheck(self, partition: int, taken: Taken) -> None:
        self.calls.append(("recheck", partition, list(taken.keys), dict(taken.spans)))


@dataclass
class Life:
    """One app with one runner."""

    app: Owner = field(default_factory=Owner)
    duties: Noted = field(default_factory=Noted)
    stream: FakeStream = field(default_factory=FakeStream)
    grace: float = GRACE
    most_keys: int = 100
    tasks: list[asyncio.Task[None]] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.gate = asyncio.Event()
        self.gate.set()
        self.runner = KeyedRunner(self.app, "r", self.handle)
        self.runner.topic = "t"
        self.app.runners.append(self.runner)
        self.handover = Handover(self.app, self.duties, self.grace, self.most_keys)

    def traces(self, taken: bool = True) -> list[dict[TP, int]]:
        """Let offsets be committed by hand, or be refused; return those that are, as they come."""
        came: list[dict[TP, int]] = []

        async def commit(offsets: dict[TP, int]) -> bool:
            self.duties.calls.append(("trace", offsets))
            came.append(offsets)
            return taken

        self.app.consumer._commit = commit  # type: ignore[attr-defined]
        return came

    async def handle(self, record: InRecord) -> None:
        self.duties.calls.append(record.offset)
        await self.gate.wait()

    async def run(self, *offsets: int, partition: int = 0) -> None:
        """Begin the present generation with records before it."""
        self.stream.push(*(event(offset, "k", partition, self.app.consumer_generation_id) for offset in offsets))
        self.tasks.append(asyncio.create_task(self.runner.run(self.stream)))
        self.handover.reopen()
        await settle()

    async def rebalance(self, owned: set[int], missed: int = 0) -> None:
        """Give all up and begin the next generation."""
        self.handover.close()
        self.runner.close()
        self.handover.left_behind(self.runner.in_flight)
        await self.handover.cancel()
        await self.runner.cancel()
        self.app.owned = owned
        self.app.consumer_generation_id += 1 + missed
        self.handover.reopen()
        await settle()

    async def until_over(self) -> None:
        """Wait until nothing is held back."""
        while self.handover.held:  # noqa: ASYNC110 - polls a state that has no event
            await asyncio.sleep(0.005)


async def test_what_was_handled_in_the_grace_is_re_checked_before_it_may_be_committed() -> None:
    life = Life()
    await life.run(5, 6)
    assert life.duties.calls == [("begin", [0, 1]), 5, 6]
    assert set(life.handover.held) == {0, 1}
    await life.until_over()
    assert life.duties.calls[3:] == [("recheck", 0, [b"k"], {"t": (5, 7)})]
    life.stream.push(event(7))
    await settle()
    assert life.duties.calls[-1] == 7, "records flow again"


async def test_no_record_is_in_work_while_partitions_are_re_checked() -> None:
    life = Life()
    life.gate.clear()
    await life.run(5)
    await asyncio.sleep(GRACE * 2)
    life.stream.push(event(6))
    await settle()
    assert life.duties.calls == [("begin", [0, 1]), 5]
    life.gate.set()
    await life.until_over()
    await settle()
    assert life.duties.calls[2:] == [("recheck", 0, [b"k"], {"t": (5, 6)}), 6]


async def test_a_group_with_nothing_behind_it_and_a_grace_of_zero_hold_nothing_back() -> None:
    for life in (Life(duties=Noted(fresh=True)), Life(grace=0)):
        await life.run(0)
        assert life.duties.calls == [("begin", [0, 1]), 0]
        assert not life.handover.held


async def test_who_begins_with_nothing_leaves_a_trace_before_its_first_record() -> None:
    """Else one that is paused with its first records in hand would be nobody to its successor."""
    life = Life(duties=Noted(fresh=True))
    life.app.fronts = {TP("t", 0): 3, TP("t", 1): 0, TP("t", 2): 0}
    traces = life.traces()
    await life.run(3)
    assert life.duties.calls == [("begin", [0, 1]), ("trace", {TP("t", 0): 3, TP("t", 1): 0}), 3]
    life.duties.fresh = False
    await life.rebalance({0, 1}, missed=1)
    assert len(traces) == 1, "where somebody was before, there is one"


async def test_a_trace_that_the_group_does_not_take_lets_no_record_in() -> None:
    life = Life(duties=Noted(fresh=True))
    life.app.fronts = {TP("t", 0): 0}
    life.traces(taken=False)
    await life.run(0)
    assert life.duties.calls == [("begin", [0, 1]), ("trace", {TP("t", 0): 0})]
    assert life.app.crashes == []


async def test_no_record_is_handled_before_the_first_generation_is_prepared() -> None:
    life = Life()
    life.stream.push(event(0))
    life.tasks.append(asyncio.create_task(life.runner.run(life.stream)))
    await settle()
    assert life.duties.calls == []
    life.handover.reopen()
    await settle()
    assert life.duties.calls == [("begin", [0, 1]), 0]


async def test_no_record_is_handled_before_the_duties_are_done() -> None:
    life = Life(duties=Noted(error=Stopping("leaving")))
    await life.run(0)
    assert life.duties.calls == [("begin", [0, 1])]
    assert set(life.handover.held) == {0, 1}
    assert life.app.crashes == []


async def test_an_error_of_the_duties_takes_the_app_down() -> None:
    life = Life(duties=Noted(error=InvariantBroken("no")))
    await life.run(0)
    assert [type(error) for error in life.app.crashes] == [InvariantBroken]


async def test_partitions_that_stay_are_not_taken_over_again() -> None:
    life = Life(duties=Noted(fresh=True))
    await life.run()
    await life.rebalance({0})
    assert not life.handover.held
    life.duties.fresh = False
    await life.rebalance({0, 1})
    assert life.duties.calls == [("begin", [0, 1]), ("begin", [1])]
    assert set(life.handover.held) == {1}


async def test_a_grace_that_is_not_over_goes_on_in_the_next_generation() -> None:
    life = Life(grace=60)
    await life.run()
    before = dict(life.handover.held)
    await life.rebalance({0, 1})
    assert dict(life.handover.held) == before


async def test_a_member_that_missed_a_generation_or_left_a_handler_behind_takes_all_as_new() -> None:
    life = Life(duties=Noted(fresh=True))
    await life.run()
    life.duties.fresh = False
    await life.rebalance({0, 1}, missed=1)
    assert set(life.handover.held) == {0, 1}

    life = Life(duties=Noted(fresh=True))
    life.gate.clear()
    await life.run(0)
    life.duties.fresh = False
    await life.rebalance({0, 1})
    assert set(life.handover.held) == {0, 1}


async def test_with_too_many_keys_intake_waits_for_the_grace_to_end() -> None:
    life = Life(most_keys=2)
    life.stream.push(*(event(offset) for offset in range(4)))
    await life.run()
    assert life.duties.calls == [("begin", [0, 1]), 0, 1]
    await life.until_over()
    await settle()
    assert life.duties.calls[3:] == [("recheck", 0, [b"key-0", b"key-1"], {"t": (0, 2)}), 2, 3]


@pytest.mark.parametrize(
    ("settings", "grace"),
    [
        pytest.param(Settings(), 60, id="one try to write to Kafka"),
        pytest.param(Settings(qdrant=QdrantSettings(timeout_seconds=90)), 90, id="the index's timeout"),
        pytest.param(Settings(kafka=KafkaSettings(session_timeout_seconds=75)), 75, id="the session"),
        pytest.param(Settings(worker=WorkerSettings(handover_grace_seconds=0)), 0, id="off"),
    ],
)
def test_the_grace_is_as_long_as_the_longest_thing_under_way_unless_it_is_set(settings: Settings, grace: float) -> None:
    assert settings.handover_grace_seconds == grace
