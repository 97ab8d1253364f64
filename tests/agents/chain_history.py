"""Harness of the crash tests: topics, records, worker processes and the journal they write (see chain_worker.py).

Waiting is for a line in the journal or for a process to end, with a bound; nothing is timed by sleeping.
"""

from __future__ import annotations

import json
import subprocess
import sys
import time
from collections import defaultdict
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient, NewTopic

from streams.settings import KafkaSettings

WORKER = Path(__file__).with_name("chain_worker.py")
PARTITIONS = 4
LEAST = {"session_timeout_seconds": 6.0, "heartbeat_seconds": 1.0}
"""The shortest session that Apache Kafka accepts."""
QUICK = {"session_timeout_seconds": 2.0, "heartbeat_seconds": 0.5}


@dataclass
class ChainHistory:
    """One pair of topics, one group, any number of workers one after the other or at once."""

    kafka: KafkaSettings
    folder: Path
    name: str
    state: str = "memory"
    keys: int = 20
    produced: int = 0
    """Records of each key so far: 1 … produced."""
    processes: list[subprocess.Popen[bytes]] = field(default_factory=list)

    @property
    def journal(self) -> Path:
        return self.folder / "journal"

    def create_topics(self) -> None:
        admin = AdminClient({"bootstrap.servers": self.kafka.bootstrap_servers})
        wanted = {f"{self.name}.in": {}, f"{self.name}.out": {}, f"{self.name}-last-changelog": {"cleanup.policy": "compact"}}
        topics = [NewTopic(topic, PARTITIONS, 1, config=config) for topic, config in wanted.items()]
        for made in admin.create_topics(topics).values():
            made.result(20)

    def produce(self, more: int) -> None:
        """Add `more` records to every key, round robin over the keys."""
        options: dict[str, str | int] = {"bootstrap.servers": self.kafka.bootstrap_servers, "partitioner": "murmur2_random"}
        if self.kafka.single_record_batches:
            options["batch.num.messages"] = 1
        producer = Producer(options)
        for n in range(self.produced + 1, self.produced + more + 1):
            for key in self.all_keys:
                producer.produce(f"{self.name}.in", str(n).encode(), key=key.encode())
        assert producer.flush(30) == 0
        self.produced += more

    @property
    def all_keys(self) -> list[str]:
        return [f"k{number}" for number in range(self.keys)]

    def start(self, datadir: str = "one", **options: object) -> subprocess.Popen[bytes]:
        """Start a worker process. Options: work_seconds, stuck_on, crash_on."""
        kafka = self.kafka.model_dump(
            mode="json", include={"bootstrap_servers", "single_record_batches", "session_timeout_seconds", "heartbeat_seconds"}
        )
        settings = {"kafka": {**kafka, "partitions": PARTITIONS, "rebalance_timeout_seconds": 10}, "worker": {"state": self.state}}
        arguments = {
            "settings": settings,
            "journal": str(self.journal),
            "in": f"{self.name}.in",
            "out": f"{self.name}.out",
            "group": self.name,
            "datadir": str(self.folder / datadir),
            **options,
        }
        with (self.folder / "workers.log").open("ab") as log:
            process = subprocess.Popen([sys.executable, str(WORKER), json.dumps(arguments)], stdout=log, stderr=log)
        self.processes.append(process)
        return process

    def lines(self, word: str = "", after: int = 0) -> list[list[str]]:
        """Journal lines that begin with `word`, of those after the first `after` lines."""
        if not self.journal.is_file():
            return []
        told = [line.split() for line in self.journal.read_text().splitlines()[after:]]
        return [line for line in told if line and (not word or line[0] == word)]

    def wait_for(self, claim: Callable[[], bool], what: str, seconds: float = 60) -> None:
        """Return when the claim holds. A worker that has ended by itself, or the time being over, fails."""
        until = time.monotonic() + seconds
        while not claim():
            assert time.monotonic() < until, f"{what}: not within {seconds:.0f} s; {len(self.lines())} lines\n{self.worker_log()}"
            assert any(process.poll() is None for process in self.processes), f"{what}: no worker runs\n{self.worker_log()}"
            time.sleep(0.02)

    def wait_for_lines(self, word: str, more: int, seconds: float = 60) -> None:
        have = len(self.lines(word))
        self.wait_for(lambda: len(self.lines(word)) >= have + more, f"{more} more lines of {word!r}", seconds)

    def wait_until_done(self, seconds: float = 60) -> None:
        """Return when the last record of every key has had its effect."""
        last = str(self.produced)
        self.wait_for(lambda: {k for _, k, n, _ in self.lines("effect") if n == last} == set(self.all_keys), "all effects", seconds)

    def worker_log(self, lines: int = 25) -> str:
        log = self.folder / "workers.log"
        return "\n".join(log.read_text(errors="replace").splitlines()[-lines:]) if log.is_file() else ""

    def effects(self) -> dict[str, list[tuple[int, int]]]:
        """Key → (n, previous) as they came, repeats included."""
        by_key: dict[str, list[tuple[int, int]]] = defaultdict(list)
        for _, key, n, previous in self.lines("effect"):
            by_key[key].append((int(n), int(previous)))
        return by_key

    def check_nothing_lost_and_in_order(self) -> None:
        """Every record of every key had its effect; the first time in order; each saw the table as its predecessor left it."""
        effects = self.effects()
        for key in self.all_keys:
            came = effects[key]
            first_times = list(dict.fromkeys(n for n, _ in came))
            assert first_times == list(range(1, self.produced + 1)), f"{key}: {first_times}"
            assert {(n, previous) for n, previous in came if previous != n - 1} == set(), key

    def check_table(self) -> None:
        """A fresh worker finds the last n of every key in its table: the next record says so as its `previous`."""
        self.produce(1)
        self.wait_until_done()
        self.check_nothing_lost_and_in_order()


@contextmanager
def chain_history(kafka: KafkaSettings, folder: Path, name: str, state: str = "memory", keys: int = 20) -> Iterator[ChainHistory]:
    """A history with its topics made; its workers are killed at the end."""
    fast = kafka.model_copy(update=QUICK if kafka.single_record_batches else LEAST)
    history = ChainHistory(fast, folder, name, state, keys)
    history.create_topics()
    try:
        yield history
    finally:
        for process in history.processes:
            if process.poll() is None:
                process.kill()
            process.wait()
