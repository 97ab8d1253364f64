"""A command imports what it needs and no more: names of modules, looked at when it has ended, not seconds."""

from __future__ import annotations

import importlib.util
import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

MODELS = {"fastembed", "onnxruntime", "tokenizers", "huggingface_hub", "rjieba"}
INDEX = {"qdrant_client", "grpc", "httpx"}
STREAM = {"faust", "aiokafka", "rocksdict"}
BROKER = {"confluent_kafka"}
CUTTING = {"numpy", "tiktoken", "markdown_it", "selectolax"}
HEAVY = MODELS | INDEX | STREAM | BROKER | CUTTING

RUN = """
import json, sys
from streams.cli.main import main
try:
    code = main(sys.argv[2:])
except SystemExit as end:
    code = end.code
json.dump({"code": code, "modules": sorted({name.partition(".")[0] for name in sys.modules})}, open(sys.argv[1], "w"))
"""

CASES: dict[str, tuple[tuple[str, ...], int, set[str]]] = {
    # words, exit code (nobody answers at broker and index), what of HEAVY must not be there
    "help": (("--help",), 0, MODELS | INDEX | STREAM),
    "put": (("put", "page.md", "--tenant", "acme"), 3, HEAVY - BROKER),
    "put-without-a-tenant": (("put", "page.md"), 2, HEAVY),
    "sync": (("sync", "site", "--tenant", "acme", "--dry-run"), 0, HEAVY),
    "status": (("status",), 3, MODELS | INDEX | STREAM),
    "why": (("why", "acme/page"), 3, MODELS | STREAM),
    "search": (("search", "a question", "--tenant", "acme"), 3, MODELS | STREAM | BROKER),
    "search-with-a-wrong-option": (("search", "a question", "--tenant", "acme", "-k", "0"), 2, HEAVY - CUTTING),
    "chunk": (("chunk", "page.md"), 0, MODELS | INDEX | STREAM | BROKER),
    "parse": (("parse", "page.md"), 0, MODELS | INDEX | STREAM | BROKER),
    "policy": (("policy", "lint", "default"), 0, MODELS | INDEX | STREAM | BROKER),
    "worker-with-a-wrong-option": (("worker", "--only", "nothing"), 2, MODELS | INDEX | STREAM),
}


@pytest.fixture(scope="module")
def ended(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, tuple[int, set[str]]]]:
    """Every case, in a process of its own, beside each other: most of their time they wait for a broker that is not there."""
    folder = tmp_path_factory.mktemp("start-up")
    (folder / "page.md").write_text("# A page\n\nWith a sentence.\n", encoding="utf-8")
    (folder / "site").mkdir()
    (folder / "site" / "page.md").write_text("# A page\n", encoding="utf-8")
    nobody = {"DOCDELTA_KAFKA__BOOTSTRAP_SERVERS": "127.0.0.1:1", "DOCDELTA_QDRANT__URL": "http://127.0.0.1:1"}
    environment = {name: value for name, value in os.environ.items() if not name.startswith("DOCDELTA_")} | nobody
    running = {
        name: subprocess.Popen(
            [sys.executable, "-c", RUN, str(folder / f"{name}.json"), *words],
            cwd=folder,
            env=environment,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
        for name, (words, _, _) in CASES.items()
    }
    try:
        for process in running.values():
            process.wait(timeout=300)
        yield {name: _read(folder / f"{name}.json") for name in CASES}
    finally:
        for process in running.values():
            process.kill()
            process.wait()


def _read(path: Path) -> tuple[int, set[str]]:
    found = json.loads(path.read_text(encoding="utf-8"))
    return found["code"], set(found["modules"])


@pytest.mark.parametrize("name", CASES)
def test_a_command_leaves_out_what_it_does_not_need(name: str, ended: dict[str, tuple[int, set[str]]]) -> None:
    _, code, not_needed = CASES[name]
    came_to, modules = ended[name]
    assert came_to == code
    assert sorted(modules & not_needed) == []


def test_what_is_left_out_is_installed() -> None:
    """Else the test above could not fail."""
    assert sorted(name for name in HEAVY if name not in sys.modules and importlib.util.find_spec(name) is None) == []
