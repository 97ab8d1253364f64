"""Claims about the commands that talk to a broker, on each broker: from nothing to documents that wait for a worker."""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from schemas.codec import decode
from schemas.document_change import DocumentChange
from streams.cli.main import main
from streams.kafka.read import read_topic
from streams.settings import KafkaSettings
from streams.topics import TopicNames, batch_topics, shared_topics

POLICY = "name: try\nversion: 1\nlimits: {tokenizer: characters}\nrules:\n  - use: structure\n"
Command = Callable[..., tuple[int, str, str]]


@pytest.fixture
def kafka(any_broker: KafkaSettings, fresh: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> KafkaSettings:
    """A broker with topics of its own for this test, named by the environment; an index in a folder; an empty current folder."""
    for name in [name for name in os.environ if name.startswith("DOCDELTA_")]:
        monkeypatch.delenv(name)
    settings = any_broker.model_copy(update={"topic_prefix": fresh, "partitions": 2})
    monkeypatch.setenv("DOCDELTA_KAFKA__BOOTSTRAP_SERVERS", settings.bootstrap_servers)
    monkeypatch.setenv("DOCDELTA_KAFKA__TOPIC_PREFIX", fresh)
    monkeypatch.setenv("DOCDELTA_KAFKA__PARTITIONS", "2")
    monkeypatch.setenv("DOCDELTA_KAFKA__SINGLE_RECORD_BATCHES", str(settings.single_record_batches).lower())
    monkeypatch.setenv("DOCDELTA_QDRANT__PATH", str(tmp_path / "index"))
    monkeypatch.chdir(tmp_path)
    Path("policy.yaml").write_text(POLICY)
    Path("site").mkdir()
    Path("site/a.md").write_text("# A\n\nalpha\n")
    Path("site/政策.md").write_text("# 政策\n\n退款\n", encoding="utf-8")
    return settings


@pytest.fixture
def run(kafka: KafkaSettings, capsys: pytest.CaptureFixture[str]) -> Command:
    def command(*arguments: str) -> tuple[int, str, str]:
        code = main(list(arguments))
        captured = capsys.readouterr()
        return code, captured.out, captured.err

    return command


def answer(ran: tuple[int, str, str]) -> Any:
    return json.loads(ran[1])


def events(kafka: KafkaSettings) -> list[DocumentChange]:
    return [decode(record.value, DocumentChange) for record in read_topic(kafka, f"{kafka.topic_prefix}.documents") if record.value]


def test_before_anything_is_prepared_each_command_says_what_to_run(run: Command) -> None:
    for command in (("put", "site/a.md", "-t", "acme"), ("status",), ("why", "a.md", "-t", "acme")):
        code, out, err = run(*command)
        assert (code, out) == (5, "")
        assert "docdelta init" in err
    assert run("topics", "describe")[0] == 1


def test_init_prepares_an_installation_and_may_be_run_again(run: Command) -> None:
    code, out, err = run("init", "--policy", "policy.yaml")
    assert code == 0
    needed = [*shared_topics(TopicNames("x"), 2), *batch_topics(TopicNames("x"), "b", 2)]
    assert out.count("created ") == len(needed)
    assert "becomes the first one" in err
    code, out, err = run("init", "--policy", "policy.yaml")
    assert (code, out) == (0, "")
    assert "already active" in err
    described = run("topics", "describe", "--json")
    assert described[0] == 0
    assert {row["state"] for row in answer(described)} == {"ok"}


def test_init_refuses_other_content_under_the_same_version_and_shows_the_difference(run: Command) -> None:
    run("init", "--policy", "policy.yaml")
    Path("policy.yaml").write_text(POLICY.replace("characters", "characters, max_tokens: 99"))
    code, out, err = run("init", "--policy", "policy.yaml")
    assert (code, out) == (5, "")
    assert "+limits: {tokenizer: characters, max_tokens: 99}" in err


def test_topics_that_differ_are_refused_by_name(run: Command, monkeypatch: pytest.MonkeyPatch, kafka: KafkaSettings) -> None:
    assert run("topics", "apply")[0] == 0
    monkeypatch.setenv("DOCDELTA_KAFKA__PARTITIONS", "3")
    code, _, err = run("topics", "apply")
    assert code == 5
    assert f"{kafka.topic_prefix}.documents: partitions is 2, must be 3" in err
    described = run("topics", "describe", "--json")
    assert described[0] == 1
    assert {row["state"] for row in answer(described)} == {"differs", "ok"}


def test_put_delete_and_sync_send_what_they_say(run: Command, kafka: KafkaSettings) -> None:
    run("init", "--policy", "policy.yaml")
    assert run("put", "site/a.md", "-t", "acme", "--id", "x", "--revision", "5", "--title", "标题", "--label", "l")[0] == 0
    assert run("delete", "x", "-t", "acme", "--revision", "6")[0] == 0
    assert run("sync", "site", "-t", "acme")[0] == 0
    assert run("sync", "site", "-t", "acme")[1] == ""
    sent = events(kafka)
    ordered = [(change.op, change.revision, change.title, change.labels) for change in sent if change.document_id == "x"]
    assert ordered == [("upsert", 5, "标题", ("l",)), ("delete", 6, "", ())]
    assert sorted(change.document_id for change in sent) == ["a.md", "x", "x", "政策.md"]
    assert len({change.event_id for change in sent}) == 4


def test_status_and_why_tell_what_waits(run: Command) -> None:
    run("init", "--policy", "policy.yaml")
    run("sync", "site", "-t", "acme")
    ran = run("status", "--json")
    assert ran[0] == 0
    status = answer(ran)
    assert status["lag"] == 2
    assert status["oldest_unsynced"]["document_id"] in ("a.md", "政策.md")
    assert [(batch["state"], batch["documents"], batch["chunks"], batch["served"]) for batch in status["batches"]] == [
        ("active", 0, 0, False)
    ]
    assert status["dead_letters"] == 0
    told = {each["kind"]: each["command"] for each in status["troubles"]}
    assert told["alias_missing"] == "docdelta worker", "as the page says of the same state"
    assert any("inside of workers" in line for line in status["unseen"])
    ran = run("why", "政策.md", "-t", "acme", "--json")
    assert ran[0] == 0
    assert answer(ran)["state"] == "waiting"
    ran = run("why", "政策.md", "-t", "other", "--json")
    assert (ran[0], answer(ran)["state"]) == (1, "unknown")
