"""Claims about failures: one clear line on stderr that names the place, nothing on stdout, the documented exit code, soon."""

from __future__ import annotations

import os
import subprocess
import sys
from importlib import metadata
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from confluent_kafka import KafkaError, KafkaException

from streams.cli.exits import EXIT_CODES, exit_code_of
from streams.cli.main import COMMANDS
from streams.connectors.directory import DirectoryConnector
from streams.embedded.dev_file import dev_file_for, write_dev_file
from streams.errors import InvariantBroken, NotAuthorised, NotPrepared, NotReachable, PoisonRecord, Unavailable, UsageError
from streams.kafka import client
from streams.kafka.client import CONNECT_SECONDS, Reports, in_words
from streams.kafka.waiting import told_by
from streams.settings import KafkaSettings, Settings
from tests.unit.cli.conftest import Run

NOWHERE = "127.0.0.1:1"
"""A port of this machine on which nobody listens."""


@pytest.mark.parametrize(
    ("error", "code"),
    [
        (PoisonRecord("x"), 1),
        (InvariantBroken("x"), 1),
        (UsageError("x"), 2),
        (NotReachable("x"), 3),
        (Unavailable("x"), 3),
        (NotAuthorised("x"), 4),
        (NotPrepared("x"), 5),
        (ZeroDivisionError(), None),
    ],
)
def test_every_family_of_errors_has_its_documented_code(error: Exception, code: int | None) -> None:
    assert exit_code_of(error) == code
    assert code is None or code in EXIT_CODES


def test_the_release_is_told(run: Run) -> None:
    told = run("--version")
    assert (told.code, told.err) == (0, "")
    assert told.out == f"docdelta {metadata.version('docdelta')}\n"


INTERRUPTED_WHILE_IMPORTING = """
import os, signal, sys
signal.signal(signal.SIGINT, signal.default_int_handler)  # tests may run where it is ignored, as in the background of a shell
class Interrupts:
    def find_spec(self, name, path=None, target=None):
        if name == "streams.cli.main":
            os.kill(os.getpid(), signal.SIGINT)
sys.meta_path.insert(0, Interrupts())
sys.argv = ["docdelta", "--version"]
from streams.cli.start import run
run()
"""


def test_ctrl_c_before_anything_is_imported_is_one_word() -> None:
    ended = subprocess.run([sys.executable, "-c", INTERRUPTED_WHILE_IMPORTING], capture_output=True, text=True, check=False)
    assert (ended.returncode, ended.stdout, ended.stderr) == (130, "", "stopped\n")


def test_the_command_starts_where_ctrl_c_is_looked_after() -> None:
    (script,) = metadata.entry_points(group="console_scripts", name="docdelta")
    assert script.value == "streams.cli.start:run"


class AwayAtFirst:
    """A client of a broker that answers at the third time."""

    settings = KafkaSettings(bootstrap_servers=NOWHERE)
    reports = Reports()
    asked = 0

    def poll(self, timeout: float) -> int:
        return 0

    def list_topics(self, timeout: float) -> Any:
        self.asked += 1
        if self.asked < 3:
            raise KafkaException(KafkaError(KafkaError._TRANSPORT))
        return SimpleNamespace(topics={"t": SimpleNamespace(error=None, partitions={0: None})})


def test_who_waits_for_a_broker_is_told_so_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(client, "TOLD_SECONDS", 0.0)
    told: list[str] = []
    with told_by(told.append):
        assert client.cluster_topics(AwayAtFirst(), patience=600) == {"t": 1}  # type: ignore[arg-type]
    assert told == [f"waiting for the broker at {NOWHERE} ..."]
    client.cluster_topics(AwayAtFirst(), patience=600)  # type: ignore[arg-type]
    assert len(told) == 1, "a worker has a log of its own"


