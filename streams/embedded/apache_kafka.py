"""Apache Kafka on one machine: jars by Maven, KRaft without ZooKeeper, one broker or three on loopback. Needs Java 17 and Maven.

A data folder belongs to one `ApacheKafka`. It keeps its ports, so that a restart, also after a SIGKILL or from another process,
finds the same records at the same address.
"""

from __future__ import annotations

import base64
import json
import os
import re
import shutil
import subprocess
import uuid
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from hashlib import sha256
from pathlib import Path
from types import TracebackType

from streams.embedded.cache import cache_folder, fill_once
from streams.embedded.free_ports import LOOPBACK, free_ports
from streams.embedded.process import FolderProcess
from streams.embedded.readiness import wait_until_serving
from streams.errors import NotPrepared
from streams.topics import MAX_RECORD_BYTES, MEBIBYTE

DEPLOY_FOLDER = Path(__file__).resolve().parents[2] / "deploy" / "kafka"
HOW_TO_GET_IT = "apt-get install openjdk-17-jre-headless maven (macOS: brew install openjdk@17 maven)"
MESSAGE_MAX_BYTES = MAX_RECORD_BYTES + MEBIBYTE
"""Largest batch a broker takes: the largest record and room for its frame."""
_JAVA_NEEDED = 17
_HEAP = "512m"
_SMALL = ("-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC")
"""A broker of one machine and a few hours: compiling its code a second time, and collecting beside it, costs more than it saves
(3.6 seconds of processor to start and stop it, were 6.4)."""
_PLAIN_LOGIN = "org.apache.kafka.common.security.plain.PlainLoginModule"


def available() -> str | None:
    """Return None when Apache Kafka can be run here, else one line that says what is missing and how to get it."""
    java = _java_version()
    if java is None:
        return f"Apache Kafka needs Java {_JAVA_NEEDED} or newer: {HOW_TO_GET_IT}"
    if java < _JAVA_NEEDED:
        return f"Apache Kafka needs Java {_JAVA_NEEDED} or newer, found {java}: {HOW_TO_GET_IT}"
    if not (DEPLOY_FOLDER / "pom.xml").is_file():
        return "Apache Kafka needs a checkout of docdelta (deploy/kafka/pom.xml)"
    if shutil.which("mvn") is None and not _jar_folder().is_dir():
        return f"Apache Kafka's jars are fetched with Maven: {HOW_TO_GET_IT}"
    return None


class ApacheKafka:
    """One broker (or three) on `data_dir`. A context manager, or `start`, `stop`, `kill` and `start` again.

    `users` (name → password; for tests, since they are written into the folder in clear) opens a second, SASL/PLAIN listener on
    which they may do nothing but what they are granted; the plain listener may do everything.
    """

    def __init__(self, data_dir: Path, brokers: int = 1, users: Mapping[str, str] | None = None) -> None:
        if brokers not in (1, 3):
            raise ValueError("brokers is 1 or 3")
        self.data_dir = data_dir
        self.brokers = brokers
        self._users = dict(users or {})
        self._nodes: list[_Node] = []

    @property
    def bootstrap_servers(self) -> str:
        """Comma-separated host:port of every broker, in the order of their numbers."""
        return ",".join(node.address for node in self._nodes)

    @property
    def sasl_bootstrap_servers(self) -> str:
        """The same for the listener of `users`."""
        return ",".join(node.sasl_address for node in self._nodes)

    def start(self, patience: float = 120.0) -> ApacheKafka:
        """Start all brokers and wait until they serve. NotPrepared when Java or jars are missing, NotReachable with a log's end."""
        if reason := available():
            raise NotPrepared(reason)
        jars = kafka_jars()
        self._nodes = _laid_out(self.data_dir, self.brokers, self._users)
        try:
            for node in self._nodes:
                node.format_once(jars)
                node.run(jars)
            self.wait_until_serving(patience)
        except BaseException:
            self.stop()
            raise
        return self

    def wait_until_serving(self, patience: float = 120.0) -> None:
        """Return when all brokers are there and a group coordinator answers."""
        wait_until_serving(self.bootstrap_servers, patience, self.check_alive, self.brokers)

    def stop(self) -> None:
        """End all brokers in good order; records stay in the folder."""
        for node in self._nodes:
            node.process.ask_to_stop()  # all at once: one that is left alone would wait for a quorum that is gone
        for node in self._nodes:
            node.process.stop(patience=10.0)

    def kill(self, broker: int | None = None) -> None:
        """End all brokers, or the one of that number (from 0), with SIGKILL."""
        for node in self._nodes if broker is None else [self._nodes[broker]]:
            node.process.kill()

    def restart(self, broker: int) -> None:
        """Start one broker (from 0) that was ended, on its folder and port. Does not wait for it to serve."""
        self._nodes[broker].run(kafka_jars())

    def __enter__(self) -> ApacheKafka:
        return self.start()

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self.stop()

    def check_alive(self) -> None:
        """Raise NotReachable with the end of its log when a broker has ended by itself."""
        for node in self._nodes:
            node.process.check_alive()


