"""The embedded brokers: ready when they say so, gone when they must be, and clear when they can't start."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path

import pytest

from streams.embedded import apache_kafka, tansu
from streams.embedded.cache import fill_once
from streams.embedded.free_ports import free_ports
from streams.embedded.process import FolderProcess
from streams.embedded.tansu import TansuBroker
from streams.errors import NotPrepared, NotReachable
from tests.support.patience import PATIENCE


def test_free_ports_are_different_and_bindable():
    ports = free_ports(8)
    assert len(set(ports)) == 8
    held = [socket.create_server(("127.0.0.1", port)) for port in ports]
    for listener in held:
        listener.close()


def test_a_started_broker_serves_and_a_stopped_one_is_gone(tmp_path):
    from confluent_kafka.admin import AdminClient

    with TansuBroker(tmp_path) as broker:
        assert len(AdminClient({"bootstrap.servers": broker.bootstrap_servers}).list_topics(timeout=5).brokers) == 1
        pid = broker.pid
        assert (tmp_path / "pid").read_text().strip() == str(pid)
        assert "ready" in broker.log_file.read_text()
    assert broker.pid is None
    assert not (tmp_path / "pid").exists()
    with pytest.raises(ProcessLookupError):
        os.kill(pid, 0)


def test_two_brokers_never_share_a_folder(tmp_path):
    with TansuBroker(tmp_path) as first, pytest.raises(NotPrepared, match="another tansu works in") as refusal:
        TansuBroker(tmp_path).start()
    assert refusal.value.facts["pid"] != str(first.pid)
    with TansuBroker(tmp_path):
        pass  # once the first is stopped the folder is free


def test_a_missing_binary_says_what_to_do(tmp_path, monkeypatch):
    monkeypatch.setenv("CALF_TANSU_BIN", str(tmp_path / "nothing"))
    with pytest.raises(NotPrepared, match="no broker binary for this machine"):
        TansuBroker(tmp_path).start()


def test_a_broker_that_dies_at_start_shows_its_log(tmp_path, monkeypatch):
    broken = tmp_path / "broken"
    broken.write_text("#!/bin/sh\necho 'cannot map memory' >&2\nexit 7\n")
    broken.chmod(0o755)
    monkeypatch.setattr(tansu, "tansu_binary", lambda: str(broken))
    with pytest.raises(NotReachable, match=r"ended with status 7; its log says:\ncannot map memory"):
        TansuBroker(tmp_path / "data").start()


def test_a_broker_that_ignores_the_request_to_end_is_killed(tmp_path):
    stubborn = FolderProcess("stubborn", tmp_path)
    stubborn.start([sys.executable, "-uc", "import signal,time; signal.signal(15, signal.SIG_IGN); print('deaf'); time.sleep(600)"])
    _until(lambda: "deaf" in stubborn.log_tail())
    pid = stubborn.pid
    stubborn.stop(patience=0.2)
    with pytest.raises(ProcessLookupError):
        os.kill(pid, 0)


@pytest.mark.skipif(sys.platform != "linux", reason="the kernel's parent-death signal is Linux only")
def test_a_broker_dies_with_the_process_that_started_it(tmp_path):
    program = (
        "import sys, threading, time\nfrom pathlib import Path\nfrom streams.embedded.tansu import TansuBroker\n"
        "broker = TansuBroker(Path(sys.argv[1]))\n"
        "starter = threading.Thread(target=broker.start); starter.start(); starter.join()\n"
        "print(broker.pid, flush=True)\ntime.sleep(600)\n"
    )
    parent = subprocess.Popen([sys.executable, "-c", program, str(tmp_path)], stdout=subprocess.PIPE, text=True)
    assert parent.stdout is not None
    pid = int(parent.stdout.readline())
    os.kill(pid, 0)  # it outlived the thread that started it
    parent.send_signal(signal.SIGKILL)
    parent.wait()
    parent.stdout.close()
    _until(lambda: not _runs(pid))


@pytest.mark.skipif(sys.platform != "linux", reason="the kernel's parent-death signal is Linux only")
def test_an_orphaned_broker_dies_even_while_others_are_connected_to_it(tmp_path):
    """Other commands talk to the broker of a `docdelta dev`. It must not outlive that for them, nor hold its folder."""
    program = (
        "import sys, time\nfrom pathlib import Path\nfrom streams.embedded.tansu import TansuBroker\n"
        "broker = TansuBroker(Path(sys.argv[1])).start()\n"
        "print(broker.pid, broker.bootstrap_servers, flush=True)\ntime.sleep(6000)\n"
    )
    parent = subprocess.Popen([sys.executable, "-c", program, str(tmp_path)], stdout=subprocess.PIPE, text=True)
    assert parent.stdout is not None
    pid, address = parent.stdout.readline().split()
    host, port = address.split(":")
    connections = [socket.create_connection((host, int(port))) for _ in range(3)]
    parent.send_signal(signal.SIGKILL)
    parent.wait()
    parent.stdout.close()
    _until(lambda: not _runs(int(pid)))
    for connection in connections:
        connection.close()
    with TansuBroker(tmp_path) as next_one:
        assert next_one.pid not in (None, int(pid))


def test_an_orphan_that_holds_the_folder_is_named_with_how_to_end_it(tmp_path):
    """As where the kernel sends no signal: the next start finds it."""
    orphan = FolderProcess("tansu", tmp_path)
    orphan.start([sys.executable, "-c", "import time; time.sleep(6000)"])
    try:
        with pytest.raises(NotPrepared, match=rf"where that is gone, kill {orphan.pid};"):
            TansuBroker(tmp_path).start()
    finally:
        orphan.kill()


def test_a_folder_is_filled_once_and_never_seen_half_filled(tmp_path):
    calls = []

    def failing(folder: Path) -> None:
        (folder / "half").write_text("x")
        raise NotPrepared("interrupted")

    def filling(folder: Path) -> None:
        calls.append(folder)
        (folder / "whole").write_text("x")

    target = tmp_path / "entry"
    with pytest.raises(NotPrepared):
        fill_once(target, failing)
    assert list(tmp_path.iterdir()) == []
    assert fill_once(target, filling) == fill_once(target, filling) == target
    assert len(calls) == 1
    assert [file.name for file in target.iterdir()] == ["whole"]


def test_apache_kafka_says_what_is_missing(monkeypatch, tmp_path):
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.delenv("JAVA_HOME", raising=False)
    assert "needs Java 17" in (apache_kafka.available() or "")
    with pytest.raises(NotPrepared, match="apt-get install"):
        apache_kafka.ApacheKafka(tmp_path / "data").start()


def test_an_old_java_is_named(monkeypatch, tmp_path):
    java = tmp_path / "java"
    java.write_text("#!/bin/sh\necho 'openjdk version \"1.8.0_412\"' >&2\n")
    java.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:/bin:/usr/bin")
    monkeypatch.delenv("JAVA_HOME", raising=False)
    assert "found 8" in (apache_kafka.available() or "")


def _until(holds, patience: float = PATIENCE) -> None:
    deadline = time.monotonic() + patience
    while not holds():
        assert time.monotonic() < deadline, "it never came true"
        time.sleep(0.01)


def _runs(pid: int) -> bool:
    """A process that has ended but was not yet reaped by init counts as gone."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[0] != "Z"
    except FileNotFoundError:
        return False
