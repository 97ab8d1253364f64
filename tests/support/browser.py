"""A headless Chromium, driven over WebDriver (W3C) by its own chromedriver: what a test of a page needs, and nothing more.

Debian's packages `chromium` and `chromium-driver`; nothing is downloaded. The profile is new and empty, and none of the browser's
own background traffic is started.
"""

from __future__ import annotations

import asyncio
import base64
import shutil
import subprocess
import tempfile
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any

import aiohttp

from streams.embedded.free_ports import free_ports
from tests.support.patience import PATIENCE

FLAGS = (
    "--headless=new",
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--disable-dev-shm-usage",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--disable-extensions",
    "--hide-scrollbars",
)
ELEMENT = "element-6066-11e4-a52e-4f735466cecf"


def missing() -> str:
    """Return why no browser can be started here, or nothing where one can."""
    absent = [name for name in ("chromium", "chromedriver") if shutil.which(name) is None]
    return f"{' and '.join(absent)} missing; Debian: apt-get install chromium chromium-driver (make test-tools)" if absent else ""


@dataclass
class Browser:
    """One window."""

    http: aiohttp.ClientSession
    session: str

    async def open(self, url: str) -> None:
        """Go to an address and wait for the page to be loaded."""
        await self._ask("POST", "/url", {"url": url})

    async def run(self, script: str, *arguments: Any) -> Any:
        """Return what a script (the body of a function) returns in the page."""
        return await self._ask("POST", "/execute/sync", {"script": script, "args": list(arguments)})

    async def text(self, selector: str) -> str:
        """Return the text of the first element that fits, as it is shown; nothing where none does."""
        return str(await self.run("const e = document.querySelector(arguments[0]); return e ? e.innerText : ''", selector))

    async def texts(self, selector: str) -> list[str]:
        """Return the text of every element that fits."""
        return list(await self.run("return [...document.querySelectorAll(arguments[0])].map(e => e.innerText)", selector))

    async def until(self, script: str, *arguments: Any, seconds: float = PATIENCE) -> Any:
        """Return the first thing that a script returns and that counts as true. AssertionError after `seconds`."""
        deadline = time.monotonic() + seconds
        while not (found := await self.run(script, *arguments)):
            assert time.monotonic() < deadline, f"never true: {script} {arguments}\n{await self.text('body')}"
            await asyncio.sleep(0.1)
        return found

    async def until_text(self, selector: str, wanted: str) -> None:
        """Wait until an element's text is this."""
        await self.until("return document.querySelector(arguments[0])?.innerText.trim() === arguments[1]", selector, wanted)

    async def click(self, selector: str) -> None:
        """Click an element, as a pointer does."""
        found = await self._ask("POST", "/element", {"using": "css selector", "value": selector})
        await self._ask("POST", f"/element/{found[ELEMENT]}/click", {})

    async def press(self, *keys: str) -> None:
        """Press and let go of keys, one after the other: WebDriver's code points, such as "\\ue004" for Tab."""
        actions = [each for key in keys for each in ({"type": "keyDown", "value": key}, {"type": "keyUp", "value": key})]
        await self._ask("POST", "/actions", {"actions": [{"type": "key", "id": "keyboard", "actions": actions}]})

    async def devtools(self, command: str, **parameters: Any) -> Any:
        """Send a command of the browser's own protocol."""
        return await self._ask("POST", "/goog/cdp/execute", {"cmd": command, "params": parameters})

    async def window(self, width: int, height: int, scale: float = 1) -> None:
        """Make the page so large, in CSS pixels."""
        size = {"width": width, "height": height, "deviceScaleFactor": scale, "mobile": width < 600}
        await self.devtools("Emulation.setDeviceMetricsOverride", **size)

    async def colours(self, scheme: str) -> None:
        """Let the system prefer `light` or `dark`."""
        await self.devtools("Emulation.setEmulatedMedia", features=[{"name": "prefers-color-scheme", "value": scheme}])

    async def picture(self) -> bytes:
        """Return a picture of the whole page, PNG."""
        shot = await self.devtools("Page.captureScreenshot", captureBeyondViewport=True)
        return base64.b64decode(shot["data"])

    async def complaints(self) -> list[str]:
        """Return what the browser complained of since the last call: scripts that failed, rules that were broken."""
        entries = await self._ask("POST", "/se/log", {"type": "browser"})
        return [entry["message"] for entry in entries if entry["level"] == "SEVERE"]

    async def _ask(self, method: str, path: str, body: dict[str, Any] | None = None) -> Any:
        async with self.http.request(method, f"/session/{self.session}{path}", json=body) as answer:
            found = (await answer.json())["value"]
            assert answer.status == 200, found
            return found


@asynccontextmanager
async def chromium(language: str = "en-US") -> AsyncIterator[Browser]:
    """Give a browser, ended with its driver and profile afterwards."""
    (port,) = free_ports(1)
    with tempfile.TemporaryDirectory(prefix="docdelta-browser-", ignore_cleanup_errors=True) as profile:
        driver = _driver(port)
        timeout = aiohttp.ClientTimeout(total=PATIENCE)
        try:
            async with aiohttp.ClientSession(f"http://127.0.0.1:{port}", timeout=timeout) as http:
                await _answers(http)
                flags = [*FLAGS, f"--user-data-dir={profile}", f"--lang={language}", f"--accept-lang={language}"]
                wanted = {
                    "browserName": "chrome",
                    "goog:chromeOptions": {"binary": shutil.which("chromium"), "args": flags},
                    "goog:loggingPrefs": {"browser": "ALL"},
                }
                async with http.post("/session", json={"capabilities": {"alwaysMatch": wanted}}) as answer:
                    made = (await answer.json())["value"]
                    assert answer.status == 200, made
                browser = Browser(http, made["sessionId"])
                try:
                    yield browser
                finally:
                    await browser._ask("DELETE", "")
        finally:
            driver.terminate()
            driver.wait(30)


def _driver(port: int) -> subprocess.Popen[bytes]:
    quiet = subprocess.DEVNULL
    return subprocess.Popen(["chromedriver", f"--port={port}", "--log-level=SEVERE"], stdout=quiet, stderr=quiet)


async def _answers(http: aiohttp.ClientSession) -> None:
    deadline = time.monotonic() + PATIENCE
    while True:
        try:
            async with http.get("/status") as answer:
                if (await answer.json())["value"]["ready"]:
                    return
        except aiohttp.ClientError:
            pass
        assert time.monotonic() < deadline, "chromedriver does not answer"
        await asyncio.sleep(0.05)
