"""Each alert fires on a real Prometheus in a fault that is made on a running installation, and those whose fault ends fall silent.

The rules are those of deploy/prometheus/rules.yaml with shorter times, by the table below: the queries are what is tried here,
and their times in deploy/prometheus/tests.yaml. Slow (some four minutes): `make test-alerts`.
"""

from __future__ import annotations

import asyncio
import signal
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path

import pytest
import yaml
from qdrant_client import models

from chunking.policy import load_policy
from schemas.document_change import DocumentChange
from streams.crash_points import VARIABLE
from streams.embedded.tansu import TansuBroker
from streams.index.points import point_id
from streams.settings import KafkaSettings
from tests.contracts.qdrant_shim import Fault, disk_full
from tests.stack.rig import POLICY, Rig, a_page, delete, rig, upsert
from tests.stack.scrape import free_port, scrape_when
from tests.support import faulty_worker
from tests.support.faulty_worker import COMMITS_FAIL, MODEL_FAILS, MODEL_HANGS, TABLES_STAND
from tests.support.patience import PATIENCE
from tests.support.prometheus import RULES, Prometheus, prometheus

pytestmark = pytest.mark.slow
SHORTER = {
    "DocdeltaIndexNotFresh": [("> 180", "> 3")],
    "DocdeltaDocumentsWait": [("> 600", "> 3")],
    "DocdeltaSlow": [("> 60", "> 1")],
    "DocdeltaBulkStands": [("[15m]", "[10s]")],
    "DocdeltaLagUnknown": [("> 60", "> 5")],
    "DocdeltaNotReady": [("> 120", "> 3")],
    "DocdeltaCommitsStalled": [("> 60", "> 3")],
    "DocdeltaCommitsNotConfirmed": [("> 60", "> 3")],
    "DocdeltaLoopBlocked": [("[2m]", "[20s]")],
    "DocdeltaRebalancesOften": [("> 10", "> 5")],
    "DocdeltaIndexSlow": [("[5m]", "[20s]"), ("> 5", "> 1")],
    "DocdeltaEmbedderSlow": [("> 60", "> 3")],
    "DocdeltaPausedLong": [("> 3600", "> 3")],
    "DocdeltaAuditStands": [("> 172800", "> 1")],
    "DocdeltaBuildStands": [("[10m]", "[10s]")],
}
"""What is written otherwise in the rules of this test; no alert waits for its `for`."""
SMALLER = POLICY.replace("version: 1", "version: 2").replace("max_tokens: 120", "max_tokens: 60")
WORKER = {
    "DOCDELTA_WORKER__LAG_SECONDS": "1",
    "DOCDELTA_WORKER__CANARY_TENANT": "probe",
    "DOCDELTA_WORKER__HANDOVER_GRACE_SECONDS": "1",
    "DOCDELTA_AUDIT__EVERY_SECONDS": "2",
    "DOCDELTA_AUDIT__POINTS_PER_SECOND": "1000",
    "DOCDELTA_BREAKER__SHARE": "0.5",
    "DOCDELTA_BREAKER__MINIMUM": "4",
}


def alerts() -> set[str]:
    """Return the names of all alerts, without what they all begin with."""
    groups = yaml.safe_load(RULES.read_text())["groups"]
    return {rule["alert"].removeprefix("Docdelta") for group in groups for rule in group["rules"]}


def shortened(folder: Path) -> Path:
    """Write the rules with shorter times and return where."""
    rules = yaml.safe_load(RULES.read_text())
    for rule in (rule for group in rules["groups"] for rule in group["rules"]):
        rule.pop("for", None)
        for before, after in SHORTER.get(rule["alert"], []):
            assert before in rule["expr"], rule["alert"]
            rule["expr"] = rule["expr"].replace(before, after)
    for group in rules["groups"]:
        group["interval"] = "1s"
    file = folder / "rules.yaml"
    file.write_text(yaml.safe_dump(rules))
    return file


