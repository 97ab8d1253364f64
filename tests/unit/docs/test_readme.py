"""The README names what there is: every setting, every command, every exit code."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from pydantic import BaseModel

from streams.cli.exits import EXIT_CODES
from streams.cli.main import COMMANDS
from streams.settings import Settings

ROOT = Path(__file__).parents[3]
BOTH = {name: (ROOT / name).read_text(encoding="utf-8") for name in ("README.md", "README.zh-CN.md")}
README, CHINESE = BOTH.values()


def _setting_names() -> list[str]:
    names = []
    for part, field in Settings.model_fields.items():
        model = field.annotation
        if isinstance(model, type) and issubclass(model, BaseModel):
            names += [f"DOCDELTA_{part}__{name}".upper() for name in model.model_fields]
        else:
            names.append(f"DOCDELTA_{part}".upper())
    return names


@pytest.mark.parametrize("readme", BOTH)
@pytest.mark.parametrize("name", _setting_names())
def test_every_setting_is_in_the_table(name: str, readme: str) -> None:
    assert f"`{name}`" in BOTH[readme]


@pytest.mark.parametrize("readme", BOTH)
@pytest.mark.parametrize("command", sorted(name for _, name, _ in COMMANDS))
def test_every_command_is_named(command: str, readme: str) -> None:
    assert f"`{command}" in BOTH[readme] or f"docdelta {command}" in BOTH[readme]


def test_both_readmes_show_the_two_commands() -> None:
    for text in BOTH.values():
        assert "make demo" in text
        assert "make test" in text


def test_both_readmes_have_the_same_sections_tables_and_examples() -> None:
    assert _shape(README) == _shape(CHINESE)


def test_both_readmes_name_the_same_settings_in_the_same_order_with_the_same_figures() -> None:
    assert _settings_told(README) == _settings_told(CHINESE)


def test_both_readmes_list_the_same_commands_and_exit_codes() -> None:
    listed = [[line.split(" | ")[0] for line in text.splitlines() if re.match(r"\| `[a-z]", line)] for text in BOTH.values()]
    assert listed[0] == listed[1]
    codes = [re.findall(r"\d+", _line(text, start)) for text, start in ((README, "Exit codes: "), (CHINESE, "退出码："))]
    assert codes[0] == codes[1] == [str(code) for code in EXIT_CODES]


def _line(text: str, start: str) -> str:
    """Return the paragraph that begins so, on one line."""
    return " ".join(text[text.index(start) :].split("\n\n")[0].split("\n"))


def _shape(text: str) -> list[str]:
    """Return a text's headings by level and its fenced examples by language, in order."""
    return re.findall(r"^(#{1,3}|```\w*)(?:\s|$)", text, flags=re.MULTILINE)


def _settings_told(text: str) -> list[tuple[list[str], list[str]]]:
    """Return variables and the figures or words in code of each row's default."""
    rows = [line.strip("|").split("|") for line in text.splitlines() if line.startswith("| `DOCDELTA_")]
    return [(re.findall(r"`(\w+)`", row[0]), re.findall(r"`[^`]+`|\d+", row[1])) for row in rows]
