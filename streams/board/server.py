"""Board: the server of the page. GET shows and never changes anything; POST acts (streams/board/guard.py says who may)."""

from __future__ import annotations

import asyncio
import contextlib
import json
import time
from collections.abc import Awaitable, Callable
from importlib import resources
from typing import Any

import structlog
from aiohttp import web
from aiohttp.typedefs import Handler

from schemas.record import TENANT_PATTERN
from streams.board.actions import Actions
from streams.board.feeds import Feeds
from streams.board.guard import Guard, token_for
from streams.board.scrape import AskWorkers
from streams.errors import DocdeltaError, NotAuthorised, NotPrepared, NotReachable, Unavailable, UsageError
from streams.ports import VectorIndex
from streams.settings import Settings

log = structlog.get_logger(__name__)
TICK_SECONDS = 1.0
BEAT_SECONDS = 15.0
"""A quiet stream says so often that it lives."""
MOST_READERS = 50
BODY_BYTES = 16 << 10
FILES = {
    "/": ("index.html", "text/html"),
    "/board.css": ("board.css", "text/css"),
    "/board.js": ("board.js", "text/javascript"),
    "/words.json": ("words.json", "application/json"),
    "/favicon.svg": ("favicon.svg", "image/svg+xml"),
}


class Sections:
    """The page's sections as they were last told, each with the number of the tick that changed it."""

    def __init__(self) -> None:
        self.tick = 0
        self._told: dict[str, tuple[int, str]] = {}
        self._moved = asyncio.Condition()

    async def tell(self, sections: dict[str, Any]) -> None:
        """Take the sections of now, and wake readers if one of them changed."""
        texts = {name: json.dumps(value, ensure_ascii=False, separators=(",", ":")) for name, value in sections.items()}
        changed = {name: text for name, text in texts.items() if self._told.get(name, (0, ""))[1] != text}
        if not changed:
            return
        async with self._moved:
            self.tick += 1
            self._told |= {name: (self.tick, text) for name, text in changed.items()}
            self._moved.notify_all()

    async def since(self, tick: int, patience: float) -> list[tuple[str, str]]:
        """Return the sections that changed after a tick, as (name, JSON); none when nothing does within `patience` seconds."""
        async with self._moved:
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(patience):  # wait_for of 3.11 loses a cancellation in the moment of a change
                    await self._moved.wait_for(lambda: self.tick > tick)
            return [(name, text) for name, (when, text) in self._told.items() if when > tick]