def test_ctrl_c_is_one_word(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupted() -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr("streams.cli.status.status", interrupted)
    ended = run("status")
    assert (ended.code, ended.out, ended.err) == (130, "", "stopped\n")


@pytest.mark.parametrize("table", [True, False])
def test_a_full_disk_is_one_line_and_a_closed_pipe_is_no_failure(table: bool, tmp_path: Path) -> None:
    (tmp_path / "page.md").write_text("# A\n\nalpha\n" * 5000, encoding="utf-8")
    command = [sys.executable, "-m", "streams.cli", "parse", "page.md", *([] if table else ["--json"])]
    with Path("/dev/full").open("wb") as full:
        done = subprocess.run(command, cwd=tmp_path, stdout=full, stderr=subprocess.PIPE, text=True, check=False, timeout=600)
    assert (done.returncode, done.stderr) == (1, "docdelta: the output can't be written: No space left on device\n")
    reader, writer = os.pipe()
    os.close(reader)
    with open(writer, "wb") as closed:
        done = subprocess.run(command, cwd=tmp_path, stdout=closed, stderr=subprocess.PIPE, text=True, check=False, timeout=600)
    assert (done.returncode, done.stderr) == (0, "")


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        pytest.param(("chunk", "none.md", "-p", "policy.yaml"), "none.md: no such file", id="missing-file"),
        pytest.param(
            ("rollout", "policy.yaml", "--golden", "policy.yaml"), "policy.yaml: a golden file is", id="golden-before-building"
        ),
        pytest.param(("chunk", "page.md", "-p", "none"), "policy none: no such file", id="missing-policy"),
        pytest.param(("parse", "policy.yaml"), "--media-type", id="no-parser-for-the-name"),
        pytest.param(("parse", "page.md", "--media-type", "image/png"), "image/png", id="no-parser-for-the-type"),
        pytest.param(("chunk",), "Missing argument", id="missing-argument"),
        pytest.param(("chunk", "--bogus"), "--bogus", id="unknown-option"),
        pytest.param(("bogus",), "bogus", id="unknown-command"),
        pytest.param(("put", "page.md"), "--tenant", id="no-tenant"),
        pytest.param(("put", "page.md", "-t", "a/b"), "--tenant 'a/b'", id="tenant-with-a-slash"),
        pytest.param(("put", "page.md", "-t", "a", "--revision", "9007199254740992"), "--revision", id="revision-too-large"),
        pytest.param(("put", "page.md", "page.md", "-t", "a", "--id", "x"), "--id names one document", id="one-id-for-two-files"),
        pytest.param(("put", "page.md", "page.md", "-t", "a"), "document id 'page.md'", id="the-same-file-twice"),
        pytest.param(("delete", " ", "-t", "a"), "--id ' '", id="blank-document-id"),
        pytest.param(("sync", "none", "-t", "a"), "none is no folder", id="missing-folder"),
        pytest.param(("search", " ", "-t", "a"), "the query is blank", id="blank-query"),
        pytest.param(("search", "x", "-t", "a", "-k", "0"), "-k 0", id="no-hits-asked-for"),
        pytest.param(
            ("--config", "none.toml", "put", "page.md", "-t", "a"), "none.toml does not exist", id="missing-settings-file"
        ),
    ],
)
def test_wrong_use_ends_with_2_and_one_line_that_says_what(run: Run, arguments: tuple[str, ...], words: str) -> None:
    ran = run(*arguments)
    assert ran.code == 2
    assert ran.out == ""
    assert ran.err.startswith("docdelta: ")
    assert len(ran.err.splitlines()) == 1
    assert words in ran.err


@pytest.mark.parametrize(
    ("text", "words"),
    [
        pytest.param("name: try\nversion: 1\nlimits:\n  max_tokens: x\n", "bad.yaml:4: limits.max_tokens:", id="wrong-type"),
        pytest.param("name: try\nversion: 1\n\nlimit: {}\n", "bad.yaml:4: limit: unknown key", id="misspelt-key"),
        pytest.param("name: try\nversion: 1\nrules: [\n", "bad.yaml:4: not YAML", id="not-yaml"),
        pytest.param("- a\n", "bad.yaml: a policy is a mapping", id="a-list"),
    ],
)
def test_a_bad_policy_is_refused_with_file_line_and_field(run: Run, text: str, words: str) -> None:
    Path("bad.yaml").write_text(text)
    ran = run("chunk", "page.md", "-p", "bad.yaml")
    assert ran.code == 2
    assert words in ran.err


@pytest.mark.parametrize(
    ("name", "value", "words"),
    [
        ("DOCDELTA_KAFKA__PARTITIONS", "many", "kafka.partitions"),
        ("DOCDELTA_KAFKA__BOOTSTRAP", "x", "DOCDELTA_KAFKA__BOOTSTRAP"),
        ("DOCDELTA_QDRANT__ALIAS", "a b", "qdrant.alias"),
    ],
)
def test_a_wrong_setting_is_named(run: Run, monkeypatch: pytest.MonkeyPatch, name: str, value: str, words: str) -> None:
    monkeypatch.setenv(name, value)
    ran = run("delete", "x", "-t", "a")
    assert (ran.code, ran.out) == (2, "")
    assert words in ran.err