@dataclass
class Site:
    """An installation under watch. `fired`: alerts that were seen in the fault that is to raise them."""

    stack: Rig
    watching: Prometheus
    port: int
    fired: set[str] = field(default_factory=set)
    revision: int = 1

    async def fires(self, *alerts: str) -> None:
        for alert in alerts:
            await self.watching.until(f"{alert} fires", PATIENCE, lambda alert=alert: self._is(alert, True))
            self.fired.add(alert)

    async def silent(self, *alerts: str) -> None:
        for alert in alerts:
            await self.watching.until(f"{alert} is silent", PATIENCE, lambda alert=alert: self._is(alert, False))

    async def _is(self, alert: str, wanted: bool) -> bool:
        return (f"Docdelta{alert}" in await self.watching.firing()) is wanted

    def edit(self, document: str) -> DocumentChange:
        """Return an edit that changes a chunk."""
        self.revision += 1
        return upsert(document, self.revision, a_page(document, edit=f" at {self.revision}"))

    async def command(self, *arguments: str, code: int = 0, **environment: str) -> None:
        done = await self.stack.docdelta(*arguments, **environment)
        assert done.returncode == code, done.stdout + done.stderr

    async def worker(self, name: str, only: str = "", apps: int = 3) -> None:
        """Start the worker that is scraped and wait until so many of its apps are ready."""
        self.stack.start(name, only, DOCDELTA_WORKER__METRICS_PORT=str(self.port), **WORKER)
        await scrape_when(self.port, lambda found: found.sum("docdelta_app_ready") == apps)

    @asynccontextmanager
    async def fault(self, name: str) -> AsyncIterator[None]:
        """Have the worker suffer from a fault of tests/support/faulty_worker.py for the time of the block."""
        file = self.stack.folder / name
        file.touch()
        yield
        file.unlink()


async def test_each_alert_fires_in_its_fault(tmp_path: Path, fresh: str) -> None:
    with TansuBroker(tmp_path / "tansu") as broker:
        kafka = KafkaSettings(bootstrap_servers=broker.bootstrap_servers, single_record_batches=True)
        async with rig(kafka, tmp_path, fresh, prepare=False) as stack:
            stack.program = (faulty_worker.__file__,)
            port = free_port()
            assert (await stack.docdelta("topics", "apply")).returncode == 0
            stack.start("one", DOCDELTA_WORKER__METRICS_PORT=str(port), **WORKER)
            async with prometheus(tmp_path, port, shortened(tmp_path)) as watching:
                site = Site(stack, watching, port)
                await _before_the_first_batch(site)
                await _the_index(site)
                await _the_model(site)
                await _commits(site)
                await _people(site)
                await _documents(site)
                await _workers(site)
                await _a_build(site)
                await _broker_and_worker_gone(site, broker)
        assert site.fired == alerts()


async def _before_the_first_batch(site: Site) -> None:
    await site.fires("NoBatchServed")
    await site.stack.init()
    await scrape_when(site.port, lambda found: found.sum("docdelta_app_ready") == 3)
    await site.silent("NoBatchServed")
    await site.stack.put(*[upsert(f"d{n}", 1, a_page(f"d{n}")) for n in range(6)])
    await site.fires("AuditStands")
    early = {"AuditStands", "IndexNotFresh", "Slow"}  # a round, a canary and a first page may take as long as these times of a test
    await site.silent(*sorted(alerts() - early))


async def _the_index(site: Site) -> None:
    faults = site.stack.shim.faults
    faults += [Fault(match="", status=503)] * 100_000
    edit = site.edit("d0")
    await site.stack.send(edit)
    await site.fires("OtherSideAway", "DocumentsWait", "IndexNotFresh")
    faults.clear()
    await site.stack.outcomes([edit.event_id])
    await site.fires("Slow")
    await site.silent("OtherSideAway", "DocumentsWait")
    faults += [disk_full()] * 100_000
    edit = site.edit("d1")
    await site.stack.send(edit)
    await site.fires("IndexDiskFull")
    faults.clear()
    await site.stack.outcomes([edit.event_id])
    held = asyncio.Event()
    faults.append(Fault(until=held))
    edit = site.edit("d1")
    await site.stack.send(edit)
    await asyncio.sleep(3)
    held.set()
    await site.fires("IndexSlow")
    await site.stack.outcomes([edit.event_id])
    faults += [Fault(match=f"/{site.stack.collection}/points/batch", status=422)] * 1000
    await site.stack.put(site.edit("d2"))
    await site.fires("IndexRefuses", "DeadLetters")
    faults.clear()
    await site.command("dead-letters", "replay", "--all", "--yes")
    await site.silent("DeadLetters")