class Board:
    """The page of one installation. `start`, then `stop`. Nothing is read from the broker before somebody looks, unless `eager`."""

    def __init__(self, feeds: Feeds, actions: Actions, guard: Guard, eager: bool = False) -> None:
        self._feeds, self._actions, self._guard, self._eager = feeds, actions, guard, eager
        self._sections = Sections()
        self._tasks: list[asyncio.Task[None]] = []
        self._runner: web.AppRunner | None = None
        self._readers = 0
        self.host, self.port = "", 0
        self.failure: BaseException | None = None
        """What ended the reading, where something did."""

    @property
    def url(self) -> str:
        """Where the page is. With its token, where one is demanded."""
        host = f"[{self.host}]" if ":" in self.host else self.host
        return f"http://{host}:{self.port}/" + (f"?token={self._guard.token}" if self._guard.token else "")

    async def start(self, host: str, port: int) -> None:
        """Listen (port 0: a free one). NotReachable when the port can't be opened."""
        application = web.Application(client_max_size=BODY_BYTES, middlewares=[self._guard.middleware, _in_words])
        for path in FILES:
            application.router.add_get(path, _file)
        application.router.add_get("/api/session", self._session)
        application.router.add_get("/api/events", self._events)
        application.router.add_get("/api/state", self._state)
        application.router.add_get("/api/why", self._why)
        application.router.add_get("/api/letter", self._letter)
        for name in ("replay", "drop", "reindex", "gate"):
            application.router.add_post(f"/api/{name}", getattr(self, f"_{name}"))
        runner = web.AppRunner(application, access_log=None, shutdown_timeout=0.5, handler_cancellation=True)
        await runner.setup()
        try:
            await web.TCPSite(runner, host, port).start()
        except OSError as error:
            await runner.cleanup()
            words = f"the dashboard can't listen on {host} port {port}: {error.strerror}; give another --port"
            raise NotReachable(words) from error
        self._runner, self.host, self.port = runner, host, int(runner.addresses[0][1])
        if self._eager:
            self._begin()

    async def stop(self) -> None:
        """Stop listening and reading."""
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        if self._runner is not None:
            await self._runner.cleanup()
            self._runner = None

    def _begin(self) -> None:
        if not self._tasks:
            self._tasks = [asyncio.create_task(self._feeds.run()), asyncio.create_task(self._tick())]
            for task in self._tasks:
                task.add_done_callback(self._ended)

    def _ended(self, task: asyncio.Task[None]) -> None:
        """Old figures must not look like new ones: the page says that it is cut off."""
        if not task.cancelled() and (error := task.exception()) is not None:
            self.failure = error
            log.error("the dashboard reads no more: start it again", reason=repr(error))

    async def _tick(self) -> None:
        while True:
            if self._readers:
                await self._sections.tell(self._feeds.sections())
            await asyncio.sleep(TICK_SECONDS)

    # What is read

    async def _session(self, _: web.Request) -> web.Response:
        settings = self._feeds.settings
        return web.json_response(
            {
                "csrf": self._guard.csrf,
                "now": time.time(),
                "broker": settings.kafka.bootstrap_servers,
                "prefix": settings.kafka.topic_prefix,
                "alias": settings.qdrant.alias,
            }
        )

    async def _state(self, _: web.Request) -> web.Response:
        self._begin()
        if self.failure is not None:
            raise web.HTTPInternalServerError(reason="the dashboard reads no more: start it again")
        return web.json_response({"now": time.time(), **self._feeds.sections()})

    async def _events(self, request: web.Request) -> web.StreamResponse:
        """Tell all sections, then those that change, until the reader leaves."""
        if self._readers >= MOST_READERS:
            raise web.HTTPServiceUnavailable(reason=f"{MOST_READERS} pages are open already")
        self._begin()
        answer = web.StreamResponse(headers={"Content-Type": "text/event-stream", "X-Accel-Buffering": "no"})
        self._guard.dress(answer)
        await answer.prepare(request)
        self._readers += 1
        try:
            await self._sections.tell(self._feeds.sections())
            tick = 0
            while self.failure is None:
                changed = await self._sections.since(tick, BEAT_SECONDS)
                tick = self._sections.tick
                beat = f"event: now\ndata: {time.time():.3f}\n\n"
                parts = "".join(f"event: {name}\ndata: {text}\n\n" for name, text in changed)
                await answer.write((beat + parts).encode())
        except ConnectionResetError:
            pass
        finally:
            self._readers -= 1
        return answer

    async def _why(self, request: web.Request) -> web.Response:
        tenant, document = _document(request.query)
        return web.json_response(await self._actions.why(tenant, document))

    async def _letter(self, request: web.Request) -> web.Response:
        return web.json_response(await self._actions.letter(request.query.get("id", "")))

    # What acts

    async def _replay(self, request: web.Request) -> web.Response:
        return await _acted(request, lambda asked: self._actions.replay(str(asked.get("letter", ""))))

    async def _drop(self, request: web.Request) -> web.Response:
        return await _acted(request, lambda asked: self._actions.drop(str(asked.get("letter", ""))))

    async def _reindex(self, request: web.Request) -> web.Response:
        return await _acted(request, lambda asked: self._actions.reindex(*_document(asked)))

    async def _gate(self, request: web.Request) -> web.Response:
        async def ask(asked: dict[str, Any]) -> dict[str, str]:
            verdict = await self._feeds.ask_gate(str(asked.get("batch", "")))
            passed = bool(verdict.lines) and all(line.passed for line in verdict.lines)
            return {"outcome": "passed" if passed else "failed", "said": verdict.problem}

        self._begin()
        return await _acted(request, ask)


def make_board(
    settings: Settings, index: VectorIndex | None, ask_workers: AskWorkers, host: str, token: str = "", eager: bool = False
) -> Board:
    """Return the page of an installation, to be served on `host`. UsageError for a token that could be guessed.

    index: may be shared, is only read. eager: read from the broker at once, not when somebody looks.
    """
    feeds = Feeds(settings, index, ask_workers)
    return Board(feeds, Actions(settings, index), Guard(token_for(host, token)), eager)


async def _acted(request: web.Request, act: Callable[[dict[str, Any]], Awaitable[dict[str, str]]]) -> web.Response:
    try:
        asked = await request.json()
    except ValueError as error:
        raise UsageError("the body is no JSON") from error
    if not isinstance(asked, dict):
        raise UsageError("the body is no JSON object")
    done = await act(asked)
    log.info("action taken on the dashboard", action=request.path, outcome=done["outcome"])
    return web.json_response(done)


def _document(asked: Any) -> tuple[str, str]:
    tenant, document = str(asked.get("tenant", "")), str(asked.get("document", ""))
    if not TENANT_PATTERN.fullmatch(tenant) or not document.strip() or len(document.encode()) > 512:
        raise UsageError("name a tenant and a document")
    return tenant, document


async def _file(request: web.Request) -> web.Response:
    name, kind = FILES[request.path]
    text = resources.files("streams.board").joinpath("page", name).read_text(encoding="utf-8")
    return web.Response(text=text, content_type=kind, charset="utf-8")


@web.middleware
async def _in_words(request: web.Request, handler: Handler) -> web.StreamResponse:
    """Answer an expected error with its words."""
    try:
        return await handler(request)
    except (Unavailable, NotReachable, NotAuthorised) as error:
        return web.json_response({"error": str(error)}, status=503)
    except UsageError as error:
        return web.json_response({"error": str(error)}, status=409 if isinstance(error, NotPrepared) else 400)
    except DocdeltaError as error:
        return web.json_response({"error": str(error)}, status=502)