@pytest.mark.parametrize(
    "arguments",
    [
        ("put", "page.md", "-t", "a"),
        ("worker",),
    ],
)
@pytest.mark.parametrize("servers", [NOWHERE])
def test_a_broker_that_can_not_be_reached_ends_with_3_within_ten_seconds(
    run: Run, monkeypatch: pytest.MonkeyPatch, arguments: tuple[str, ...], servers: str
) -> None:
    monkeypatch.setenv("DOCDELTA_KAFKA__BOOTSTRAP_SERVERS", servers)
    ran = run(*arguments)
    assert CONNECT_SECONDS < 10
    assert (ran.code, ran.out) == (3, "")
    waits, why = ran.err.splitlines()
    assert waits == f"waiting for the broker at {servers} ..."
    assert servers in why


def test_where_no_broker_is_named_and_none_answers_the_ways_to_one_are_told() -> None:
    for servers, advised in ((KafkaSettings().bootstrap_servers, True), (NOWHERE, False)):
        client: Any = SimpleNamespace(
            settings=KafkaSettings(bootstrap_servers=servers),
            reports=SimpleNamespace(refusal=lambda: None, cause=lambda: "connection refused"),
        )
        told = in_words(KafkaError(KafkaError._ALL_BROKERS_DOWN), client)
        assert isinstance(told, NotReachable)
        assert ("docdelta dev" in str(told)) is advised


def test_a_sync_that_could_not_reach_the_broker_sends_everything_next_time(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DOCDELTA_KAFKA__BOOTSTRAP_SERVERS", NOWHERE)
    assert run("sync", ".", "-t", "a").code == 3
    plan = run("sync", ".", "-t", "a", "--dry-run", "--json").json
    assert [each["document_id"] for each in plan["planned"]] == ["page.md"]


def test_a_search_without_an_index_says_how_to_get_one(run: Run) -> None:
    ran = run("search", "x", "-t", "a")
    assert ran.code == 5
    assert "docdelta dev" in ran.err


def test_a_document_that_can_not_be_read_ends_with_1(run: Run) -> None:
    Path("long.md").write_text("word " * 400)
    Path("tight.yaml").write_text(
        "name: tight\nversion: 1\nlimits: {max_tokens: 16, tokenizer: characters, max_chunks: 1}\nrules:\n  - use: structure\n"
    )
    ran = run("chunk", "long.md", "-p", "tight.yaml")
    assert ran.code == 1
    assert "limits.max_chunks 1" in ran.err


def test_help_names_every_command_and_every_exit_code(run: Run) -> None:
    ran = run("--help")
    assert ran.code == 0
    assert all(name in ran.out for _, name, _ in COMMANDS)
    assert all(str(code) in ran.out for code in EXIT_CODES)


@pytest.mark.parametrize("command", [name for _, name, _ in COMMANDS])
def test_the_help_of_every_command_teaches_by_example(run: Run, command: str) -> None:
    ran = run(command, "--help") if command != "topics" else run("topics", "apply", "--help")
    assert ran.code == 0
    assert "Example:" in ran.out


def test_no_arguments_show_the_help(run: Run) -> None:
    ran = run()
    assert ran.code == 0
    assert "Usage:" in ran.out


def test_the_installed_script_ends_with_the_code_of_its_command(tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-m", "streams.cli", "parse", "none.md"], cwd=tmp_path, capture_output=True, text=True, check=False
    )
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr == "docdelta: none.md: no such file\n"


def test_a_reader_that_stops_reading_is_no_error(tmp_path: Path) -> None:
    (tmp_path / "page.md").write_text("# x\n\n" + "word\n\n" * 20_000)
    command = f"{sys.executable} -m streams.cli parse page.md --json | head -c 10; exit ${{PIPESTATUS[0]}}"
    done = subprocess.run(["bash", "-c", command], cwd=tmp_path, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (0, "")


def test_a_second_dev_of_a_folder_says_that_one_runs(run: Run) -> None:
    Path("site").mkdir()
    settings = Settings()
    write_dev_file(dev_file_for(settings, qdrant_url="http://127.0.0.1:1", folder=DirectoryConnector(Path("site"), "demo").root))
    found = run("dev", "site")
    assert found.code == 2
    assert f"keeps site in sync already (process {os.getpid()})" in found.err
