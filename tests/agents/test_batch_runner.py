"""BatchRunner over a stand-in stream."""

from __future__ import annotations

import asyncio
import random
from collections import defaultdict
from collections.abc import Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from streams.errors import InvariantBroken, Stopping
from streams.faustio.batch_runner import BatchRunner, Waiting, pick
from streams.faustio.continuity import OffsetContinuity
from streams.faustio.runner import Slot, record_of
from streams.faustio.scope import event_for
from streams.ports import InRecord
from tests.agents.fake_faust import FakeApp, FakeEvent, FakeStream, event, settle
from tests.support.patience import PATIENCE


class Groups:
    """A handler that notes its groups; while `hold` is set it waits."""

    def __init__(self) -> None:
        self.came: list[list[int]] = []
        self.at_work = 0
        self.most_at_work = 0
        self.go = asyncio.Event()
        self.go.set()
        self.error: Exception | None = None

    async def handle(self, records: Sequence[InRecord]) -> None:
        self.came.append([record.offset for record in records])
        self.at_work += 1
        self.most_at_work = max(self.most_at_work, self.at_work)
        try:
            await self.go.wait()
            if self.error is not None:
                raise self.error
        finally:
            self.at_work -= 1


async def test_groups_are_full_one_at_a_time_in_order_and_acknowledged_in_order() -> None:
    groups = Groups()
    stream = FakeStream(event(n, f"k{n % 3}", partition=n % 2) for n in range(10))
    stream.end()
    await BatchRunner(FakeApp(), "b", groups.handle, size=4, seconds=0).run(stream)
    assert [n for group in groups.came for n in group] == list(range(10))
    assert max(map(len, groups.came)) <= 4
    assert groups.most_at_work == 1
    assert [n for partition, n in stream.acked if partition == 0] == [0, 2, 4, 6, 8]
    assert [n for partition, n in stream.acked if partition == 1] == [1, 3, 5, 7, 9]


async def test_a_group_waits_for_company_and_is_closed_when_full() -> None:
    groups = Groups()
    stream = FakeStream([event(0)])
    running = asyncio.ensure_future(BatchRunner(FakeApp(), "b", groups.handle, size=3, seconds=60).run(stream))
    await settle()
    assert groups.came == []
    stream.push(event(1), event(2), event(3))
    await settle()
    assert groups.came == [[0, 1, 2]]
    running.cancel()


async def test_intake_is_bounded_while_a_group_is_at_work() -> None:
    groups = Groups()
    groups.go.clear()
    stream = FakeStream(event(n) for n in range(100))
    running = asyncio.ensure_future(BatchRunner(FakeApp(), "b", groups.handle, size=4, seconds=0).run(stream))
    await settle(200)
    assert groups.at_work == 1
    assert stream.taken <= 2 * 4 + 1
    running.cancel()


async def test_groups_at_work_together_share_no_key_and_are_acknowledged_in_order() -> None:
    groups = Groups()
    groups.go.clear()
    stream = FakeStream([event(0, "a"), event(1, "b"), event(2, "c"), event(3, "a"), event(4, "d")])
    running = asyncio.ensure_future(BatchRunner(FakeApp(), "b", groups.handle, size=2, seconds=0, at_once=2).run(stream))
    await settle()
    assert groups.came == [[0, 1], [2]]
    assert groups.at_work == 2
    groups.go.set()
    await settle()
    assert groups.came == [[0, 1], [2], [3, 4]]
    assert stream.acked == [(0, n) for n in range(5)]
    running.cancel()


async def test_the_next_group_begins_while_one_is_at_work_and_is_not_acknowledged_before_it() -> None:
    stream, gates, came = FakeStream([event(0, "a"), event(1, "b")]), [asyncio.Event(), asyncio.Event()], []

    async def handle(records: Sequence[InRecord]) -> None:
        came.append(records[0].offset)
        await gates[records[0].offset].wait()

    running = asyncio.ensure_future(BatchRunner(FakeApp(), "b", handle, size=1, seconds=0, at_once=2).run(stream))
    await settle()
    gates[1].set()
    await settle()
    assert (came, stream.acked) == ([0, 1], [])
    gates[0].set()
    await settle()
    assert stream.acked == [(0, 0), (0, 1)]
    running.cancel()


