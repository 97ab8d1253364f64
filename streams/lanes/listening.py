"""Listening to outcomes for a feeder: while there is bulk work, and not before; idle systems pay nothing."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from contextlib import suppress
from functools import partial

import structlog

from streams.daemon import in_daemon_thread
from streams.errors import NotReachable, Unavailable
from streams.kafka.read import Follower
from streams.lanes.feeder import Feeder
from streams.lanes.passed import Chases, Offsets, read_offsets
from streams.settings import Settings

log = structlog.get_logger(__name__)
TICK_SECONDS = 1.0
"""How often it is looked whether a batch is served by now."""
OVERDUE_SECONDS = 2.0
"""After this the broker is asked what became of a change."""
IDLE_SECONDS = 30.0
"""So long without bulk work, and nobody listens any more."""
ReadOffsets = Callable[[str], dict[int, Offsets]]


async def listen(feeder: Feeder, settings: Settings) -> None:
    """Tell a feeder of outcomes, for ever."""
    while True:
        await feeder.wanted.wait()
        try:
            await _listen_while_wanted(feeder, settings)
        except (NotReachable, Unavailable) as error:
            log.warning("outcomes can't be heard; bulk changes wait", reason=str(error))
            await asyncio.sleep(TICK_SECONDS)


async def _listen_while_wanted(feeder: Feeder, settings: Settings) -> None:
    topics = settings.topics
    followers = [Follower(settings.kafka, topic, from_end=True) for topic in (topics.receipts, topics.dead_letters)]
    hearing: list[asyncio.Task[None]] = []
    try:
        for follower in followers:
            await follower.start()
            hearing.append(asyncio.create_task(_hear(feeder, follower)))
        feeder.listening = True
        await _until_idle(feeder, partial(read_offsets, settings), hearing)
    finally:
        feeder.listening = False
        for task in hearing:
            task.cancel()
        await asyncio.gather(*hearing, return_exceptions=True)
        for follower in followers:
            await follower.stop()


async def _hear(feeder: Feeder, follower: Follower) -> None:
    async for record in follower:
        feeder.heard(record)


async def _until_idle(feeder: Feeder, read: ReadOffsets, hearing: list[asyncio.Task[None]]) -> None:
    """Return when there has been nothing to do for a while. Raises what ended the hearing."""
    loop, chases = asyncio.get_running_loop(), Chases()
    busy = loop.time()
    while True:
        feeder.let_in()
        await chase(feeder, chases, read)
        if not feeder.idle:
            busy = loop.time()
        elif loop.time() - busy > IDLE_SECONDS:
            feeder.wanted.clear()
            return
        done, _ = await asyncio.wait(hearing, timeout=TICK_SECONDS, return_when=asyncio.FIRST_COMPLETED)
        for task in done:
            task.result()


async def chase(feeder: Feeder, chases: Chases, read: ReadOffsets) -> None:
    """Ask the broker about changes whose outcome is overdue, and have the feeder forget those that are through."""
    overdue = feeder.overdue(OVERDUE_SECONDS)
    batch = feeder.served()
    if not overdue or batch is None:
        return
    with suppress(NotReachable, Unavailable):  # asked again at the next tick
        offsets = await in_daemon_thread(partial(read, batch), "asks what became of bulk changes")
        feeder.through(chases.look(overdue, offsets))
