"""Claims about the dev file: other commands use a running `docdelta dev`, never a dead one, never against explicit settings."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from streams.cli.options import Invocation
from streams.cli.sending import tenant_of
from streams.embedded.dev_file import DevFile, dev_file_for, read_dev_file, remove_dev_file, with_dev_file, write_dev_file
from streams.errors import UsageError
from streams.settings import KafkaSettings, Settings, load_settings


@pytest.fixture
def path(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    for name in [name for name in os.environ if name.startswith("DOCDELTA_")]:
        monkeypatch.delenv(name)
    monkeypatch.chdir(tmp_path)
    return tmp_path / ".docdelta" / "dev.json"


def served() -> DevFile:
    kafka = KafkaSettings(bootstrap_servers="127.0.0.1:5001", partitions=3, single_record_batches=True)
    return dev_file_for(Settings(kafka=kafka), qdrant_url="http://127.0.0.1:5002", tenant="demo")


def test_what_is_written_reads_back_while_the_process_runs(path: Path) -> None:
    write_dev_file(served(), path)
    assert read_dev_file(path) == served().model_copy(update={"started_at": read_dev_file(path).started_at})  # type: ignore[union-attr]
    assert path.stat().st_mode & 0o077 == 0


def test_settings_that_name_neither_broker_nor_index_are_pointed_at_it(path: Path) -> None:
    write_dev_file(served(), path)
    settings = with_dev_file(load_settings(), path)
    assert settings.kafka.bootstrap_servers == "127.0.0.1:5001"
    assert (settings.kafka.partitions, settings.kafka.single_record_batches) == (3, True)
    assert settings.qdrant.url == "http://127.0.0.1:5002"


@pytest.mark.parametrize(
    ("name", "value"),
    [("DOCDELTA_KAFKA__BOOTSTRAP_SERVERS", "broker:9092"), ("DOCDELTA_QDRANT__URL", "http://q"), ("DOCDELTA_QDRANT__PATH", "q")],
)
def test_explicit_settings_come_first(path: Path, monkeypatch: pytest.MonkeyPatch, name: str, value: str) -> None:
    write_dev_file(served(), path)
    monkeypatch.setenv(name, value)
    settings = load_settings()
    assert with_dev_file(settings, path) is settings


def test_the_file_of_a_process_that_is_gone_is_not_used(path: Path) -> None:
    gone = subprocess.Popen([sys.executable, "-c", ""])
    gone.wait()
    write_dev_file(served().model_copy(update={"pid": gone.pid, "process_start": ""}), path)
    assert read_dev_file(path) is None
    settings = load_settings()
    assert with_dev_file(settings, path) is settings


@pytest.mark.skipif(not Path("/proc/self/stat").exists(), reason="needs /proc to tell a process from a later one with its pid")
def test_a_later_process_with_the_same_pid_is_not_taken_for_it(path: Path) -> None:
    write_dev_file(served().model_copy(update={"process_start": "1"}), path)
    assert read_dev_file(path) is None


@pytest.mark.parametrize("text", ["", "{", '{"pid": 1}'])
def test_a_damaged_file_counts_as_none(path: Path, text: str) -> None:
    path.parent.mkdir()
    path.write_text(text)
    assert read_dev_file(path) is None
    remove_dev_file(path)
    assert path.exists()


def test_only_its_writer_removes_it(path: Path) -> None:
    write_dev_file(served().model_copy(update={"pid": os.getppid()}), path)
    remove_dev_file(path)
    assert path.exists()
    write_dev_file(served(), path)
    remove_dev_file(path)
    assert not path.exists()


def test_a_command_takes_the_tenant_of_the_dev_it_talks_to_and_of_no_other(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write_dev_file(served())
    assert tenant_of("", Invocation()) == "demo"
    assert tenant_of("acme", Invocation()) == "acme"
    monkeypatch.setenv("DOCDELTA_KAFKA__BOOTSTRAP_SERVERS", "broker:9092")
    with pytest.raises(UsageError, match="--tenant"):
        tenant_of("", Invocation())
