"""Workers as processes on a real broker: killed, stopped, stuck, crashed, cut off. What must hold each time is the same:
nothing lost, order per key kept, and every record finds the table as its predecessor left it.
"""

from __future__ import annotations

import os
import signal
import time
from collections import Counter
from pathlib import Path

import pytest

from streams.embedded.apache_kafka import ApacheKafka
from streams.embedded.tansu import TansuBroker
from streams.settings import KafkaSettings
from tests.agents.chain_history import ChainHistory, chain_history
from tests.support.patience import PATIENCE


def stop(history: ChainHistory, worker: int = -1) -> None:
    """SIGTERM a worker, which drains and commits in its time: exit code 0."""
    process = history.processes[worker]
    process.terminate()
    assert process.wait(PATIENCE) == 0, history.worker_log()


@pytest.mark.parametrize("state", ["rocksdb", pytest.param("memory", marks=pytest.mark.slow)])
def test_two_workers_killed_in_turn_lose_nothing(tansu_settings: KafkaSettings, tmp_path: Path, fresh: str, state: str) -> None:
    with chain_history(tansu_settings, tmp_path, fresh, state) as history:
        history.produce(20)
        first, second = history.start("one"), history.start("two")
        history.wait_for_lines("handled", 60)
        first.kill()
        history.produce(10)
        first = history.start("one")
        history.wait_for_lines("handled", 100)
        second.kill()
        history.wait_for_lines("handled", 60)
        history.wait_until_done()
        history.check_nothing_lost_and_in_order()
        first.kill()
        history.start("one")
        history.check_table()


@pytest.mark.kafka
@pytest.mark.parametrize("state", ["memory", pytest.param("rocksdb", marks=pytest.mark.slow)])
def test_the_same_on_apache_kafka(apache_settings: KafkaSettings, tmp_path: Path, fresh: str, state: str) -> None:
    test_two_workers_killed_in_turn_lose_nothing(apache_settings, tmp_path, fresh, state)


def test_sigterm_under_load_ends_well_and_nothing_is_handled_twice(any_broker: KafkaSettings, tmp_path: Path, fresh: str) -> None:
    with chain_history(any_broker, tmp_path, fresh) as history:
        history.produce(40)
        history.start(work_seconds=0.02)
        history.wait_for_lines("handled", 150)
        stop(history)
        half = len(history.lines("handled"))
        assert half < 40 * history.keys, "stopped under load"
        history.start()
        history.wait_until_done()
        history.check_nothing_lost_and_in_order()
        handled = Counter((key, n) for _, key, n in history.lines("handled"))
        assert set(handled.values()) == {1}


def test_a_stuck_handler_does_not_delay_sigterm_and_its_record_comes_again(
    tansu_settings: KafkaSettings, tmp_path: Path, fresh: str
) -> None:
    with chain_history(tansu_settings, tmp_path, fresh) as history:
        history.produce(5)
        history.start(stuck_on=3)
        history.wait_for_lines("stuck", 1)
        history.wait_for(lambda: any(line[2] == "2" for line in history.lines("handled")), "others handled")
        stop(history)
        assert not [line for line in history.lines("handled") if int(line[2]) >= 3]
        history.start()
        history.wait_until_done()
        history.check_nothing_lost_and_in_order()


def test_a_rebalance_does_not_wait_for_a_stuck_handler(tansu_settings: KafkaSettings, tmp_path: Path, fresh: str) -> None:
    with chain_history(tansu_settings, tmp_path, fresh) as history:
        history.produce(5)
        stuck = history.start("one", stuck_on=4)
        history.wait_for_lines("stuck", 1)
        history.start("two")
        history.wait_for_lines("up", 1)
        stuck.kill()
        history.wait_until_done()
        history.check_nothing_lost_and_in_order()


def test_a_broken_invariant_ends_the_worker_and_keeps_its_record(tansu_settings: KafkaSettings, tmp_path: Path, fresh: str) -> None:
    with chain_history(tansu_settings, tmp_path, fresh) as history:
        history.produce(20)
        worker = history.start(crash_on=7)
        assert worker.wait(PATIENCE) == 1
        assert "told to crash" in history.worker_log(lines=1000)
        assert not [line for line in history.lines("handled") if line[2] == "7"]
        history.start()
        history.wait_until_done()
        history.check_nothing_lost_and_in_order()


def test_a_broker_that_hangs_for_a_while_is_waited_for(tmp_path: Path, fresh: str) -> None:
    with TansuBroker(tmp_path / "broker") as broker:
        kafka = KafkaSettings(bootstrap_servers=broker.bootstrap_servers, single_record_batches=True)
        with chain_history(kafka, tmp_path, fresh) as history:
            history.produce(40)
            history.start(work_seconds=0.02)
            history.wait_for_lines("handled", 100)
            assert broker.pid is not None
            os.kill(broker.pid, signal.SIGSTOP)
            time.sleep(4)  # the length of the outage, not a wait for something
            os.kill(broker.pid, signal.SIGCONT)
            history.wait_until_done()
            history.check_nothing_lost_and_in_order()
            stop(history)


def test_sigterm_while_the_broker_is_away_ends_in_time(tmp_path: Path, fresh: str) -> None:
    with TansuBroker(tmp_path / "broker") as broker:
        kafka = KafkaSettings(bootstrap_servers=broker.bootstrap_servers, single_record_batches=True)
        with chain_history(kafka, tmp_path, fresh) as history:
            history.produce(20)
            worker = history.start(work_seconds=0.02)
            history.wait_for_lines("handled", 50)
            assert broker.pid is not None
            os.kill(broker.pid, signal.SIGSTOP)
            worker.terminate()
            assert worker.wait(PATIENCE) == 1, "it ends all the same, and not clean: nothing could be committed"
            os.kill(broker.pid, signal.SIGCONT)
            history.start()
            history.wait_until_done()
            history.check_nothing_lost_and_in_order()


def test_sigterm_before_the_worker_is_ready_ends_well(tansu_settings: KafkaSettings, tmp_path: Path, fresh: str) -> None:
    with chain_history(tansu_settings, tmp_path, fresh) as history:
        history.produce(1)
        for moment in ("Waiting for tables", "Re-)joining"):
            before = history.worker_log(lines=10_000).count(moment)
            history.start()
            history.wait_for(lambda m=moment, b=before: history.worker_log(lines=10_000).count(m) > b, moment)  # type: ignore[misc]
            stop(history)


@pytest.mark.kafka
def test_a_broker_that_dies_and_comes_back_is_waited_for(apache_kafka: str, tmp_path: Path, fresh: str) -> None:
    del apache_kafka  # only to skip where it can't run
    with (
        ApacheKafka(tmp_path / "broker") as broker,
        chain_history(KafkaSettings(bootstrap_servers=broker.bootstrap_servers), tmp_path, fresh) as history,
    ):
        history.produce(40)
        history.start(work_seconds=0.02)
        history.wait_for_lines("handled", 100)
        broker.kill()
        broker.start()
        history.wait_until_done()
        history.check_nothing_lost_and_in_order()
        stop(history)
