"""Help teaches what was written: no word of it is lost on its way to the terminal, and every command shows an example."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
import typer

from streams.cli.main import COMMANDS, build
from tests.unit.cli.conftest import Run

WIDE = "1000"


def _commands() -> Iterator[tuple[tuple[str, ...], Any]]:
    """Yield every command and subcommand with the words that name it."""

    def below(words: tuple[str, ...], command: Any) -> Iterator[tuple[tuple[str, ...], Any]]:
        yield words, command
        for name, inner in sorted(getattr(command, "commands", {}).items()):
            yield from below((*words, name), inner)

    yield from below((), typer.main.get_command(build()))


EVERY = dict(_commands())


def _words(text: str) -> set[str]:
    return {bare for word in text.split() if (bare := word.strip("*`"))}


@pytest.mark.parametrize("words", EVERY, ids=" ".join)
def test_no_word_of_the_help_is_lost(words: tuple[str, ...], run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    """A name in brackets is no markup, and batch:ID is no picture."""
    monkeypatch.setenv("COLUMNS", WIDE)
    monkeypatch.setenv("TERMINAL_WIDTH", WIDE)
    found = run(*words, "--help")
    assert found.code == 0
    command = EVERY[words]
    written = [command.help or "", *(getattr(option, "help", "") or "" for option in command.params)]
    shown = _words(found.out)
    assert [word for text in written for word in sorted(_words(text)) if word not in shown] == []


@pytest.mark.parametrize("words", [words for words in EVERY if words], ids=" ".join)
def test_a_command_shows_how_it_is_called(words: tuple[str, ...]) -> None:
    text = EVERY[words].help or ""
    assert f"docdelta {' '.join(words)}" in text or "docdelta --config" in text


def test_all_commands_are_looked_at() -> None:
    assert {words[0] for words in EVERY if words} == {name for _, name, _ in COMMANDS}
