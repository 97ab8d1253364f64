"""The page tells the truth: in a real browser, the numbers of a scripted history on a running installation, and what it can do.

About a minute on two cores. Needs Debian's chromium and chromium-driver (`make test-tools`); skips where they are absent.
"""

from __future__ import annotations

import asyncio
import re
import subprocess
import sys
import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import aiohttp
import pytest

from chunking.policy import load_policy
from schemas.codec import encode
from schemas.receipt import Receipt
from streams.cli.dev_session import dashboard_of
from streams.embedded.stack import EmbeddedStack, ReceiptBook
from streams.kafka.produce import OutRecord, produce_all
from streams.settings import DashboardSettings, EmbedderSettings, KafkaSettings, Settings
from tests.contracts.qdrant_shim import Fault
from tests.stack.rig import POLICY, Rig, a_page, delete, rig, upsert
from tests.stack.scrape import free_port
from tests.support.browser import Browser, chromium, missing

TAB, ENTER, ESCAPE, SHIFT = "\ue004", "\ue007", "\ue00c", "\ue008"
EVIL = "<script>document.title='taken'</script><img src=x onerror=alert(1)>"
needs_browser = pytest.mark.skipif(bool(missing()), reason=missing() or "-")


@asynccontextmanager
async def dashboard(stack: Rig, *arguments: str) -> AsyncIterator[str]:
    """Run `docdelta dashboard` as a process; give the address that it prints."""
    command = [sys.executable, "-m", "streams.cli", "dashboard", "--port", str(free_port()), *arguments]
    process, said = _started(command, stack)
    try:
        deadline = time.monotonic() + 60
        while not (found := re.search(r"dashboard: (\S+)", said())):
            assert process.poll() is None, said()
            assert time.monotonic() < deadline, said()
            await asyncio.sleep(0.1)
        yield found.group(1)
    finally:
        process.terminate()
        assert await asyncio.to_thread(process.wait, 30) == 0, said()


def _started(command: list[str], stack: Rig) -> tuple[subprocess.Popen[bytes], Callable[[], str]]:
    file = stack.folder / "dashboard.log"
    with file.open("wb") as log:
        process = subprocess.Popen(command, env=stack.environment, cwd=stack.folder, stdout=log, stderr=log)
    return process, lambda: file.read_text(encoding="utf-8")


async def once(stack: Rig) -> list[Receipt]:
    """Return the receipts so far, each once: what a crash or a handover repeats is the same one."""
    first: dict[tuple[str, str, int, str, str], Receipt] = {}
    for each in await stack.receipts():
        first.setdefault((each.tenant_id, each.document_id, each.revision, each.event_id, each.batch), each)
    return list(first.values())


def avoided(receipts: list[Receipt]) -> int:
    """Return the embeddings that were not needed, by the receipts of a batch."""
    return sum(r.kept + r.updated + r.added - r.embedded - r.borrowed for r in receipts if r.stage != "parser")


async def number(browser: Browser, selector: str) -> int:
    """Return the number that an element shows, written for English readers."""
    text = await browser.text(selector)
    return int(text.replace(",", "")) if re.fullmatch("[0-9,]+", text.strip()) else -1


async def until_number(browser: Browser, selector: str, wanted: int) -> None:
    await browser.until_text(selector, f"{wanted:,}")


@needs_browser
async def test_the_page_shows_a_scripted_history(apache_settings: KafkaSettings, tmp_path: Path, fresh: str) -> None:
    async with rig(apache_settings, tmp_path, fresh) as stack:
        stack.start()
        pages = [upsert(f"d{n}", 1, a_page(f"d{n}"), title=EVIL) for n in range(6)]
        await stack.put(*pages, upsert("e0", 1, a_page("e0"), tenant="other"))
        edit, renamed = upsert("d0", 2, a_page("d0", edit=" today")), upsert("d1", 2, a_page("d1"), title="Another")
        same, gone = upsert("d2", 2, a_page("d2"), title=EVIL), delete("d3", 2)
        broken = [upsert("d9", revision, "x", media_type="application/x-nonsense", title=EVIL) for revision in (2, 3)]
        await stack.put(edit, renamed, same, gone, *broken)
        await stack.send_raw((b"nonsense", b"{"))

        async with dashboard(stack) as url, chromium() as browser:
            await browser.window(1280, 900)
            await browser.open(url)
            await _figures_are_true(stack, browser)
            await _titles_are_text(browser)
            await _the_refused_event_is_shown_and_dropped(browser)
            await _a_document_is_sent_again(stack, browser)
            await _a_refused_event_is_replayed(stack, browser)
            await _a_stopped_worker_shows(stack, browser)
            await _healed(stack, browser)
            assert await browser.complaints() == []


