"""KeyedRunner over a stand-in stream: order, acknowledgement, failure, giving partitions up."""

from __future__ import annotations

import asyncio
import random
from collections import defaultdict

import pytest
from hypothesis import given
from hypothesis import strategies as st

from streams.errors import InvariantBroken, Stopping
from streams.faustio.continuity import OffsetContinuity
from streams.faustio.keyed_runner import KeyedRunner
from streams.faustio.runner import record_of
from streams.ports import InRecord
from tests.agents.fake_faust import FakeApp, FakeEvent, FakeMessage, FakeStream, event, settle
from tests.support.patience import PATIENCE


class Gates:
    """A handler whose calls end when told to."""

    def __init__(self) -> None:
        self.began: list[int] = []
        self.ended: list[int] = []
        self._gates: dict[int, asyncio.Future[None]] = {}

    async def handle(self, record: InRecord) -> None:
        self.began.append(record.offset)
        self._gates[record.offset] = asyncio.get_running_loop().create_future()
        await self._gates[record.offset]
        self.ended.append(record.offset)

    async def end(self, *offsets: int, error: Exception | None = None) -> None:
        for offset in offsets:
            if error is None:
                self._gates[offset].set_result(None)
            else:
                self._gates[offset].set_exception(error)
            await settle()


async def test_records_are_acknowledged_in_offset_order_whatever_ends_first() -> None:
    app, gates = FakeApp(), Gates()
    stream = FakeStream(event(n) for n in range(4))
    running = asyncio.ensure_future(KeyedRunner(app, "a", gates.handle).run(stream))
    await settle()
    assert gates.began == [0, 1, 2, 3]
    await gates.end(3, 1)
    assert stream.acked == []
    await gates.end(0)
    assert stream.acked == [(0, 0), (0, 1)]
    await gates.end(2)
    assert stream.acked == [(0, 0), (0, 1), (0, 2), (0, 3)]
    assert stream.enable_acks is False
    running.cancel()


async def test_partitions_do_not_wait_for_each_other() -> None:
    gates = Gates()
    stream = FakeStream([event(0, partition=0), event(1, partition=1)])
    running = asyncio.ensure_future(KeyedRunner(FakeApp(), "a", gates.handle).run(stream))
    await settle()
    await gates.end(1)
    assert stream.acked == [(1, 1)]
    running.cancel()


async def test_one_key_is_handled_one_record_at_a_time_and_other_keys_go_on() -> None:
    gates = Gates()
    stream = FakeStream([event(0, "k"), event(1, "k"), event(2, "other")])
    running = asyncio.ensure_future(KeyedRunner(FakeApp(), "a", gates.handle).run(stream))
    await settle()
    assert gates.began == [0, 2]
    await gates.end(0)
    assert gates.began == [0, 2, 1]
    running.cancel()


async def test_records_without_a_key_run_side_by_side() -> None:
    gates = Gates()
    stream = FakeStream(event(n, "") for n in range(3))
    running = asyncio.ensure_future(KeyedRunner(FakeApp(), "a", gates.handle).run(stream))
    await settle()
    assert gates.began == [0, 1, 2]
    running.cancel()


async def test_no_more_than_in_flight_records_are_at_work() -> None:
    gates = Gates()
    stream = FakeStream(event(n) for n in range(20))
    runner = KeyedRunner(FakeApp(), "a", gates.handle, in_flight=3)
    running = asyncio.ensure_future(runner.run(stream))
    await settle()
    assert (len(gates.began), runner.in_flight, stream.taken) == (3, 3, 4)
    await gates.end(1)
    assert gates.began == [0, 1, 2, 3]
    running.cancel()


async def test_a_failed_record_crashes_the_app_and_nothing_after_it_is_acknowledged() -> None:
    app, gates = FakeApp(), Gates()
    stream = FakeStream(event(n) for n in range(5))
    running = asyncio.ensure_future(KeyedRunner(app, "a", gates.handle, in_flight=4).run(stream))
    await settle()
    await gates.end(0, 3)
    await gates.end(1, error=ValueError("broken"))
    assert [str(crash) for crash in app.crashes] == ["broken"]
    assert app.consumer.commits == 1, "what was acknowledged before is committed"
    assert stream.acked == [(0, 0)]
    stream.push(event(5))
    await settle()
    assert 5 not in gates.began
    assert stream.acked == [(0, 0)]
    assert not running.done(), "the agent holds its record: ending would acknowledge it"
    running.cancel()


async def test_stopping_leaves_the_record_and_the_rest_of_its_key_unacknowledged_without_a_crash() -> None:
    app, gates = FakeApp(), Gates()
    stream = FakeStream([event(0, "k"), event(1, "k"), event(2)])
    runner = KeyedRunner(app, "a", gates.handle)
    running = asyncio.ensure_future(runner.run(stream))
    await settle()
    await gates.end(0, error=Stopping("outage"))
    await gates.end(2)
    assert gates.began == [0, 2], "the key's next record is not begun before its predecessor is done"
    assert (stream.acked, app.crashes, runner.in_flight) == ([], [], 0)
    running.cancel()


