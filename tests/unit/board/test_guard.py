"""Nobody gets in without the token off loopback, and nobody but the page itself can act: over real HTTP."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from typing import Any

import aiohttp
import pytest

from streams.board.feeds import Feeds
from streams.board.guard import COOKIE, CSRF_HEADER, Guard, is_loopback, token_for
from streams.board.server import Board
from streams.errors import DocdeltaError, NotPrepared, NotReachable, Unavailable, UsageError
from streams.settings import Settings

TOKEN = "a-token-of-many-letters"


class Recorded:
    """Actions that only say what they were asked."""

    def __init__(self, error: Exception | None = None) -> None:
        self.asked: list[tuple[str, ...]] = []
        self._error = error

    async def _take(self, *asked: str) -> dict[str, Any]:
        self.asked.append(asked)
        if self._error is not None:
            raise self._error
        return {"outcome": "sent", "said": ""}

    async def replay(self, name: str) -> dict[str, Any]:
        return await self._take("replay", name)

    async def drop(self, name: str) -> dict[str, Any]:
        return await self._take("drop", name)

    async def reindex(self, tenant: str, document: str) -> dict[str, Any]:
        return await self._take("reindex", tenant, document)

    async def why(self, tenant: str, document: str) -> dict[str, Any]:
        return await self._take("why", tenant, document)

    async def letter(self, name: str) -> dict[str, Any]:
        return await self._take("letter", name)


class Still(Feeds):
    """Feeds that read nothing."""

    async def run(self) -> None:
        await asyncio.Event().wait()


@asynccontextmanager
async def board(
    token: str = "", error: Exception | None = None
) -> AsyncIterator[tuple[str, Recorded, Guard, aiohttp.ClientSession]]:
    """Give a running page: address, what its actions were asked, its guard, a client that keeps cookies."""

    async def nobody() -> list[Any]:
        return []

    actions, guard = Recorded(error), Guard(token)
    page = Board(Still(Settings(), None, nobody), actions, guard)  # type: ignore[arg-type]
    await page.start("127.0.0.1", 0)
    try:
        async with aiohttp.ClientSession(cookie_jar=aiohttp.CookieJar(unsafe=True)) as http:
            yield f"http://127.0.0.1:{page.port}", actions, guard, http
    finally:
        await page.stop()


def from_the_page(url: str, guard: Guard) -> dict[str, str]:
    return {"Origin": url, "Sec-Fetch-Site": "same-origin", CSRF_HEADER: guard.csrf, "Content-Type": "application/json"}


async def test_loopback_needs_no_token_and_answers_to_its_own_names_alone() -> None:
    async with board() as (url, _, _, http):
        port = url.rpartition(":")[2]
        for host in (f"127.0.0.1:{port}", f"localhost:{port}", f"LOCALHOST:{port}", f"[::1]:{port}", "127.0.0.1"):
            async with http.get(url, headers={"Host": host}) as answer:
                assert answer.status == 200, host
        for host in (
            f"evil.example:{port}",
            "localhost.evil.example",
            "127.0.0.1.evil.example",
            f"10.0.0.5:{port}",
            "0.0.0.0",
            "[::]",
        ):
            for path in ("/", "/api/state", "/api/session"):
                async with http.get(url + path, headers={"Host": host}) as answer:
                    assert answer.status == 421, host


async def test_every_answer_has_the_rules_of_the_page() -> None:
    async with board(TOKEN) as (url, _, _, http):
        for path in ("/", f"/?token={TOKEN}", "/board.js", "/api/state", "/nothing", "/?token=wrong"):
            async with http.get(url + path, allow_redirects=False) as answer:
                policy = answer.headers["Content-Security-Policy"]
                assert "default-src 'none'" in policy
                assert "frame-ancestors 'none'" in policy
                assert "unsafe" not in policy
                assert answer.headers["X-Content-Type-Options"] == "nosniff"
                assert answer.headers["Referrer-Policy"] == "no-referrer"
                assert answer.headers["Cache-Control"] == "no-store"


async def test_without_the_token_nothing_is_told() -> None:
    async with board(TOKEN) as (url, actions, guard, http):
        for path in ("/", "/board.js", "/words.json", "/api/session", "/api/state", "/api/events", "/api/why?tenant=a&document=b"):
            for headers in ({}, {"Authorization": "Bearer wrong"}, {"Cookie": f"{COOKIE}=wrong"}, {"Cookie": f"{COOKIE}={TOKEN}"}):
                async with http.get(url + path, headers=headers) as answer:
                    assert answer.status == 401, (path, headers)
                    said = await answer.text()
                    assert TOKEN not in said
                    assert guard.csrf not in said
        async with http.post(url + "/api/drop", json={"letter": "0-1"}, headers=from_the_page(url, guard)) as answer:
            assert answer.status == 401
        assert actions.asked == []


async def test_the_token_is_asked_once_and_leaves_the_address() -> None:
    async with board(TOKEN) as (url, _, guard, http):
        async with http.get(url + f"/?token={TOKEN}x", allow_redirects=False) as answer:
            assert answer.status == 403
            assert "Set-Cookie" not in answer.headers
        async with http.get(url + f"/?token={TOKEN}", allow_redirects=False) as answer:
            assert answer.status == 303
            assert answer.headers["Location"] == "/"
            cookie = answer.headers["Set-Cookie"]
        assert {"HttpOnly", "SameSite=Strict", "Path=/"} <= {part.strip() for part in cookie.split(";")}
        assert TOKEN not in cookie
        async with http.get(url + "/api/session") as answer:
            assert (await answer.json())["csrf"] == guard.csrf
        async with aiohttp.ClientSession() as script, script.get(url, headers={"Authorization": f"Bearer {TOKEN}"}) as answer:
            assert answer.status == 200


@pytest.mark.parametrize(
    "wrong",
    [
        pytest.param({"Origin": "http://evil.example"}, id="another-origin"),
        pytest.param({"Origin": "null"}, id="an-origin-that-hides"),
        pytest.param({"Origin": "http://127.0.0.1:1"}, id="another-port"),
        pytest.param({"Sec-Fetch-Site": "cross-site"}, id="the-browser-says-cross-site"),
        pytest.param({"Sec-Fetch-Site": "same-site"}, id="a-neighbour-on-the-same-site"),
        pytest.param({CSRF_HEADER: "guessed"}, id="a-wrong-csrf-value"),
        pytest.param({CSRF_HEADER: None}, id="no-csrf-value"),
        pytest.param({"Content-Type": "text/plain"}, id="a-form-like-body"),
        pytest.param({"Origin": None, "Sec-Fetch-Site": None}, id="nobody-vouches"),
    ],
)
async def test_an_action_that_does_not_come_from_the_page_is_refused(wrong: Mapping[str, str | None]) -> None:
    async with board() as (url, actions, guard, http):
        headers = {name: value for name, value in {**from_the_page(url, guard), **wrong}.items() if value is not None}
        for action in ("replay", "drop", "reindex", "gate"):
            async with http.post(f"{url}/api/{action}", data=b'{"letter": "0-1"}', headers=headers) as answer:
                assert answer.status == 403, action
        assert actions.asked == []


async def test_an_action_from_the_page_is_done_once() -> None:
    async with board() as (url, actions, guard, http):
        own = from_the_page(url, guard)
        bodies = {"replay": {"letter": "0-1"}, "drop": {"letter": "0-2"}, "reindex": {"tenant": "acme", "document": "a b/c"}}
        for action, body in bodies.items():
            async with http.post(f"{url}/api/{action}", json=body, headers=own) as answer:
                assert (answer.status, await answer.json()) == (200, {"outcome": "sent", "said": ""})
        assert actions.asked == [("replay", "0-1"), ("drop", "0-2"), ("reindex", "acme", "a b/c")]


async def test_a_get_never_acts() -> None:
    async with board() as (url, actions, guard, http):
        own = from_the_page(url, guard)
        for action in ("replay", "drop", "reindex", "gate"):
            for method in ("GET", "HEAD", "PUT", "DELETE", "OPTIONS", "PATCH"):
                async with http.request(method, f"{url}/api/{action}?letter=0-1", headers=own) as answer:
                    assert answer.status == 405, (method, action)
        assert actions.asked == []


async def test_another_site_can_t_make_the_page_read() -> None:
    async with board() as (url, actions, _, http):
        for path in ("/api/why?tenant=a&document=b", "/api/letter?id=0-1", "/api/state"):
            async with http.get(url + path, headers={"Sec-Fetch-Site": "cross-site"}) as answer:
                assert answer.status == 403
        assert actions.asked == []


@pytest.mark.parametrize(
    ("error", "status"),
    [
        (UsageError("no dead letter '0-1'"), 400),
        (NotPrepared("topic missing"), 409),
        (NotReachable("broker away"), 503),
        (Unavailable("index away"), 503),
        (DocdeltaError("something else"), 502),
    ],
)
async def test_what_goes_wrong_is_told_in_words(error: Exception, status: int) -> None:
    async with (
        board(error=error) as (url, _, guard, http),
        http.post(f"{url}/api/replay", json={"letter": "0-1"}, headers=from_the_page(url, guard)) as answer,
    ):
        assert answer.status == status
        assert (await answer.json())["error"].startswith(str(error))


@pytest.mark.parametrize("body", [b"", b"no json", b"[]", b'{"tenant": "a/b", "document": "c"}', b'{"tenant": "a"}', b"x" * 20_000])
async def test_a_body_that_means_nothing_is_refused(body: bytes) -> None:
    async with board() as (url, actions, guard, http):
        async with http.post(f"{url}/api/reindex", data=body, headers=from_the_page(url, guard)) as answer:
            assert answer.status in (400, 413)
        assert actions.asked == []


def test_a_host_that_others_reach_demands_a_token() -> None:
    for host in ("127.0.0.1", "127.8.8.8", "localhost", "::1"):
        assert is_loopback(host)
        assert token_for(host, "") == ""
        assert token_for(host, TOKEN) == TOKEN
    for host in ("0.0.0.0", "::", "10.0.0.1", "ops.example", ""):
        assert not is_loopback(host)
        assert len(token_for(host, "")) >= 40
        assert token_for(host, "") != token_for(host, "")
    with pytest.raises(UsageError, match="16 characters"):
        token_for("0.0.0.0", "short")


async def test_the_stream_tells_everything_then_only_what_changed() -> None:
    async with board() as (url, _, _, http), http.get(url + "/api/events") as answer:
        assert answer.headers["Content-Type"] == "text/event-stream"
        said = b""
        while b"event: totals" not in said:
            said += await answer.content.readany()
        names = {line[7:] for line in said.decode().splitlines() if line.startswith("event: ")}
        assert names == {"now", "freshness", "troubles", "lag", "batches", "worst", "letters", "tenants", "totals"}


async def test_a_page_that_is_not_read_costs_no_reading() -> None:
    async with board() as (url, _, _, http):
        assert not [task for task in asyncio.all_tasks() if "Still.run" in repr(task)]
        async with http.get(url + "/api/state") as answer:
            assert answer.status == 200
        assert [task for task in asyncio.all_tasks() if "Still.run" in repr(task)]
