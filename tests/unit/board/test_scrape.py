"""Claims about asking workers over HTTP: all that a worker tells is read, however it is cut on its way."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager

import pytest
from aiohttp import web

from streams.board import scrape
from streams.board.scrape import over_http

LINES = "".join(f'docdelta_drift_points{{batch="b{number}",kind="missing"}} 1\n' for number in range(5_000))
Answer = Callable[[web.Request], Awaitable[web.StreamResponse]]


async def whole(request: web.Request) -> web.StreamResponse:
    return web.Response(text=LINES)


async def in_pieces(request: web.Request) -> web.StreamResponse:
    response = web.StreamResponse()
    await response.prepare(request)
    for start in range(0, len(LINES), 10_007):
        await response.write(LINES[start : start + 10_007].encode())
        await asyncio.sleep(0.001)  # so that they travel apart
    return response


@asynccontextmanager
async def worker(answer: Answer) -> AsyncIterator[str]:
    app = web.Application()
    app.router.add_get("/metrics", answer)
    runner = web.AppRunner(app)
    await runner.setup()
    try:
        await web.TCPSite(runner, "127.0.0.1", 0).start()
        yield f"http://127.0.0.1:{runner.addresses[0][1]}"
    finally:
        await runner.cleanup()


@pytest.mark.parametrize("answer", [whole, in_pieces])
async def test_a_long_answer_is_read_to_its_end(answer: Answer, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(scrape, "PATIENCE_SECONDS", 240.0)
    async with worker(answer) as url:
        (facts,) = await over_http([url], sure=True)()
    assert facts.problem == ""
    assert facts.total("docdelta_drift_points") == 5_000


async def test_an_answer_without_end_is_a_problem_and_not_a_full_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(scrape, "LARGEST_BYTES", 1_000)
    async with worker(whole) as url:
        (facts,) = await over_http([url], sure=True)()
    assert "more than 1,000 bytes" in facts.problem