async def test_a_cancelled_future_inside_of_a_handler_is_a_failure_not_a_silent_stall() -> None:
    async def handle(_: InRecord) -> None:
        broken: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        broken.cancel()
        await broken

    app, stream = FakeApp(), FakeStream([event(0)])
    running = asyncio.ensure_future(KeyedRunner(app, "a", handle).run(stream))
    await asyncio.wait_for(app.crashed.wait(), PATIENCE)
    assert isinstance(app.crashes[0], InvariantBroken)
    assert stream.acked == []
    running.cancel()


async def test_giving_partitions_up_cancels_what_does_not_end_and_the_next_generation_starts_afresh() -> None:
    app, gates = FakeApp(), Gates()
    stream = FakeStream([event(0, "k"), event(1, "k")])
    runner = KeyedRunner(app, "a", gates.handle)
    running = asyncio.ensure_future(runner.run(stream))
    await settle()
    runner.close()
    await runner.finish(0)
    await runner.cancel()
    assert runner.in_flight == 0
    stream.push(event(2))  # of the old generation, still on its way
    await settle()
    app.consumer_generation_id = 2
    runner.reopen()
    stream.push(event(0, "k", generation=2), event(1, "k", generation=2))
    await settle()
    assert gates.began == [0, 0]
    await gates.end(0)
    await gates.end(1)
    assert stream.acked == [(0, 0), (0, 1)]
    assert app.crashes == []
    running.cancel()


async def test_what_was_taken_is_finished_while_there_is_time_and_not_begun_when_there_is_none() -> None:
    app, gates = FakeApp(), Gates()
    stream = FakeStream(event(n, "k") for n in range(3))
    runner = KeyedRunner(app, "a", gates.handle)
    running = asyncio.ensure_future(runner.run(stream))
    await settle()
    runner.close()
    await gates.end(0)
    assert gates.began == [0, 1], "a gap before a finished record would have it come again"
    app.leaving.set()
    await gates.end(1)
    assert (gates.began, runner.in_flight) == ([0, 1], 0)
    assert stream.acked == [(0, 0), (0, 1)]
    running.cancel()


async def test_a_handler_that_outlives_its_generation_acknowledges_nothing() -> None:
    app, gates = FakeApp(), Gates()
    stream = FakeStream([event(0)])
    running = asyncio.ensure_future(KeyedRunner(app, "a", gates.handle).run(stream))
    await settle()
    app.consumer_generation_id = 2
    await gates.end(0)
    assert (stream.acked, app.crashes) == ([], [])
    running.cancel()


async def test_a_skipped_offset_crashes_the_app_before_it_is_handled() -> None:
    app, gates = FakeApp(), Gates()
    stream = FakeStream([event(0), event(1), event(3)])
    running = asyncio.ensure_future(KeyedRunner(app, "a", gates.handle, continuity=OffsetContinuity()).run(stream))
    await app.crashed.wait()
    await settle()
    assert 3 not in gates.began
    assert isinstance(app.crashes[0], InvariantBroken)
    running.cancel()


@given(st.lists(st.tuples(st.integers(0, 2), st.integers(0, 4)), max_size=60), st.integers(1, 8), st.integers())
def test_any_history_keeps_order_per_key_and_acknowledges_every_offset_in_order(
    records: list[tuple[int, int]], in_flight: int, seed: int
) -> None:
    dice = random.Random(seed)

    async def history() -> None:
        offsets: dict[int, int] = defaultdict(int)
        events = []
        for partition, key in records:
            events.append(event(offsets[partition], f"{partition}/{key}", partition))
            offsets[partition] += 1
        done: dict[bytes | None, list[int]] = defaultdict(list)

        async def handle(record: InRecord) -> None:
            for _ in range(dice.randrange(4)):
                await asyncio.sleep(0)
            done[record.key].append(record.offset)

        stream = FakeStream(events)
        stream.end()
        runner = KeyedRunner(FakeApp(), "a", handle, in_flight)
        await runner.run(stream)
        await runner.finish(5)
        await settle(2)
        assert all(came == sorted(came) for came in done.values())
        for partition, count in offsets.items():
            assert [offset for p, offset in stream.acked if p == partition] == list(range(count))

    asyncio.run(history())


@pytest.mark.parametrize(
    ("begins", "offsets", "skips"),
    [
        pytest.param(0, [0, 1, 2], False, id="a-new-group-begins-at-0"),
        pytest.param(0, [3], True, id="a-new-group-that-begins-later-has-skipped"),
        pytest.param(3, [3, 4], False, id="a-group-that-forgot-its-commits-begins-at-the-front"),
        pytest.param(7, [7, 8], False, id="a-generation-begins-at-the-committed-offset"),
        pytest.param(7, [8], True, id="one-record-skipped-at-the-start"),
        pytest.param(7, [7, 9], True, id="one-record-skipped-later"),
        pytest.param(7, [7, 8, 7, 8, 9], False, id="a-repeat-skips-nothing"),
    ],
)
def test_continuity(begins: int, offsets: list[int], skips: bool) -> None:
    watch = OffsetContinuity()

    def come() -> None:
        for offset in offsets:
            watch.check("t", 0, 1, offset, begins)

    if skips:
        with pytest.raises(InvariantBroken, match="skipped"):
            come()
    else:
        come()
        watch.check("t", 0, 2, 9, 9)


def test_a_header_without_a_value_is_an_empty_one() -> None:
    message = FakeMessage("in", 0, 0, b"k", b"v", headers=[("trace", None), ("kind", b"x")])
    assert record_of(FakeEvent(message)).headers == {"trace": b"", "kind": b"x"}
