"""A command run in this process, in a folder of its own, with no settings around it."""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from streams.cli.main import main

POLICY = "name: try\nversion: 1\nlimits: {max_tokens: 120, tokenizer: characters}\nrules:\n  - use: structure\n"
PAGE = "# Refunds\n\nWe refund within 14 days.\n\n## 退款政策\n\n退款将在十四天内到账。\n\n## Contact\n\nWrite to us.\n"


@dataclass(frozen=True)
class Ran:
    """What a command left: exit code, results, messages."""

    code: int
    out: str
    err: str

    @property
    def json(self) -> Any:
        """The one JSON value on stdout."""
        return json.loads(self.out)

    @property
    def lines(self) -> list[Any]:
        """The JSON value on each line of stdout."""
        return [json.loads(line) for line in self.out.splitlines()]


Run = Callable[..., Ran]


@pytest.fixture
def run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Run:
    """Run a command in an empty folder that holds `policy.yaml` and `page.md`."""
    for name in [name for name in os.environ if name.startswith("DOCDELTA_")]:
        monkeypatch.delenv(name)
    monkeypatch.delenv("COLUMNS", raising=False)  # a runner's own width would narrow the tables
    monkeypatch.chdir(tmp_path)
    Path("policy.yaml").write_text(POLICY, encoding="utf-8")
    Path("page.md").write_text(PAGE, encoding="utf-8")

    def command(*arguments: str) -> Ran:
        code = main(list(arguments))
        captured = capsys.readouterr()
        return Ran(code, captured.out, captured.err)

    return command