async def test_a_failed_group_crashes_the_app_and_is_not_acknowledged() -> None:
    app, groups = FakeApp(), Groups()
    stream = FakeStream([event(0), event(1)])
    running = asyncio.ensure_future(BatchRunner(app, "b", groups.handle, size=2, seconds=0).run(stream))
    await settle()
    groups.error = ValueError("broken")
    stream.push(event(2), event(3), event(4))
    await app.crashed.wait()
    await settle()
    assert [str(crash) for crash in app.crashes] == ["broken"]
    assert stream.acked == [(0, 0), (0, 1)]
    assert not running.done()
    running.cancel()


async def test_stopping_leaves_the_group_unacknowledged_without_a_crash() -> None:
    app, groups = FakeApp(), Groups()
    groups.error = Stopping("outage")
    stream = FakeStream([event(0), event(1)])
    running = asyncio.ensure_future(BatchRunner(app, "b", groups.handle, size=2, seconds=0).run(stream))
    await settle()
    assert (groups.came, stream.acked, app.crashes) == ([[0, 1]], [], [])
    running.cancel()


async def test_giving_partitions_up_drops_what_waits_and_cancels_what_works() -> None:
    app, groups = FakeApp(), Groups()
    groups.go.clear()
    stream = FakeStream(event(n) for n in range(4))
    runner = BatchRunner(app, "b", groups.handle, size=2, seconds=0)
    running = asyncio.ensure_future(runner.run(stream))
    await settle()
    runner.close()
    await runner.finish(0)
    await runner.cancel()
    assert groups.at_work == 0
    app.consumer_generation_id = 2
    groups.go.set()
    runner.reopen()
    stream.push(*(event(n, generation=2) for n in range(4)))
    await settle()
    assert groups.came == [[0, 1], [0, 1], [2, 3]]
    assert stream.acked == [(0, n) for n in range(4)]
    running.cancel()


async def test_a_skipped_offset_crashes_the_app() -> None:
    app, groups = FakeApp(), Groups()
    stream = FakeStream([event(0), event(2)])
    runner = BatchRunner(app, "b", groups.handle, size=1, seconds=0, continuity=OffsetContinuity())
    running = asyncio.ensure_future(runner.run(stream))
    await app.crashed.wait()
    assert isinstance(app.crashes[0], InvariantBroken)
    running.cancel()


async def test_each_record_of_a_group_is_the_scope_of_its_own_key() -> None:
    found: dict[bytes, int] = {}

    async def handle(records: Sequence[InRecord]) -> None:
        for record in records:
            assert record.key is not None
            found[record.key] = event_for(record.key).message.partition

    stream = FakeStream([event(0, "a", partition=0), event(0, "b", partition=1)])
    stream.end()
    await BatchRunner(FakeApp(), "b", handle, size=2, seconds=0).run(stream)
    assert found == {b"a": 0, b"b": 1}


def goes_first(record: InRecord) -> bool:
    return "live" in record.headers


def live(offset: int, key: str | None = None, partition: int = 0) -> FakeEvent:
    return event(offset, key, partition, headers=[("live", b"")])


async def test_what_goes_first_passes_what_waits_and_is_acknowledged_in_its_place() -> None:
    groups = Groups()
    groups.go.clear()
    stream = FakeStream([event(0), event(1), event(2), live(3), event(4)])
    runner = BatchRunner(FakeApp(), "b", groups.handle, size=2, seconds=0, goes_first=goes_first)
    running = asyncio.ensure_future(runner.run(stream))
    await settle()
    assert groups.came == [[0, 1], [3]]
    groups.go.set()
    await settle()
    assert groups.came == [[0, 1], [3], [2, 4]]
    assert stream.acked == [(0, n) for n in range(5)]
    running.cancel()


async def test_what_goes_first_waits_neither_for_company_nor_for_the_groups_of_others() -> None:
    groups = Groups()
    groups.go.clear()
    stream = FakeStream([event(0), event(1)])
    runner = BatchRunner(FakeApp(), "b", groups.handle, size=2, seconds=60, goes_first=goes_first)
    running = asyncio.ensure_future(runner.run(stream))
    await settle()
    stream.push(event(2), live(3))
    await settle()
    assert groups.came == [[0, 1], [3]], "beside the group of others, past one that waits"
    stream.push(live(4))
    await settle()
    assert groups.came == [[0, 1], [3]], "one group of its kind at once"
    groups.go.set()
    await settle()
    assert groups.came == [[0, 1], [3], [4]]
    assert stream.acked == [(0, 0), (0, 1)], "what went first is acknowledged after what it passed"
    assert runner.records_in_hand == 3
    running.cancel()