async def _the_model(site: Site) -> None:
    edit = site.edit("d3")
    async with site.fault(MODEL_HANGS):
        await site.stack.send(edit)
        await site.fires("EmbedderSlow", "CommitsStalled")
    await site.stack.outcomes([edit.event_id])
    await site.silent("EmbedderSlow", "CommitsStalled")
    edit = site.edit("d3")
    async with site.fault(MODEL_FAILS):
        await site.stack.send(edit)
        await site.fires("EmbedderFails")
    await site.stack.outcomes([edit.event_id])


async def _commits(site: Site) -> None:
    async with site.fault(COMMITS_FAIL):
        await site.stack.put(site.edit("d4"))
        await site.fires("CommitsNotConfirmed")
    await site.silent("CommitsNotConfirmed")


async def _people(site: Site) -> None:
    """What somebody stopped, and a mass delete that somebody has to decide about."""
    stage = f"batch:{site.stack.policy.batch_id}"
    await site.command("pause", "--stage", stage, "--reason", "a test")
    await site.stack.send(*[upsert(f"bulk{n}", 1, "# A page\n\nfrom a folder\n") for n in range(200)], lane="bulk")
    await site.fires("PausedLong", "BulkStands")
    await site.command("resume", "--stage", stage)
    await site.silent("PausedLong", "BulkStands")
    await site.stack.put(*[upsert(f"p{n}", 1, a_page(f"p{n}", 1), tenant="site") for n in range(12)])
    await site.stack.put(*[delete(f"p{n}", 2, "site") for n in range(12)])
    await site.fires("MassDeleteHeld")
    await site.command("breaker", "approve", "site", "--yes", code=-9, **{VARIABLE: "breaker.decided:1"})
    await site.fires("HeldLeft")
    await site.command("breaker", "approve", "site", "--yes")
    await site.silent("MassDeleteHeld", "HeldLeft")


async def _documents(site: Site) -> None:
    lost = sorted(await site.stack.points())[0]
    gone = models.DeleteOperation(delete=models.PointIdsList(points=[point_id(lost)]))
    await site.stack.shim.index.store.batch(site.stack.collection, [gone])
    await site.fires("Drift")
    await site.stack.docdelta("audit", "--repair")
    await site.silent("Drift")


async def _workers(site: Site) -> None:
    for _ in range(3):  # each time it comes and each time it goes
        port = free_port()
        site.stack.start("second", DOCDELTA_WORKER__METRICS_PORT=str(port), **WORKER)
        await scrape_when(port, lambda found: found.sum("docdelta_app_ready") == 3)
        assert await site.stack.stop("second") == 0
    await site.fires("RebalancesOften")
    worker = site.stack.workers["one"]
    worker.send_signal(signal.SIGSTOP)
    await asyncio.sleep(4)
    worker.send_signal(signal.SIGCONT)
    await site.fires("LoopBlocked")
    assert await site.stack.stop("one") == 0
    async with site.fault(TABLES_STAND):
        site.stack.start("three", DOCDELTA_WORKER__METRICS_PORT=str(site.port), **WORKER)
        await site.fires("NotReady")
    await scrape_when(site.port, lambda found: found.sum("docdelta_app_ready") == 3)
    await site.silent("NotReady")


async def _a_build(site: Site) -> None:
    """A batch that no worker hosts, since the one there is takes only the parser's part."""
    green = load_policy(SMALLER).batch_id
    assert await site.stack.stop("three") == 0
    await site.worker("parser", "parser", apps=2)
    (site.stack.folder / "v2.yaml").write_text(SMALLER, encoding="utf-8")
    await site.stack.docdelta("rollout", "v2.yaml", "--auto", "--timeout", "10")
    await site.fires("BuildStands")
    await site.command("retire", green, "--force", "--yes")
    await site.silent("BuildStands")


async def _broker_and_worker_gone(site: Site, broker: TansuBroker) -> None:
    broker.kill()
    await site.fires("LagUnknown")
    site.stack.workers["parser"].kill()
    await site.fires("WorkerDown", "NoWorker")
