"""The pace of a build: no more than its rate, changed while it waits, left when the app leaves."""

from __future__ import annotations

import asyncio

import pytest

from streams.batches.pace import Pace
from streams.errors import Stopping
from tests.support.patience import PATIENCE


async def settle() -> None:
    for _ in range(10):
        await asyncio.sleep(0)


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