async def _figures_are_true(stack: Rig, browser: Browser) -> None:
    truth = await once(stack)
    assert len(truth) == 13
    await until_number(browser, "#tile-letters .value", 3)
    await until_number(browser, "#tile-settled .value", len(truth))
    await until_number(browser, "#tile-lag .value", 0)
    assert await number(browser, "#tile-avoided .value") == avoided(truth) > 0
    for name in ("added", "updated", "removed", "kept"):
        assert await number(browser, f"#total-{name}") == sum(getattr(receipt, name) for receipt in truth), name
    assert await number(browser, "#total-computed") == sum(receipt.embedded for receipt in truth)
    assert await number(browser, "#total-borrowed") == 0
    tenants = await browser.run(
        "return [...document.querySelectorAll('#tenants tbody tr')].map(r => [...r.children].map(c => c.innerText.trim()))"
    )
    by_name = {row[0]: row for row in tenants}
    for tenant in ("acme", "other"):
        mine = [receipt for receipt in truth if receipt.tenant_id == tenant]
        open_, settled, indexed, computed = by_name[tenant][1], *by_name[tenant][3:6]
        expected = [len(mine), sum(r.outcome == "indexed" for r in mine), sum(r.embedded for r in mine)]
        assert [int(settled), int(indexed), int(computed)] == expected, tenant
        assert int(open_) == (2 if tenant == "acme" else 0)
    changed = [receipt for receipt in truth if receipt.outcome == "indexed"]
    assert (await browser.text("#hour-figures")).startswith(f"{len(changed)} changes")
    assert "active" in await browser.text("#batches")
    points = len(await stack.points())
    await browser.until("return document.querySelector('#batches').innerText.includes(arguments[0])", f"{points} points")
    lags = await browser.run("return [...document.querySelectorAll('#lag .group')].map(g => [g.dataset.group, g.dataset.lag])")
    topics = stack.settings.topics
    assert {topics.parser_group, topics.batch_group(stack.policy.batch_id)} <= {group for group, _ in lags}
    assert {lag for _, lag in lags} == {"0"}


async def _titles_are_text(browser: Browser) -> None:
    shown = await browser.texts("#worst small, #letters small")
    assert EVIL in shown
    assert await browser.run("return document.querySelectorAll('main script, main img').length") == 0
    assert "taken" not in await browser.run("return document.title")


async def _the_refused_event_is_shown_and_dropped(browser: Browser) -> None:
    rows = await browser.run("return [...document.querySelectorAll('#letters tbody tr')].map(r => [r.dataset.row, r.innerText])")
    (stray,) = [name for name, text in rows if "no document named" in text]
    ((named, text),) = [row for row in rows if row[0] != stray]
    assert "2 of its events are refused" in text, "one row a document"
    await browser.click(f"[data-focus='show {named}']")
    await browser.until("return document.querySelector('#letter-event')?.innerText.includes('application/x-nonsense')")
    assert EVIL in await browser.text("#letter-event")
    await browser.click("#dialog-close")
    await browser.click(f"[data-focus='show {stray}']")
    await browser.until_text("#letter-event", "{")
    await browser.click("[data-focus=drop]")
    await browser.until("return document.querySelector('#dialog-said').innerText.startsWith('Dropped')")
    await browser.click("#dialog-close")
    await until_number(browser, "#tile-letters .value", 2)


async def _a_document_is_sent_again(stack: Rig, browser: Browser) -> None:
    assert await browser.run("return document.querySelector('#worst [data-row=\"acme/d9\"] button').innerText") == "Replay"
    await browser.click("#worst tr:last-child button")  # one of the slow ones: why, and from there re-index
    await browser.until("return document.querySelector('[data-focus=reindex]') !== null")
    assert "is settled" in await browser.text("#dialog-body")
    await browser.click("[data-focus=reindex]")
    await browser.until("return document.querySelector('#dialog-said').innerText.startsWith('Sent again')")
    await browser.click("#dialog-close")
    await stack.receipts_when(lambda receipts: any("#reindex" in receipt.event_id for receipt in receipts))
    again = [receipt for receipt in await once(stack) if "#reindex" in receipt.event_id]
    assert [(receipt.outcome, receipt.embedded) for receipt in again] == [("unchanged", 0)]
    await until_number(browser, "#tile-settled .value", 14)


