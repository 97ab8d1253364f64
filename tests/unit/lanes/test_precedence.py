"""Live work goes first: bulk and builds wait for it between pieces, none of them for ever, and nothing is lost or turned round."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

import numpy as np
import pytest

from streams.errors import Stopping, Unavailable
from streams.lanes.mark import HEADER, mark
from streams.lanes.precedence import (
    BULK_AT_ONCE,
    BULK_BESIDE_LIVE,
    LATELY_SECONDS,
    SLICE_TEXTS,
    LaneEmbedder,
    Lanes,
    Precedence,
    came_live,
    elsewhere,
)
from streams.patience import Patience
from streams.ports import InRecord, Vector
from tests.support.patience import PATIENCE

LONG = PATIENCE * 10
"""Longer than any test may take: a wait that ends did not end by itself."""


class OneAtATime:
    """A model whose calls end when they are let, in the order they came."""

    model, dimensions, max_tokens = "m", 2, None

    def __init__(self) -> None:
        self.calls: list[list[str]] = []
        self.turn = asyncio.Semaphore(0)

    def count_tokens(self, text: str) -> int:
        return 1

    async def embed(self, texts: Sequence[str]) -> list[Vector]:
        self.calls.append(list(texts))
        await self.turn.acquire()
        return [np.array([1, len(text)], dtype=np.float32) for text in texts]


async def settle() -> None:
    for _ in range(20):
        await asyncio.sleep(0)


def record(offset: int, bulk: bool = False) -> InRecord:
    return InRecord("t", 0, offset, f"k{offset}".encode(), b"", {HEADER: mark("0123456789abcdef", offset)} if bulk else {})


async def test_live_work_waits_for_one_slice_of_other_work_at_most() -> None:
    model, lanes = OneAtATime(), Lanes()
    embedder = LaneEmbedder(model, lanes)
    texts = [f"{'b' * n}" for n in range(1, 3 * SLICE_TEXTS + 1)]

    async def build() -> list[Vector]:
        async with lanes.yielding(LONG):
            return await embedder.embed(texts)

    building = asyncio.create_task(build())
    await settle()
    living = asyncio.create_task(embedder.embed(["live"]))
    await settle()
    assert [len(call) for call in model.calls] == [SLICE_TEXTS, 1], "the slice in work, then live work"
    model.turn.release()
    await settle()
    assert [len(call) for call in model.calls] == [SLICE_TEXTS, 1], "the build waits while live work embeds"
    for _ in range(10):
        model.turn.release()
    vectors = await building
    assert len(await living) == 1
    assert [vector[1] for vector in vectors] == [len(text) for text in texts], "in order, none lost"
    assert max(len(call) for call in model.calls) == SLICE_TEXTS


async def test_a_live_call_that_fails_lets_other_work_go_on() -> None:
    class Broken(OneAtATime):
        async def embed(self, texts: Sequence[str]) -> list[Vector]:
            raise ValueError("broken")

    lanes = Lanes()
    with pytest.raises(ValueError, match="broken"):
        await LaneEmbedder(Broken(), lanes).embed(["x"])
    await asyncio.wait_for(lanes.quiet(LONG), PATIENCE)


async def test_live_work_that_goes_on_for_ever_does_not_stop_the_rest() -> None:
    lanes = Lanes()
    with lanes.busy():
        await asyncio.wait_for(lanes.quiet(0.01), PATIENCE)
        async with lanes.yielding(0.01):
            pass


async def test_a_live_record_is_handled_at_once_and_bulk_when_no_live_one_is_in_hand() -> None:
    lanes, leaving, began, gates = Lanes(), asyncio.Event(), list[int](), dict[int, asyncio.Event]()
    stage = Precedence(lanes)

    async def handle(one: InRecord) -> None:
        async with stage.turn(one, leaving):
            began.append(one.offset)
            await gates.setdefault(one.offset, asyncio.Event()).wait()

    tasks = [asyncio.create_task(handle(record(n, bulk=True))) for n in range(BULK_AT_ONCE + 3)]
    await settle()
    assert began == list(range(BULK_AT_ONCE)), "no more of bulk than there is room for"
    tasks.append(asyncio.create_task(handle(record(100))))
    await settle()
    assert began[BULK_AT_ONCE:] == [100], "a live one needs no room"
    another_stage = Precedence(lanes)
    other = asyncio.create_task(_through(another_stage, record(7, bulk=True), leaving, began))
    await settle()
    assert began[BULK_AT_ONCE:] == [100], "bulk of every stage waits while a live record is in hand"
    gates[100].set()
    await settle()
    assert began[BULK_AT_ONCE:] == [100, 7]
    while len(began) < BULK_AT_ONCE + 5:
        for gate in list(gates.values()):
            gate.set()
        await asyncio.sleep(0)
    for gate in gates.values():
        gate.set()
    await asyncio.wait_for(asyncio.gather(*tasks, other), PATIENCE)
    assert sorted(began) == sorted([*range(BULK_AT_ONCE + 3), 7, 100])


async def _through(stage: Precedence, one: InRecord, leaving: asyncio.Event, began: list[int]) -> None:
    async with stage.turn(one, leaving):
        began.append(one.offset)


async def test_bulk_that_waits_for_its_turn_stops_when_the_app_leaves() -> None:
    lanes, leaving = Lanes(), asyncio.Event()
    with lanes.busy():
        waiting = asyncio.create_task(_through(Precedence(lanes), record(1, bulk=True), leaving, []))
        await settle()
        leaving.set()
    with pytest.raises(Stopping):
        await asyncio.wait_for(waiting, PATIENCE)


async def _away() -> None:
    raise Unavailable("its host is down")


async def test_a_live_record_that_waits_for_somebody_keeps_nobody_waiting() -> None:
    lanes, leaving, patience = Lanes(), asyncio.Event(), Patience(first=LONG, longest=LONG)
    stage, back = Precedence(lanes), asyncio.Event()

    async def handle() -> None:
        async with stage.turn(record(1), leaving):
            with pytest.raises(Stopping):
                await asyncio.gather(patience.hold(_away, "fetching content"), patience.hold(_away, "writing points"))
            await back.wait()

    handling = asyncio.create_task(handle())
    await settle()
    await asyncio.wait_for(lanes.quiet(LONG), PATIENCE)
    patience.stopping.set()
    await settle()
    assert lanes.live == 1, "it goes on, and is in hand again"
    back.set()
    await asyncio.wait_for(handling, PATIENCE)
    assert lanes.live == 0
    await asyncio.wait_for(lanes.quiet(LONG), PATIENCE)


async def test_a_live_record_that_is_asked_to_slow_down_is_not_outrun_by_bulk() -> None:
    lanes, patience, tries = Lanes(), Patience(), 0

    async def asked_to_wait() -> int:
        nonlocal tries
        tries += 1
        assert lanes.live == 1
        if tries < 4:
            raise Unavailable("too many requests", retry_after=0.001)
        return tries

    seen: list[int] = []

    async def look() -> None:
        while True:
            seen.append(lanes.live)
            await asyncio.sleep(0)

    with lanes.busy():
        looking = asyncio.create_task(look())
        assert await patience.hold(asked_to_wait, "embedding") == 4
        looking.cancel()
    assert set(seen) == {1}


@pytest.mark.parametrize("bulk", [False, True])
async def test_a_wait_that_outlives_its_record_changes_no_count(bulk: bool) -> None:
    lanes, patience = Lanes(), Patience(first=LONG, longest=LONG)
    stage = Precedence(lanes)
    async with stage.turn(record(1, bulk=bulk), asyncio.Event()):
        outliving = asyncio.create_task(patience.hold(_away, "writing points"))
        await settle()
    assert lanes.live == 0
    patience.stopping.set()
    with pytest.raises(Stopping):
        await outliving
    assert lanes.live == 0
    await asyncio.wait_for(lanes.quiet(LONG), PATIENCE)
    began: list[int] = []
    await asyncio.gather(*(_through(stage, record(n, bulk=True), asyncio.Event(), began) for n in range(BULK_AT_ONCE)))
    assert len(began) == BULK_AT_ONCE
    assert stage.room._value == BULK_AT_ONCE, "room is given back once"


async def test_a_live_record_that_is_fetched_keeps_nobody_waiting_and_bulk_keeps_its_room() -> None:
    lanes, leaving, fetched = Lanes(), asyncio.Event(), asyncio.Event()
    stage = Precedence(lanes)

    async def handle(one: InRecord) -> None:
        async with stage.turn(one, leaving):
            with elsewhere():
                await fetched.wait()

    handling = [asyncio.create_task(handle(record(n, bulk=n > 0))) for n in range(BULK_AT_ONCE + 1)]
    await settle()
    assert lanes.live == 0
    assert stage.room.locked(), "its documents are parsed when they are there: no more at once than before"
    fetched.set()
    await asyncio.wait_for(asyncio.gather(*handling), PATIENCE)
    assert lanes.live == 0
    assert stage.room._value == BULK_AT_ONCE
    with elsewhere():
        assert lanes.live == 0, "nothing is in hand"


async def test_bulk_that_waits_for_somebody_takes_no_room_of_the_rest() -> None:
    lanes, leaving, began = Lanes(), asyncio.Event(), list[int]()
    stage, patience = Precedence(lanes), Patience(first=LONG, longest=LONG)

    async def stuck(one: InRecord) -> None:
        async with stage.turn(one, leaving):
            await patience.hold(_away, "fetching content")

    held = [asyncio.create_task(stuck(record(n, bulk=True))) for n in range(2 * BULK_AT_ONCE)]
    await settle()
    others = [asyncio.create_task(_through(stage, record(100 + n, bulk=True), leaving, began)) for n in range(2 * BULK_AT_ONCE)]
    await asyncio.wait_for(asyncio.gather(*others), PATIENCE)
    assert sorted(began) == [100 + n for n in range(2 * BULK_AT_ONCE)]
    patience.stopping.set()
    ends = await asyncio.wait_for(asyncio.gather(*held, return_exceptions=True), PATIENCE)
    assert all(isinstance(end, Stopping) for end in ends)
    assert stage.room._value == BULK_AT_ONCE


def test_what_came_through_bulk_is_known_by_its_mark() -> None:
    assert came_live(record(1))
    assert not came_live(record(1, bulk=True))


async def test_fewer_of_bulk_are_at_work_while_there_was_live_work_lately() -> None:
    now, leaving, began, gate = 0.0, asyncio.Event(), list[int](), asyncio.Event()
    lanes = Lanes(clock=lambda: now)
    stage = Precedence(lanes)

    async def handle(one: InRecord) -> None:
        async with stage.turn(one, leaving):
            began.append(one.offset)
            await gate.wait()

    with lanes.busy():
        assert lanes.lately
    tasks = [asyncio.create_task(handle(record(n, bulk=True))) for n in range(BULK_AT_ONCE)]
    await settle()
    assert began == list(range(BULK_BESIDE_LIVE)), "more live work is to be expected"
    gate.set()
    await asyncio.wait_for(asyncio.gather(*tasks), PATIENCE)
    assert (stage.room._value, stage.beside_live._value) == (BULK_AT_ONCE, BULK_BESIDE_LIVE), "all room is given back"
    now += LATELY_SECONDS
    gate.clear()
    began.clear()
    tasks = [asyncio.create_task(handle(record(n, bulk=True))) for n in range(BULK_AT_ONCE + 1)]
    await settle()
    assert began == list(range(BULK_AT_ONCE)), "alone it has all the room"
    gate.set()
    await asyncio.wait_for(asyncio.gather(*tasks), PATIENCE)
