"""Workers that come, go and hang, disks and logs that are lost, all under load: the index ends as a clean rebuild would."""

from __future__ import annotations

import asyncio
import resource
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from streams.embedded.apache_kafka import ApacheKafka
from streams.kafka.admin import apply_topics
from streams.kafka.client import make_admin
from streams.settings import KafkaSettings
from streams.topics import Topic, batch_topics
from tests.conftest import require_apache_kafka
from tests.contracts.qdrant_shim import Fault
from tests.crash.stack.installation import Installation, installation
from tests.crash.stack.lives import Death, live_through
from tests.support.patience import PATIENCE

kafka = pytest.mark.kafka


@kafka
async def test_a_worker_asked_to_stop_under_load_leaves_in_time_and_nothing_behind(
    apache_settings: KafkaSettings, tmp_path: Path, fresh: str
) -> None:
    """Three histories: SIGTERM before the first outcome, in the middle, and near the end of a wave."""
    async with installation(apache_settings, tmp_path, fresh, seed=1) as own:
        own.start()
        assert await own.settle()
        for enough in (0, 6, 12):
            await own.send([*own.site.wave(), *own.site.wave()])
            await own.settle(but=len(own.open_events) - enough)
            code = await own.rig.stop()
            assert code == 0, own.rig.log()[-4000:]
            own.start()
            assert await own.settle()
            await own.check()


@kafka
async def test_a_second_worker_may_join_leave_and_die_under_load(
    apache_settings: KafkaSettings, tmp_path: Path, fresh: str
) -> None:
    async with installation(apache_settings, tmp_path, fresh, seed=2) as own:
        own.start("one")
        await own.send(own.site.wave())
        own.start("two")
        await own.send(own.site.wave())
        assert await own.settle()
        await own.check()
        await own.send(own.site.wave())
        code = await own.rig.stop("two")
        assert code == 0, own.rig.log("two")[-4000:]
        await own.send(own.site.wave())
        own.start("two")
        assert await own.settle()
        await own.send(own.site.wave())
        own.rig.workers["one"].kill()
        await own.send(own.site.wave())
        assert await own.settle()
        await own.check()


@kafka
async def test_workers_that_start_together_share_a_full_log_and_skip_nothing(
    apache_settings: KafkaSettings, tmp_path: Path, fresh: str
) -> None:
    """The second one's coming finds the first with a fetch out and nothing committed: that fetch once took records along."""

    async def together(number: int) -> None:
        async with installation(apache_settings, tmp_path / str(number), f"{fresh}-{number}", seed=number) as own:
            own.start("one")
            own.start("two")
            assert await own.settle()
            await own.check()

    await asyncio.gather(*(together(number) for number in range(3)))


@kafka
async def test_an_index_that_hangs_is_given_up_and_asked_again(apache_settings: KafkaSettings, tmp_path: Path, fresh: str) -> None:
    """Reads and writes without an answer, among good ones; the worker's own time limit ends them."""
    async with installation(apache_settings, tmp_path, fresh, seed=3) as own:
        own.start(DOCDELTA_QDRANT__TIMEOUT_SECONDS="1")
        assert await own.settle()
        faults = own.rig.shim.faults
        faults += [
            Fault(hang=True),
            Fault(skip=2, hang=True),
            Fault(match="/points", hang=True),
            Fault(match="/points/scroll", hang=True),
        ]
        for _ in range(3):
            await own.send(own.site.wave())
            assert await own.settle()
        assert len(faults) < 4, "no request met a fault"
        faults.clear()
        await own.check()


@kafka
async def test_a_full_disk_under_the_state_stops_the_worker_with_a_reason(
    apache_settings: KafkaSettings, tmp_path: Path, fresh: str
) -> None:
    """No file of the worker may grow from here on (its log goes through a pipe). It says what to check, and a restart goes on."""
    async with installation(apache_settings, tmp_path, fresh, seed=4) as own:
        worker = _start_with_piped_log(own)
        assert await own.settle()
        resource.prlimit(worker.pid, resource.RLIMIT_FSIZE, (1, 1))
        await own.send(own.site.wave())
        code = await asyncio.wait_for(asyncio.to_thread(worker.wait), PATIENCE)
        log = own.rig.log()
        assert code == 1, log[-4000:]
        assert "check its disk" in log, log[-4000:]
        own.start()
        assert await own.settle()
        await own.check()