async def _a_refused_event_is_replayed(stack: Rig, browser: Browser) -> None:
    """The index refuses a page, the cause is mended, and its row is pressed: the page goes through, and the row is gone."""
    stack.shim.faults += [Fault(match=f"/{stack.collection}/points/batch", status=422, words="refused by the test")] * 1000
    (refused,) = (await stack.put(upsert("d5", 2, a_page("d5", edit=" at last"), title=EVIL))).values()
    assert refused.outcome == "dead_lettered"
    stack.shim.faults.clear()
    await until_number(browser, "#tile-letters .value", 3)
    replay = '#worst [data-focus="worst refused acme/d5"]'
    await browser.until("return document.querySelector(arguments[0])?.innerText === 'Replay'", replay)
    assert "refused by the test" in await browser.run("return document.querySelector(arguments[0]).closest('tr').innerText", replay)
    await browser.click(replay)
    await browser.until("return document.querySelector('#dialog-said').innerText.startsWith('Sent again')")
    await browser.click("#dialog-close")
    await until_number(browser, "#tile-letters .value", 2)
    await browser.until("return document.querySelector(arguments[0]) === null", replay)
    await until_number(browser, "#tile-settled .value", 16)
    assert any("at last" in point["text"] for point in (await stack.points()).values())


async def _a_stopped_worker_shows(stack: Rig, browser: Browser) -> None:
    await stack.stop()
    await stack.send(*[upsert(f"d{n}", 5, a_page(f"d{n}", edit=" later")) for n in range(3)])
    await until_number(browser, "#tile-lag .value", 3)
    await browser.until("return document.querySelector('#troubles [data-kind=nobody_works]') !== null")
    assert "No worker is in" in await browser.text("#troubles [data-kind=nobody_works] .cause")
    assert "docdelta worker" in await browser.text("#troubles [data-kind=nobody_works] code")
    assert "bad" in await browser.run("return document.querySelector('#state').className")
    await stack.send(upsert("e0", 5, a_page("e0", edit=" later"), tenant="other"))
    await until_number(browser, "#tile-lag .value", 4)


async def _healed(stack: Rig, browser: Browser) -> None:
    """The worker comes back, and the document that was refused is sent anew: nothing is red."""
    mended = upsert("d9", 6, a_page("d9", edit=" mended"))
    stack.start("two")
    await stack.put(mended)
    await until_number(browser, "#tile-lag .value", 0)
    await until_number(browser, "#tile-letters .value", 0)
    await browser.until_text("#state-title", "All is well")


async def test_dev_serves_the_page_and_a_taken_port_does_not_stop_it(tmp_path: Path) -> None:
    settings = Settings(embedder=EmbedderSettings(kind="hashing"), dashboard=DashboardSettings(port=free_port()))
    async with EmbeddedStack(tmp_path, load_policy(POLICY), POLICY, settings) as stack, ReceiptBook(stack) as book:
        page = upsert("d0", 1, a_page("d0"))
        record = OutRecord(stack.settings.topics.documents, b"acme/d0", encode(page))
        await asyncio.to_thread(produce_all, stack.settings.kafka, [record])
        (receipt,) = await book.of([page.event_id])
        async with dashboard_of(stack) as first, dashboard_of(stack) as second, aiohttp.ClientSession() as http:
            assert first.endswith(f":{settings.dashboard.port}/")
            assert second != first
            while True:
                async with http.get(second + "api/state") as answer:
                    found = await answer.json()
                if found["totals"]["settled"] and found["batches"]["shown"] and found["batches"]["shown"][0]["points"]:
                    break
                await asyncio.sleep(0.2)
            assert found["totals"]["computed"] == receipt.embedded > 0
            assert found["batches"]["shown"][0]["points"] == receipt.added
            assert found["troubles"]["shown"] == []


@needs_browser
async def test_the_page_is_for_everybody(tansu_settings: KafkaSettings, tmp_path: Path, fresh: str) -> None:
    """Keyboard, both languages, both colours, a phone; and off loopback nobody without the token."""
    async with rig(tansu_settings, tmp_path, fresh) as stack:
        stack.start()
        long = "handbook/" + "-".join(["very-long-name"] * 12)
        broken = upsert("d1", 1, "x", media_type="application/x-nonsense", title=EVIL)
        await stack.put(upsert(long, 1, a_page("long"), event_id="long"), broken)
        secret = "a-token-of-many-letters"
        async with dashboard(stack, "--host", "0.0.0.0", "--token", secret) as shown, chromium() as browser:
            url = shown.replace("0.0.0.0", "127.0.0.1")
            await _only_with_the_token(url, secret)
            await browser.window(1280, 900)
            await browser.open(url)
            await until_number(browser, "#tile-letters .value", 1)
            assert "token" not in await browser.run("return location.href")
            assert await browser.run("return document.cookie") == "", "scripts can't read it"
            await _keyboard(browser)
            await _languages(browser)
            await _colours(browser)
            await _phone(browser)
            assert await browser.complaints() == []


