"""The main job under faults, on Apache Kafka: whatever dies or is away, every event gets its outcome; index equals rebuild."""

from __future__ import annotations

import asyncio
import random
from pathlib import Path

import pytest

from streams.embedded.apache_kafka import ApacheKafka
from streams.settings import KafkaSettings
from tests.conftest import require_apache_kafka
from tests.contracts.qdrant_shim import Fault, disk_full, rate_limited
from tests.stack.rig import Rig, a_page, delete, rig, upsert

pytestmark = pytest.mark.kafka


async def test_workers_killed_at_random_moments_lose_nothing(apache_settings: KafkaSettings, tmp_path: Path, fresh: str) -> None:
    """IN-10, IN-11, KA-02, KA-05: SIGKILL under load, twice with a second worker that takes over."""
    dice = random.Random(7)
    async with rig(apache_settings, tmp_path, fresh) as stack:
        newest = [upsert(f"d{n}", 1, a_page(f"d{n}")) for n in range(24)]
        events = [change.event_id for change in newest]
        await stack.send(*newest)
        stack.start("one")
        stack.start("two")
        for generation in range(2, 6):
            await asyncio.sleep(dice.uniform(1.0, 4.0))  # the moment of the kill, not a wait for something
            victim = dice.choice(["one", "two"])
            stack.workers[victim].kill()
            for place in dice.sample(range(24), 8):
                document = f"d{place}"
                change = (
                    delete(document, generation)
                    if dice.random() < 0.25
                    else upsert(document, generation, a_page(document, edit=f" {generation}"))
                )
                newest[place] = change
                events.append(change.event_id)
                await stack.send(change)
            stack.start(victim)
        await stack.outcomes(events)
        await stack.check(newest)
        assert await stack.dead_letters() == []
        for name in stack.workers:
            code = await stack.stop(name)
            assert code == 0, stack.log(name)


async def test_an_index_that_fails_in_every_way_is_waited_for(apache_settings: KafkaSettings, tmp_path: Path, fresh: str) -> None:
    """IN-02, QD-04: 429 with Retry-After, 500, a cut before and after, a batch cut in its middle, disk full, no completion."""
    async with rig(apache_settings, tmp_path, fresh) as stack:
        first = [upsert(f"d{n}", 1, a_page(f"d{n}")) for n in range(4)]
        stack.start()
        await stack.put(*first)
        stack.shim.faults += [
            rate_limited(1),
            Fault(status=500),
            Fault(cut_before=True),
            Fault(cut_after=True),
            Fault(killed_after=1),
            disk_full(),
            Fault(said="wait_timeout"),
            Fault(garbled=True),
            Fault(status=503),
        ]
        second = [upsert(f"d{n}", 2, a_page(f"d{n}", edit=" again")) for n in range(3)]
        outcome = await stack.put(*second, delete("d3", 2))
        assert stack.shim.faults == []
        assert {receipt.outcome for receipt in outcome.values()} == {"indexed"}
        await stack.check(second)
        assert await stack.dead_letters() == []


async def test_a_worker_waiting_out_an_outage_stops_in_time(apache_settings: KafkaSettings, tmp_path: Path, fresh: str) -> None:
    async with rig(apache_settings, tmp_path, fresh) as stack:
        stack.start()
        page = upsert("d", 1, a_page("d"))
        await stack.put(page)
        stack.shim.faults += [Fault(status=503)] * 1000
        edited = upsert("d", 2, a_page("d", edit=" later"))
        await stack.send(edited)
        while len(stack.shim.faults) == 1000:  # noqa: ASYNC110  the shim has no event to wait for
            await asyncio.sleep(0.05)
        code = await stack.stop()
        assert code == 0, stack.log()
        assert 1000 - len(stack.shim.faults) < 40, "an outage is waited out, not hammered"
        await stack.check([page])
        stack.shim.faults.clear()
        stack.start()
        await stack.outcomes([edited.event_id])
        await stack.check([edited])


async def test_state_that_is_lost_altogether_costs_no_embedding(apache_settings: KafkaSettings, tmp_path: Path, fresh: str) -> None:
    """A new state folder and new changelogs (another topic prefix over the same index): nothing is embedded, nothing written."""
    async with rig(apache_settings, tmp_path, fresh) as stack:
        stack.start()
        pages = [upsert(f"d{n}", 3, a_page(f"d{n}")) for n in range(5)]
        await stack.put(*pages)
        await stack.stop()
        writes = len(stack.shim.writes)
        again = Rig(stack.kafka.model_copy(update={"topic_prefix": f"{fresh}-again"}), stack.shim, tmp_path)
        try:
            await again.init()
            again.start("again")
            outcome = await again.put(*pages)
            assert {receipt.outcome for receipt in outcome.values()} == {"unchanged"}
            assert sum(receipt.embedded for receipt in outcome.values()) == 0
            assert len(stack.shim.writes) == writes
            shorter = upsert("d0", 4, a_page("d0", sections=2))
            outcome = await again.put(shorter)
            assert outcome["acme/d0@4"].embedded == 0
            await again.check([shorter, *pages[1:]])
        finally:
            again.end()


async def test_a_lost_state_folder_comes_back(apache_settings: KafkaSettings, tmp_path: Path, fresh: str) -> None:
    async with rig(apache_settings, tmp_path, fresh) as stack:
        stack.start("one")
        pages = [upsert(f"d{n}", 1, a_page(f"d{n}")) for n in range(8)]
        await stack.put(*pages)
        stack.workers["one"].kill()
        stack.start("elsewhere")
        edited = [upsert(page.document_id, 2, a_page(page.document_id, edit=" now")) for page in pages]
        outcome = await stack.put(*edited)
        assert {receipt.embedded for receipt in outcome.values()} == {1}
        await stack.check(edited)


async def test_a_broker_that_is_killed_and_comes_back_loses_nothing(tmp_path: Path, fresh: str) -> None:
    require_apache_kafka()
    with ApacheKafka(tmp_path / "kafka") as broker:
        kafka = KafkaSettings(bootstrap_servers=broker.bootstrap_servers)
        async with rig(kafka, tmp_path, fresh) as stack:
            stack.start()
            first = [upsert(f"d{n}", 1, a_page(f"d{n}")) for n in range(6)]
            await stack.put(*first)
            second = [upsert(f"d{n}", 2, a_page(f"d{n}", edit=" second")) for n in range(6)]
            await stack.send(*second)
            broker.kill()
            await asyncio.sleep(4)  # the length of the outage
            await asyncio.to_thread(broker.start)
            third = upsert("d6", 1, a_page("d6"))
            await stack.send(third)
            await stack.outcomes([change.event_id for change in (*second, third)])
            await stack.check([*second, third])
            code = await stack.stop()
            assert code == 0, stack.log()
