"""A real Prometheus on a running worker: every query of the dashboards finds data, and an outage raises its alert within a minute.

Slow (about two minutes), and needs the binary of Debian's package `prometheus`: `make test-alerts`.
"""

from __future__ import annotations

import asyncio
import json
import shutil
import subprocess
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from functools import partial
from pathlib import Path
from typing import Any

import aiohttp
import pytest
import yaml

from streams.settings import KafkaSettings
from tests.contracts.qdrant_shim import Fault
from tests.stack.rig import a_page, delete, rig, upsert
from tests.stack.scrape import free_port, scrape_when

DEPLOY = Path(__file__).resolve().parents[2] / "deploy"
NEEDS_MORE = {
    "docdelta_batch_build_": "no build runs here",
    "max by (tenant, lane) (docdelta_oldest_unsynced_seconds)": "nothing waits here; the overview shows 0",
}
"""Queries that find nothing on a quiet worker, and why."""
pytestmark = pytest.mark.slow


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
async def prometheus(folder: Path, target: int) -> AsyncIterator[Prometheus]:
    """Run a Prometheus of our rules that scrapes a port of loopback every second; it ends with the block."""
    binary = shutil.which("prometheus")
    if binary is None:
        pytest.skip("prometheus is missing; it is in Debian's package `prometheus` (apt-get install prometheus)")
    config = yaml.safe_load((DEPLOY / "prometheus/prometheus.yaml").read_text())
    config["global"] = {"scrape_interval": "1s", "evaluation_interval": "1s"}
    config["rule_files"] = [str(DEPLOY / "prometheus/rules.yaml")]
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


def _queries() -> list[str]:
    files = [json.loads(path.read_text(encoding="utf-8")) for path in sorted((DEPLOY / "grafana").glob("*.json"))]
    found = [target["expr"] for file in files for panel in file["panels"] for target in panel["targets"]]
    return [query.replace("$__rate_interval", "1m").replace("$instance", ".*") for query in found]


async def test_every_query_finds_data_and_an_outage_raises_its_alert(
    tansu_settings: KafkaSettings, tmp_path: Path, fresh: str
) -> None:
    port = free_port()
    probes = {"DOCDELTA_WORKER__METRICS_PORT": str(port), "DOCDELTA_WORKER__LAG_SECONDS": "1"}
    async with rig(tansu_settings, tmp_path, fresh) as stack:
        guarded = {"DOCDELTA_BREAKER__SHARE": "0.5", "DOCDELTA_BREAKER__MINIMUM": "4"}
        stack.start(DOCDELTA_WORKER__CANARY_TENANT="probe", **probes, **guarded)
        await scrape_when(port, lambda found: found.sum("docdelta_app_ready") == 3)  # parser, feeder, batch
        async with prometheus(tmp_path, port) as watching:
            await stack.put(*[upsert(f"d{n}", 1, a_page(f"d{n}")) for n in range(3)])
            await stack.put(upsert("d0", 2, a_page("d0", edit=" x")), upsert("d1", 2, "x", media_type="application/x-nonsense"))
            for query in _queries():
                if not any(part in query for part in NEEDS_MORE):
                    await watching.until(query, 20, partial(watching.ask, query))  # a rate needs two scrapes
            await watching.until("dead letter", 60, lambda: _fires(watching, "DocdeltaDeadLetters"))
            assert await watching.firing() == {"DocdeltaDeadLetters"}

            pages = [upsert(f"p{n}", 1, a_page(f"p{n}", 1), tenant="site") for n in range(12)]
            await stack.put(*pages)
            await stack.put(*[delete(f"p{n}", 2, "site") for n in range(12)])
            await watching.until("a mass delete", 60, lambda: _fires(watching, "DocdeltaMassDeleteHeld"))
            assert (await stack.docdelta("breaker", "reject", "site", "--yes")).returncode == 0
            await watching.until("it is decided", 60, lambda: _silent(watching, "DocdeltaMassDeleteHeld"))

            stack.shim.faults += [Fault(status=503)] * 1000
            edit = upsert("d2", 2, a_page("d2", edit=" y"))
            await stack.send(edit)
            await watching.until("waits for the index", 60, lambda: _fires(watching, "DocdeltaOtherSideAway"))
            assert "DocdeltaCommitsStalled" not in await watching.firing()
            stack.shim.faults.clear()
            await stack.outcomes([edit.event_id])
            await watching.until("the index is back", 60, lambda: _silent(watching, "DocdeltaOtherSideAway"))

            stack.workers["one"].kill()
            await watching.until("no worker", 60, lambda: _fires(watching, "DocdeltaWorkerDown"))


async def _fires(watching: Prometheus, alert: str) -> bool:
    return alert in await watching.firing()


async def _silent(watching: Prometheus, alert: str) -> bool:
    return alert not in await watching.firing()