async def _only_with_the_token(url: str, secret: str) -> None:
    bare = url.partition("?")[0]
    async with aiohttp.ClientSession() as http:
        for path in ("", "board.js", "api/state", "api/events", "api/session"):
            async with http.get(bare + path) as answer:
                assert answer.status == 401, path
                assert secret not in await answer.text()


async def _focus(browser: Browser) -> str:
    found: dict[str, Any] = await browser.run(
        "const e = document.activeElement, s = getComputedStyle(e);"
        "return {name: e.dataset.focus || e.id || e.className || e.tagName, ring: s.outlineStyle + ' ' + s.outlineWidth}"
    )
    assert found["ring"] == "solid 3px", f"{found['name']} has the focus and does not show it"
    return str(found["name"])


async def _keyboard(browser: Browser) -> None:
    """Everything that can be pressed is reached by Tab, in reading order, and shows that it has the focus."""
    await browser.run("document.activeElement.blur(); window.scrollTo(0, 0)")
    reached = []
    for _ in range(40):
        await browser.press(TAB)
        if await browser.run("return document.activeElement === document.body"):
            break
        reached.append(await _focus(browser))
    assert reached[:3] == ["skip", "language", "theme"]
    pressable = await browser.run("return document.querySelectorAll('main button, main summary, main a').length")
    assert len(reached) == 3 + pressable
    names = await browser.run("return [...document.querySelectorAll('[data-focus]')].map(e => e.dataset.focus)")
    assert reached[3:] == names
    assert any(name.startswith("show ") for name in reached)
    await browser.run("[...document.querySelectorAll('[data-focus]')].find(e => e.dataset.focus.startsWith('show ')).focus()")
    await browser.press(ENTER)
    await browser.until("return document.querySelector('#letter-event') !== null")
    assert await browser.run("return document.querySelector('#dialog').contains(document.activeElement)")
    await browser.press(ESCAPE)
    await browser.until("return !document.querySelector('#dialog').open")
    await browser.until("return document.activeElement.dataset.focus?.startsWith('show ') === true")
    captions = await browser.run("return [...document.querySelectorAll('table')].every(t => t.caption?.textContent.trim())")
    assert captions
    assert await browser.run("return document.querySelectorAll('[aria-live=polite]').length") >= 2


async def _languages(browser: Browser) -> None:
    english = await browser.text("main")
    await browser.click("#language")
    assert await browser.run("return document.documentElement.lang") == "zh-CN"
    chinese = await browser.text("main")
    assert "未处理的死信" in chinese
    assert "租户" in chinese
    assert not re.search(r"(?<![\w./-])(Dead letters|Tenants|Batches|Freshness|Show event|Replay)(?![\w./-])", chinese)
    await browser.click("#language")
    assert "Open dead letters" in await browser.text("main")
    assert english.count("\n") == (await browser.text("main")).count("\n")


async def _colours(browser: Browser) -> None:
    async def ground() -> str:
        return str(await browser.run("return getComputedStyle(document.body).backgroundColor"))

    await browser.colours("light")
    light = await ground()
    await browser.colours("dark")
    await browser.until("return document.documentElement.dataset.theme === 'dark'")
    dark = await ground()
    assert light != dark
    await browser.click("#theme")  # the reader's own choice stands above the system's: light, then dark
    assert await ground() == light
    await browser.colours("light")
    await browser.click("#theme")
    assert await ground() == dark


async def _phone(browser: Browser) -> None:
    for language in ("en", "zh-CN"):
        for width in (360, 414, 768):
            await browser.window(width, 740, 2)
            await browser.run("for (const each of document.querySelectorAll('details')) each.open = true")
            across = await browser.run("return [document.documentElement.scrollWidth, innerWidth]")
            assert across[0] <= across[1] == width, f"{language} at {width}: scrolls sideways"
        heights = await browser.run("return [...document.querySelectorAll('main button')].map(b => b.offsetHeight)")
        assert min(heights) >= 32, "too small for a thumb"
        assert await browser.run("return document.documentElement.lang") == language
        await browser.click("#language")
