"""The README names what there is: every setting, every command, every exit code."""

from __future__ import annotations

from pathlib import Path

import pytest
from pydantic import BaseModel

from streams.cli.main import COMMANDS
from streams.settings import Settings

ROOT = Path(__file__).parents[3]
README = (ROOT / "README.md").read_text(encoding="utf-8")


def _setting_names() -> list[str]:
    names = []
    for part, field in Settings.model_fields.items():
        model = field.annotation
        if isinstance(model, type) and issubclass(model, BaseModel):
            names += [f"DOCDELTA_{part}__{name}".upper() for name in model.model_fields]
        else:
            names.append(f"DOCDELTA_{part}".upper())
    return names


@pytest.mark.parametrize("name", _setting_names())
def test_every_setting_is_in_the_table(name: str) -> None:
    assert f"`{name}`" in README


@pytest.mark.parametrize("command", sorted(name for _, name, _ in COMMANDS))
def test_every_command_is_named(command: str) -> None:
    assert f"`{command}" in README or f"docdelta {command}" in README


def test_both_readmes_show_the_two_commands() -> None:
    for name in ("README.md", "README.zh-CN.md"):
        text = (ROOT / name).read_text(encoding="utf-8")
        assert "make demo" in text
        assert "make test" in text