@dataclass(frozen=True, slots=True)
class _Ports:
    """Where one broker listens, and the id of its records' folder."""

    plain: int
    controller: int
    sasl: int
    directory: str


@dataclass(frozen=True, slots=True)
class _Cluster:
    """What must stay the same as long as the folder lives: ``cluster.json``."""

    identity: str
    ports: tuple[_Ports, ...]


class _Node:
    """One broker that is its own controller, in its own folder."""

    def __init__(self, folder: Path, number: int, cluster: _Cluster, users: Mapping[str, str]) -> None:
        self.folder, self._number, self._cluster, self._users = folder, number, cluster, users
        self.process = FolderProcess("kafka", folder)

    @property
    def address(self) -> str:
        return f"{LOOPBACK}:{self._cluster.ports[self._number].plain}"

    @property
    def sasl_address(self) -> str:
        return f"{LOOPBACK}:{self._cluster.ports[self._number].sasl}"

    def format_once(self, jars: Path) -> None:
        """Write the settings; format the records' folder unless it was."""
        self.folder.mkdir(parents=True, exist_ok=True)
        self._settings_file.write_text("".join(f"{name}={value}\n" for name, value in self._settings().items()))
        if (self.folder / "records" / "meta.properties").is_file():
            return
        voters = ",".join(
            f"{number}@{LOOPBACK}:{ports.controller}:{ports.directory}" for number, ports in enumerate(self._cluster.ports)
        )
        flags = ["-t", self._cluster.identity, "-c", str(self._settings_file), "--initial-controllers", voters]
        command = _java(jars, "kafka.tools.StorageTool", "format", *flags)
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        if done.returncode:
            raise NotPrepared(f"kafka can't format {self.folder}: {(done.stderr or done.stdout).strip()[-800:]}")

    def run(self, jars: Path) -> None:
        self.process.start(_java(jars, "kafka.Kafka", str(self._settings_file)))

    @property
    def _settings_file(self) -> Path:
        return self.folder / "server.properties"

    def _settings(self) -> dict[str, object]:
        ports = self._cluster.ports[self._number]
        copies = len(self._cluster.ports)
        in_sync = 2 if copies == 3 else 1
        listeners = f"PLAINTEXT://{LOOPBACK}:{ports.plain},CONTROLLER://{LOOPBACK}:{ports.controller}"
        if self._users:
            listeners += f",SASL://{LOOPBACK}:{ports.sasl}"
        return {
            "process.roles": "broker,controller",
            "node.id": self._number,
            "controller.quorum.bootstrap.servers": ",".join(f"{LOOPBACK}:{each.controller}" for each in self._cluster.ports),
            "listeners": listeners,
            "advertised.listeners": listeners,
            "listener.security.protocol.map": "PLAINTEXT:PLAINTEXT,CONTROLLER:PLAINTEXT,SASL:SASL_PLAINTEXT",
            "controller.listener.names": "CONTROLLER",
            "log.dirs": self.folder / "records",
            "default.replication.factor": copies,
            "min.insync.replicas": in_sync,
            "offsets.topic.replication.factor": copies,
            "transaction.state.log.replication.factor": copies,
            "transaction.state.log.min.isr": in_sync,
            "share.coordinator.state.topic.replication.factor": copies,
            "share.coordinator.state.topic.min.isr": in_sync,
            "offsets.topic.num.partitions": 4,
            "transaction.state.log.num.partitions": 4,
            "group.initial.rebalance.delay.ms": 0,
            "auto.create.topics.enable": "false",
            # After a SIGKILL the controller waits out the old session before it lets the same broker in again.
            "broker.session.timeout.ms": 3000,
            "broker.heartbeat.interval.ms": 500,
            "message.max.bytes": MESSAGE_MAX_BYTES,
            "replica.fetch.max.bytes": MESSAGE_MAX_BYTES,
            "socket.request.max.bytes": 100 * MEBIBYTE,
            **self._rights(),
        }

    def _rights(self) -> dict[str, object]:
        if not self._users:
            return {}
        accounts = " ".join(f'user_{name}="{password}"' for name, password in self._users.items())
        return {
            "sasl.enabled.mechanisms": "PLAIN",
            "listener.name.sasl.plain.sasl.jaas.config": f"{_PLAIN_LOGIN} required {accounts};",
            "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
            "super.users": "User:ANONYMOUS",
        }