def _start_with_piped_log(own: Installation) -> subprocess.Popen[bytes]:
    """Start worker "one" so that its log is written by another process, which the limit does not meet."""
    with (own.rig.folder / "one.log").open("ab") as log:
        writer = subprocess.Popen(["cat"], stdin=subprocess.PIPE, stdout=log)
    state = {"DOCDELTA_WORKER__STATE_DIR": str(own.rig.folder / "state-one")}
    assert writer.stdin is not None
    own.rig.workers["one"] = subprocess.Popen(
        [sys.executable, "-m", "streams.cli", "worker"],
        env={**own.rig.environment, **state},
        cwd=own.rig.folder,
        stdout=writer.stdin,
        stderr=writer.stdin,
    )
    writer.stdin.close()
    return own.rig.workers["one"]


@kafka
@pytest.mark.parametrize(
    ("lost", "order"),
    [("state-folder", "table.confirmed:6"), ("changelog", "chunker.published:4"), ("changelog", "indexer.written:3")],
)
async def test_memory_lost_at_a_crash_is_found_again(
    apache_settings: KafkaSettings, tmp_path: Path, fresh: str, order: str, lost: str
) -> None:
    """The folder is rebuilt from the changelog; without the changelog (and folder) the manifests are read from the index."""
    async with installation(apache_settings, tmp_path, fresh, seed=5) as own:
        own.start()
        assert await own.settle()
        await own.rig.stop()
        own.start(order=order)
        await own.send(own.site.wave())
        await own.death("one")
        await asyncio.to_thread(_lose, own, lost)
        await own.send(own.site.wave())
        own.start()
        assert await own.settle()
        await own.check()
        await own.send(own.site.wave())
        assert await own.settle()
        await own.check()


def _lose(own: Installation, lost: str) -> None:
    rig = own.rig
    batch_group = rig.settings.topics.batch_group(rig.policy.batch_id)
    if lost == "state-folder":
        shutil.rmtree(rig.folder / "state-one")
        return
    shutil.rmtree(rig.folder / "state-one" / batch_group)
    manifests: Topic = batch_topics(rig.settings.topics, rig.policy.batch_id, rig.kafka.partitions)[-1]
    admin = make_admin(rig.kafka)
    for done in admin.delete_topics([manifests.name]).values():
        done.result(30)
    while manifests.name in admin.list_topics(timeout=30).topics:
        pass
    apply_topics(rig.kafka, [manifests])


@kafka
async def test_broker_and_worker_killed_together_lose_nothing(tmp_path: Path, fresh: str) -> None:
    require_apache_kafka()
    with ApacheKafka(tmp_path / "kafka") as broker:
        settings = KafkaSettings(bootstrap_servers=broker.bootstrap_servers)
        async with installation(settings, tmp_path, fresh, seed=6) as own:
            own.start(order="indexer.written:9")
            await own.send(own.site.wave())
            await own.death("one")
            broker.kill()
            own.start()  # finds no broker, and says so
            code = await asyncio.to_thread(own.rig.workers["one"].wait, 60)
            assert code == 3, own.rig.log()[-2000:]
            await asyncio.to_thread(broker.start)
            own.start()
            assert await own.settle()
            await own.check()


async def test_deaths_on_the_embedded_broker(tansu_settings: KafkaSettings, tmp_path: Path, fresh: str) -> None:
    deaths = [Death("chunker.published", 2), Death("table.confirmed", 3), Death("indexer.written", 4)]
    verdicts = await live_through(deaths, tansu_settings, tmp_path, fresh)
    assert not any(verdicts.values()), "\n".join(verdicts.values())
