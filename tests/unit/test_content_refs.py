"""`content.ref`: what a worker may read, and that nothing a reference says can hold it up or lead it elsewhere."""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
import pytest_asyncio
from aiohttp import web

from streams.content_refs import ContentRefs
from streams.errors import PoisonRecord, Unavailable

LIMIT = 1000


@pytest.fixture
def root(tmp_path: Path) -> Path:
    """A folder that may be read, with a page and with everything that looks like one."""
    folder = tmp_path / "shared"
    (folder / "folder").mkdir(parents=True)
    (tmp_path / "secret.md").write_text("secret", encoding="utf-8")
    (folder / "page.md").write_text("# 页", encoding="utf-8")
    (folder / "large.md").write_text("x" * (LIMIT + 1), encoding="utf-8")
    (folder / "out.md").symlink_to(tmp_path / "secret.md")
    (folder / "circle.md").symlink_to(folder / "circle.md")
    (folder / "zero.md").symlink_to("/dev/zero")
    os.mkfifo(folder / "pipe.md")
    return folder


@pytest.fixture
def front_page() -> dict[str, int]:
    """The `status` of the front page of `host`, which a test may change."""
    return {"status": 404}


@pytest_asyncio.fixture
async def host(front_page: dict[str, int]) -> AsyncIterator[str]:
    """A web server that answers with the status its path names."""

    async def answer(request: web.Request) -> web.StreamResponse:
        word = request.path.strip("/") or str(front_page["status"])
        if word == "large":
            return web.Response(text="x" * (LIMIT * 50))
        return web.Response(
            status=int(word), headers={"Location": "/200", "Retry-After": "7"}, text="" if word == "304" else "page"
        )

    application = web.Application()
    application.router.add_get("/{word:.*}", answer)
    runner = web.AppRunner(application)
    await runner.setup()
    site = web.TCPSite(runner, "127.0.0.1", 0)
    await site.start()
    yield f"127.0.0.1:{runner.addresses[0][1]}"
    await runner.cleanup()


async def test_a_file_in_an_allowed_folder_is_read_by_path_and_by_address(root: Path) -> None:
    refs = ContentRefs([root], [])
    for reference in (str(root / "page.md"), (root / "page.md").as_uri(), f"file://localhost{root}/page.md"):
        assert await refs.fetch(reference, LIMIT) == "# 页".encode()


@pytest.mark.parametrize(
    "reference",
    [
        pytest.param("{root}/../secret.md", id="out by dots"),
        pytest.param("file://{root}/%2e%2e/secret.md", id="out by escaped dots"),
        pytest.param("{root}/out.md", id="out by a link"),
        pytest.param("{root}/zero.md", id="an endless device"),
        pytest.param("{root}/pipe.md", id="a pipe that nobody writes to"),
        pytest.param("{root}/circle.md", id="a circle of links"),
        pytest.param("{root}/folder", id="a folder"),
        pytest.param("{root}/none.md", id="no file"),
        pytest.param("{root}/page.md/x", id="below a file"),
        pytest.param("{root}/" + "n" * 300, id="a name too long"),
        pytest.param("file://{root}/a%00b", id="a zero byte"),
        pytest.param("file://elsewhere{root}/page.md", id="on another host"),
        pytest.param("{root}/large.md", id="too large"),
        pytest.param("http://[x", id="no address"),
        pytest.param("gopher://x/y", id="another scheme"),
        pytest.param("http://127.0.0.1:1/", id="a host not allowed"),
        pytest.param("", id="nothing"),
    ],
)
async def test_what_may_not_or_can_never_be_read_is_poison_at_once(root: Path, reference: str) -> None:
    async with asyncio.timeout(10):
        with pytest.raises(PoisonRecord):
            await ContentRefs([root], []).fetch(reference.format(root=root), LIMIT)


@pytest.mark.parametrize("path", ["301", "302", "304", "400", "401", "403", "404", "410", "large"])
async def test_an_answer_that_will_stay_as_it_is_is_poison(host: str, path: str) -> None:
    with pytest.raises(PoisonRecord):
        await ContentRefs([], [host]).fetch(f"http://{host}/{path}", LIMIT)


@pytest.mark.parametrize("path", ["408", "429", "500", "503"])
async def test_an_answer_that_may_change_is_an_outage(host: str, path: str) -> None:
    with pytest.raises(Unavailable) as raised:
        await ContentRefs([], [host]).fetch(f"http://{host}/{path}", LIMIT)
    assert raised.value.retry_after == 7


async def test_another_user_or_port_of_an_allowed_host_is_another_host(host: str) -> None:
    refs = ContentRefs([], [host])
    assert await refs.fetch(f"http://{host}/200", LIMIT) == b"page"
    for reference in (f"http://me@{host}/200", "http://127.0.0.1:1/200", f"http://{host}@evil.example/200"):
        with pytest.raises(PoisonRecord):
            await refs.fetch(reference, LIMIT)


class Clock:
    """Seconds that a test lets pass."""

    def __init__(self) -> None:
        self.seconds = 1000.0

    def __call__(self) -> float:
        return self.seconds


async def test_a_url_that_fails_for_ever_is_refused_once_patience_ends_if_its_host_is_there(host: str) -> None:
    clock = Clock()
    refs = ContentRefs([], [host], 600, clock)
    for _ in range(6):
        with pytest.raises(Unavailable):
            await refs.fetch(f"http://{host}/503", LIMIT)
        clock.seconds += 100
    with pytest.raises(PoisonRecord, match=r"answers 503 for 600 s.*replay"):
        await refs.fetch(f"http://{host}/503", LIMIT)
    with pytest.raises(Unavailable):  # sent again: it gets its time again
        await refs.fetch(f"http://{host}/503", LIMIT)


async def test_a_host_that_is_away_for_all_is_waited_for(host: str, front_page: dict[str, int]) -> None:
    front_page["status"] = 502
    clock = Clock()
    refs = ContentRefs([], [host, "127.0.0.1:1"], 600, clock)
    for _ in range(30):
        for reference in (f"http://{host}/500", f"http://{host}/503", "http://127.0.0.1:1/page"):
            with pytest.raises(Unavailable):
                await refs.fetch(reference, LIMIT)
        clock.seconds += 500
    assert await refs.fetch(f"http://{host}/200", LIMIT) == b"page"  # it is back, and so for others
    with pytest.raises(PoisonRecord):
        await refs.fetch(f"http://{host}/500", LIMIT)


async def test_a_host_that_asks_to_wait_is_waited_for_however_long(host: str) -> None:
    clock = Clock()
    refs = ContentRefs([], [host], 600, clock)
    for _ in range(30):
        with pytest.raises(Unavailable):
            await refs.fetch(f"http://{host}/429", LIMIT)
        clock.seconds += 500


async def test_a_url_that_fails_now_and_then_never_loses_its_patience(host: str) -> None:
    clock = Clock()
    refs = ContentRefs([], [host], 600, clock)
    for _ in range(10):
        with pytest.raises(Unavailable):
            await refs.fetch(f"http://{host}/500", LIMIT)
        clock.seconds += 2000  # nobody waited for it: its record was another worker's
