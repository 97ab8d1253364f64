"""Live work goes first: a build waits for it between slices, and never takes more than its rate."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

import numpy as np
import pytest

from streams.batches.pace import SLICE_TEXTS, LaneEmbedder, Lanes, Pace
from streams.errors import Stopping
from streams.ports import Vector
from tests.support.patience import PATIENCE


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
    for _ in range(10):
        await asyncio.sleep(0)


async def test_live_work_waits_for_one_slice_of_a_build_at_most() -> None:
    model, lanes = OneAtATime(), Lanes()
    build, live = LaneEmbedder(model, lanes, lambda: False), LaneEmbedder(model, lanes, lambda: True)
    texts = [f"{'b' * n}" for n in range(1, 3 * SLICE_TEXTS + 1)]
    building = asyncio.create_task(build.embed(texts))
    await settle()
    living = asyncio.create_task(live.embed(["live"]))
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


async def test_a_live_call_that_fails_lets_the_build_go_on() -> None:
    class Broken(OneAtATime):
        async def embed(self, texts: Sequence[str]) -> list[Vector]:
            raise ValueError("broken")

    lanes = Lanes()
    with pytest.raises(ValueError, match="broken"):
        await LaneEmbedder(Broken(), lanes, lambda: True).embed(["x"])
    await asyncio.wait_for(lanes.quiet(), PATIENCE)


async def test_a_pace_lets_documents_through_at_its_rate_and_can_be_lifted() -> None:
    pace, leaving = Pace(20.0), asyncio.Event()
    loop = asyncio.get_running_loop()
    began = loop.time()
    for _ in range(6):
        await pace.turn(leaving)
    assert loop.time() - began >= 5 / 20.0 - 0.01, "six documents at twenty a second take at least five gaps"
    pace.set(0.001)
    await pace.turn(leaving)
    waiting = asyncio.create_task(pace.turn(leaving))
    await settle()
    assert not waiting.done()
    pace.set(None)
    await asyncio.wait_for(waiting, PATIENCE)


async def test_a_document_that_waits_for_its_turn_stops_when_the_app_leaves() -> None:
    pace, leaving = Pace(0.001), asyncio.Event()
    await pace.turn(leaving)
    waiting = asyncio.create_task(pace.turn(leaving))
    await settle()
    leaving.set()
    with pytest.raises(Stopping):
        await asyncio.wait_for(waiting, PATIENCE)
