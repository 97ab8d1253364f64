"""A real Prometheus beside a test: asked by HTTP as a person asks it. Skips where Debian's package `prometheus` is absent."""

from __future__ import annotations

import asyncio
import shutil
import subprocess
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import aiohttp
import pytest
import yaml

from tests.stack.scrape import free_port

DEPLOY = Path(__file__).resolve().parents[2] / "deploy"
RULES = DEPLOY / "prometheus/rules.yaml"


class Prometheus:
    """A running Prometheus: `ask` a query, or which alerts fire."""

    def __init__(self, url: str) -> None:
        self._url = url

    async def _get(self, path: str, **query: str) -> Any:
        async with aiohttp.ClientSession() as session, session.get(f"{self._url}{path}", params=query) as answer:
            assert answer.status == 200, await answer.text()
            return (await answer.json())["data"]

    async def ask(self, expression: str) -> list[Any]:
        """Return the samples that a query finds now."""
        found = await self._get("/api/v1/query", query=expression)
        return list(found["result"])

    async def firing(self) -> set[str]:
        """Return the names of the alerts that fire."""
        alerts = (await self._get("/api/v1/alerts"))["alerts"]
        return {alert["labels"]["alertname"] for alert in alerts if alert["state"] == "firing"}

    async def until(self, what: str, seconds: float, ask: Any) -> float:
        """Return how long it took until `ask()` was true."""
        began = time.monotonic()
        while not await ask():
            assert time.monotonic() - began < seconds, f"not within {seconds} s: {what}; firing: {await self.firing()}"
            await asyncio.sleep(0.5)
        return time.monotonic() - began


@asynccontextmanager
async def prometheus(folder: Path, target: int, rules: Path = RULES) -> AsyncIterator[Prometheus]:
    """Run a Prometheus of these rules that scrapes a port of loopback every second; it ends with the block."""
    binary = shutil.which("prometheus")
    if binary is None:
        pytest.skip("prometheus is missing; it is in Debian's package `prometheus` (apt-get install prometheus)")
    config = yaml.safe_load((DEPLOY / "prometheus/prometheus.yaml").read_text())
    config["global"] = {"scrape_interval": "1s", "evaluation_interval": "1s"}
    config["rule_files"] = [str(rules)]
    config["scrape_configs"][0]["static_configs"][0]["targets"] = [f"127.0.0.1:{target}"]
    (folder / "prometheus.yaml").write_text(yaml.safe_dump(config))
    port = free_port()
    options = [f"--config.file={folder / 'prometheus.yaml'}", f"--storage.tsdb.path={folder / 'tsdb'}"]
    running = _started([binary, *options, f"--web.listen-address=127.0.0.1:{port}"], folder / "prometheus.log")
    try:
        made = Prometheus(f"http://127.0.0.1:{port}")
        deadline = time.monotonic() + 60
        while True:
            try:
                if await made.ask("docdelta_info"):
                    break
            except (aiohttp.ClientError, AssertionError):
                pass
            assert running.poll() is None, (folder / "prometheus.log").read_text()
            assert time.monotonic() < deadline, "nothing was scraped"
            await asyncio.sleep(0.5)
        yield made
    finally:
        running.terminate()
        await asyncio.to_thread(running.wait, 30)


def _started(command: list[str], log: Path) -> subprocess.Popen[bytes]:
    with log.open("wb") as output:
        return subprocess.Popen(command, stdout=output, stderr=output)
