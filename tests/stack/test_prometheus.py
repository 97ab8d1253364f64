"""A real Prometheus on a running worker: every query of the dashboards finds data, and an outage raises its alert within a minute.

Slow (about two minutes), and needs the binary of Debian's package `prometheus`: `make test-alerts`.
"""

from __future__ import annotations

import json
from functools import partial
from pathlib import Path

import pytest

from streams.settings import KafkaSettings
from tests.contracts.qdrant_shim import Fault
from tests.stack.rig import a_page, delete, rig, upsert
from tests.stack.scrape import free_port, scrape_when
from tests.support.prometheus import DEPLOY, Prometheus, prometheus

NEEDS_MORE = {
    "docdelta_batch_build_": "no build runs here",
    "max by (tenant, lane) (docdelta_oldest_unsynced_seconds)": "nothing waits here; the overview shows 0",
}
"""Queries that find nothing on a quiet worker, and why."""
pytestmark = pytest.mark.slow


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