async def test_what_goes_first_all_day_does_not_keep_others_from_their_group() -> None:
    groups = Groups()
    stream = FakeStream([event(0)])
    runner = BatchRunner(FakeApp(), "b", groups.handle, size=100, seconds=0.3, goes_first=goes_first)
    running = asyncio.ensure_future(runner.run(stream))
    try:
        async with asyncio.timeout(PATIENCE):
            offset = 0
            while not any(0 in group for group in groups.came):
                stream.push(live(offset := offset + 1))
                await settle()
    finally:
        running.cancel()


async def test_nothing_passes_a_record_of_its_own_key() -> None:
    groups = Groups()
    stream = FakeStream([event(0, "k"), live(1, "k"), live(2, "other")])
    runner = BatchRunner(FakeApp(), "b", groups.handle, size=3, seconds=0, goes_first=goes_first)
    running = asyncio.ensure_future(runner.run(stream))
    await settle()
    came = [offset for group in groups.came for offset in group]
    assert sorted(came) == [0, 1, 2]
    assert came.index(0) < came.index(1)
    running.cancel()


WAITS = st.lists(st.tuples(st.sampled_from(["a", "b", "c", ""]), st.booleans()), max_size=12)


@given(WAITS, st.sets(st.sampled_from([b"a", b"b", b"c"])), st.integers(1, 5), st.booleans())
def test_a_picked_record_passes_none_of_its_key_and_none_at_work(
    kinds: list[tuple[str, bool]], busy: set[bytes], size: int, first_only: bool
) -> None:
    made = [(event(n, key), first) for n, (key, first) in enumerate(kinds)]
    waiting = [Waiting(record_of(one), Slot(one, None), first) for one, first in made]
    picked = pick(waiting, busy, size, first_only)
    assert len(picked) <= size
    assert picked == [each for each in waiting if each in picked], "in order of arrival"
    for each in picked:
        before = waiting[: waiting.index(each)]
        assert each.record.key not in busy
        assert each.first or not first_only
        assert each.record.key is None or all(one in picked for one in before if one.record.key == each.record.key)
    if len(picked) < size:
        left = [each for each in waiting if each not in picked and each.record.key not in busy and (each.first or not first_only)]
        for each in left:
            assert any(
                one not in picked and one.record.key == each.record.key is not None for one in waiting[: waiting.index(each)]
            ), "what may begin is taken while there is room"


@given(st.integers(0, 10_000))
def test_histories_of_both_kinds_keep_the_order_of_keys_and_of_acknowledgement(seed: int) -> None:
    asyncio.run(_history(random.Random(seed)))


async def _history(dice: random.Random) -> None:
    """Records of both kinds on two partitions, groups that end in any order: laws, not times."""
    events = [(live if dice.random() < 0.4 else event)(n // 2, dice.choice("abcdef"), n % 2) for n in range(40)]
    gates, handled, at_work = list[asyncio.Event](), defaultdict[tuple[int, bytes | None], list[int]](list), set[bytes | None]()

    async def handle(records: Sequence[InRecord]) -> None:
        keys = {(record.partition, record.key) for record in records}
        assert not {key for _, key in keys} & at_work, "groups at work share no key"
        at_work.update(key for _, key in keys)
        gate = asyncio.Event()
        gates.append(gate)
        await gate.wait()
        at_work.difference_update(key for _, key in keys)
        for record in records:
            handled[record.partition, record.key].append(record.offset)

    stream, app = FakeStream(events), FakeApp()
    stream.end()
    size, at_once = dice.randint(1, 5), dice.randint(1, 3)
    runner = BatchRunner(app, "b", handle, size=size, seconds=0, at_once=at_once, goes_first=goes_first)
    running = asyncio.ensure_future(runner.run(stream))
    while not running.done():
        await settle(dice.randint(1, 20))
        assert runner.in_flight <= 2 * at_once
        assert len(runner._waiting) <= size
        if gates:
            gates.pop(dice.randrange(len(gates))).set()
    assert app.crashes == []
    for offsets in handled.values():
        assert offsets == sorted(offsets)
    for partition in (0, 1):
        assert [offset for where, offset in stream.acked if where == partition] == list(range(20)), "all, in offset order"


@pytest.mark.parametrize("turns", range(6))
async def test_an_agent_cancelled_in_the_moment_of_a_change_ends(turns: int) -> None:
    """Found by the simulator: its task that gathers lost the cancellation, and the agent's end waited for it for ever."""
    runner = BatchRunner(FakeApp(), "b", Groups().handle, size=2, seconds=60)
    running = asyncio.ensure_future(runner.run(FakeStream()))
    await settle()
    runner.close()
    await settle(turns)
    running.cancel()
    ended, _ = await asyncio.wait({running}, timeout=PATIENCE)
    assert ended