def kafka_jars() -> Path:
    """Return the folder of Kafka's jars, fetched with Maven the first time. NotPrepared, with Maven's words, when that fails."""
    return fill_once(_jar_folder(), _fetch_jars)


def _jar_folder() -> Path:
    pom = (DEPLOY_FOLDER / "pom.xml").read_bytes()
    return cache_folder() / f"kafka-{sha256(pom).hexdigest()[:12]}"


def _fetch_jars(folder: Path) -> None:
    pom = DEPLOY_FOLDER / "pom.xml"
    goal = ["dependency:copy-dependencies", "-DincludeScope=runtime", f"-DoutputDirectory={folder}"]
    done = subprocess.run(["mvn", "-B", "-q", "-f", str(pom), *goal], capture_output=True, text=True, check=False)
    if done.returncode:
        raise NotPrepared(f"maven can't fetch Apache Kafka: {(done.stdout or done.stderr).strip()[-800:]}", pom=pom)


def _laid_out(data_dir: Path, brokers: int, users: Mapping[str, str]) -> list[_Node]:
    """Return the nodes as `cluster.json` of the folder says; the first time, choose ports and ids and write it."""
    plan_file = data_dir / "cluster.json"
    if plan_file.is_file():
        plan = json.loads(plan_file.read_text())
        cluster = _Cluster(plan["identity"], tuple(_Ports(**each) for each in plan["ports"]))
        if len(cluster.ports) != brokers:
            raise NotPrepared(f"{data_dir} holds {len(cluster.ports)} brokers, not {brokers}; choose another folder")
    else:
        free = free_ports(3 * brokers)
        chosen = zip(free[::3], free[1::3], free[2::3], strict=True)
        cluster = _Cluster(_random_id(), tuple(_Ports(*ports, _random_id()) for ports in chosen))
        data_dir.mkdir(parents=True, exist_ok=True)
        plan_file.write_text(json.dumps(asdict(cluster)))
    return [_Node(data_dir / f"broker-{number}", number, cluster, users) for number in range(brokers)]


def _random_id() -> str:
    """Return 22 characters as Kafka writes a UUID. It may not begin with a dash, which the command line would read as a flag."""
    while True:
        written = base64.urlsafe_b64encode(uuid.uuid4().bytes).decode().rstrip("=")
        if not written.startswith("-"):
            return written


def _java(jars: Path, *arguments: str) -> list[str]:
    log_settings = f"-Dlog4j2.configurationFile={DEPLOY_FOLDER / 'log4j2.properties'}"
    return [_java_binary() or "java", f"-Xmx{_HEAP}", *_SMALL, log_settings, "-cp", f"{jars}/*", *arguments]


def _java_binary() -> str | None:
    home = os.environ.get("JAVA_HOME")
    in_home = Path(home) / "bin" / "java" if home else None
    return str(in_home) if in_home is not None and in_home.is_file() else shutil.which("java")


def _java_version() -> int | None:
    binary = _java_binary()
    if binary is None:
        return None
    said = subprocess.run([binary, "-version"], capture_output=True, text=True, check=False).stderr
    found = re.search(r'version "(\d+)(?:\.(\d+))?', said)
    if found is None:
        return None
    major = int(found[1])
    return int(found[2] or 0) if major == 1 else major  # up to Java 8 it was "1.8"
