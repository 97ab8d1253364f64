"""Every red state that a fault makes is shown with its cause, has one action, and goes when the action is taken.

One installation with a broker of its own; about two minutes on two cores. What a worker alone knows, such as slow models, recovery
and stuck commits, is held against its metrics in tests/unit/board/test_troubles.py.
"""

from __future__ import annotations

import asyncio
import signal
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from qdrant_client import models

from chunking.policy import load_policy
from streams.board.feeds import Feeds
from streams.board.scrape import over_http
from streams.embedded.apache_kafka import ApacheKafka
from streams.index.points import point_id
from streams.index.qdrant import open_index
from streams.settings import KafkaSettings
from tests.conftest import require_apache_kafka
from tests.contracts.qdrant_shim import Fault
from tests.stack.rig import POLICY, Rig, a_page, delete, rig, upsert
from tests.stack.scrape import free_port
from tests.support.patience import PATIENCE

pytestmark = pytest.mark.kafka
SMALLER = POLICY.replace("version: 1", "version: 2").replace("max_tokens: 120", "max_tokens: 60")
WORKER = {
    "DOCDELTA_WORKER__HANDOVER_GRACE_SECONDS": "1",
    "DOCDELTA_AUDIT__EVERY_SECONDS": "2",
    "DOCDELTA_AUDIT__POINTS_PER_SECOND": "1000",
    "DOCDELTA_BREAKER__MINIMUM": "4",
    "DOCDELTA_BREAKER__SHARE": "0.5",
}


@asynccontextmanager
async def the_page(stack: Rig, port: int) -> AsyncIterator[Feeds]:
    """Give what the page is made of, reading this installation."""
    index = open_index(stack.settings.qdrant)
    feeds = Feeds(stack.settings, index, over_http([f"http://127.0.0.1:{port}"], sure=True))
    reading = asyncio.create_task(feeds.run())
    try:
        yield feeds
        assert not reading.done(), reading
    finally:
        reading.cancel()
        await asyncio.gather(reading, return_exceptions=True)
        await index.close()


def shown(feeds: Feeds) -> dict[str, dict[str, Any]]:
    return {each["kind"]: each for each in feeds.sections()["troubles"]["shown"]}


async def until(feeds: Feeds, *kinds: str) -> dict[str, dict[str, Any]]:
    """Return the troubles as soon as these are among them; none given: as soon as there are none."""
    deadline = time.monotonic() + PATIENCE
    while True:
        found, knows = shown(feeds), feeds.around().caught_up and feeds.book.at is not None
        if knows and (set(kinds) <= found.keys() if kinds else not found):
            return found
        assert time.monotonic() < deadline, f"wanted {kinds or 'nothing'}, found {found}"
        await asyncio.sleep(0.2)


async def command(stack: Rig, *arguments: str, code: int = 0) -> None:
    done = await stack.docdelta(*arguments)
    assert done.returncode == code, done.stdout + done.stderr


async def test_every_fault_turns_red_and_its_action_turns_it_back(tmp_path: Path, fresh: str) -> None:
    require_apache_kafka()
    with ApacheKafka(tmp_path / "kafka") as broker:
        async with rig(KafkaSettings(bootstrap_servers=broker.bootstrap_servers), tmp_path, fresh) as stack:
            port = free_port()
            stack.start(DOCDELTA_WORKER__METRICS_PORT=str(port), **WORKER)
            await stack.put(*[upsert(f"d{n}", 1, a_page(f"d{n}", 2)) for n in range(24)])
            async with the_page(stack, port) as feeds:
                await until(feeds)
                await _poison(stack, feeds)
                await _index_away(stack, feeds)
                await _drift(stack, feeds)
                await _gate(stack, feeds)
                await _mass_delete(stack, feeds)
                await _worker_that_hangs(stack, feeds)
                await _broker_away(stack, feeds, broker)


async def _poison(stack: Rig, feeds: Feeds) -> None:
    await stack.put(upsert("d0", 2, "x", media_type="application/x-nonsense"))
    found = await until(feeds, "dead_letters")
    assert "application/x-nonsense" in found["dead_letters"]["facts"]["reason"]
    assert [each["action"] for each in feeds.sections()["worst"] if each["kind"] == "refused"] == ["replay"]
    await stack.put(upsert("d0", 3, a_page("d0", 2, edit=" mended")))
    await until(feeds)


async def _index_away(stack: Rig, feeds: Feeds) -> None:
    stack.shim.faults += [Fault(match="", status=503)] * 5000
    edit = upsert("d1", 2, a_page("d1", 2, edit=" while it is away"))
    await stack.send(edit)
    found = await until(feeds, "index_away", "worker_waits")
    assert found["worker_waits"]["facts"]["side"] == "index"
    stack.shim.faults.clear()
    await stack.outcomes([edit.event_id])
    await until(feeds)


async def _drift(stack: Rig, feeds: Feeds) -> None:
    lost = sorted(await stack.points())[0]
    gone = models.DeleteOperation(delete=models.PointIdsList(points=[point_id(lost)]))
    await stack.shim.index.store.batch(stack.collection, [gone])
    found = await until(feeds, "drift")
    assert found["drift"]["facts"]["kind"] == "missing_point"
    assert found["drift"]["command"] == "docdelta audit --repair"
    await stack.docdelta("audit", "--repair")
    await until(feeds)
    assert lost in await stack.points()


async def _mass_delete(stack: Rig, feeds: Feeds) -> None:
    await stack.put(*[delete(f"d{n}", 9) for n in range(4, 24)])
    found = await until(feeds, "breaker_open")
    assert found["breaker_open"]["facts"]["tenant"] == "acme"
    assert found["breaker_open"]["command"] == "docdelta breaker approve acme"
    held = [each for each in feeds.sections()["worst"] if each["kind"] == "held"]
    assert held
    await command(stack, "breaker", "approve", "acme", "--yes")
    await until(feeds)


async def _gate(stack: Rig, feeds: Feeds) -> None:
    green = load_policy(SMALLER).batch_id
    (stack.folder / "v2.yaml").write_text(SMALLER, encoding="utf-8")
    stack.shim.faults += [Fault(match=f"/{green}/points/batch", status=422, words="refused by the test")] * 6
    await command(stack, "rollout", "v2.yaml", "--auto", code=1)
    found = await until(feeds, "gate_fails")
    assert found["gate_fails"]["facts"]["batch"] == green
    (batch,) = [each for each in feeds.sections()["batches"]["shown"] if each["batch"] == green]
    assert batch["passed"] == batch["whole"] > 0
    failing = {line[0]: line for line in batch["gate"]["lines"] if not line[1]}
    assert "refused" in failing
    assert found["gate_fails"]["facts"]["line"] in failing
    stack.shim.faults.clear()
    await command(stack, "retire", green, "--force", "--yes")
    await until(feeds)


async def _worker_that_hangs(stack: Rig, feeds: Feeds) -> None:
    stack.workers["one"].send_signal(signal.SIGSTOP)
    await until(feeds, "worker_away")
    stack.workers["one"].send_signal(signal.SIGCONT)
    await until(feeds)


async def _broker_away(stack: Rig, feeds: Feeds, broker: ApacheKafka) -> None:
    broker.kill()
    found = await until(feeds, "broker_away")
    assert found["broker_away"]["facts"]["said"]
    await asyncio.to_thread(broker.start)
    await stack.put(upsert("d1", 3, a_page("d1", 2, edit=" after the outage")))
    await until(feeds)
