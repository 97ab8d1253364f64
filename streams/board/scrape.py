"""Asking workers for their metrics: over HTTP, or this very process where the worker lives in it (`docdelta dev`)."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable, Sequence

import aiohttp

from streams import metrics
from streams.board.workers import WorkerFacts, read_worker

AskWorkers = Callable[[], Awaitable[Sequence[WorkerFacts]]]
PATIENCE_SECONDS = 5.0
LARGEST_BYTES = 8 << 20


def over_http(urls: Sequence[str], sure: bool) -> AskWorkers:
    """Return how the workers at these addresses (`http://host:port`) are asked. `sure`: they are there; otherwise one that never
    answered is no trouble."""
    answered: set[str] = set(urls) if sure else set()

    async def ask() -> list[WorkerFacts]:
        timeout = aiohttp.ClientTimeout(total=PATIENCE_SECONDS)
        async with aiohttp.ClientSession(timeout=timeout) as session:
            found = await asyncio.gather(*(_ask(session, url) for url in urls))
        answered.update(each.name for each in found if not each.problem)
        return [each for each in found if each.name in answered]

    return ask


async def _ask(session: aiohttp.ClientSession, url: str) -> WorkerFacts:
    try:
        async with session.get(f"{url.rstrip('/')}/metrics") as answer:
            if answer.status != 200:
                return WorkerFacts(url, time.time(), f"answers {answer.status}")
            told = bytearray()
            async for some in answer.content.iter_any():  # `read(n)` returns what has come so far
                told += some
                if len(told) > LARGEST_BYTES:
                    return WorkerFacts(url, time.time(), f"answers more than {LARGEST_BYTES:,} bytes")
    except (aiohttp.ClientError, TimeoutError) as error:
        return WorkerFacts(url, time.time(), str(error) or type(error).__name__)
    return read_worker(url, told.decode("utf-8", "replace"), time.time())


async def this_process() -> list[WorkerFacts]:
    """Ask the worker that lives in this process."""
    return [read_worker("this process", metrics.exposition(), time.time())]
