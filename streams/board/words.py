"""The page's words, for commands: a red state says the same in a terminal as on the page."""

from __future__ import annotations

import json
from functools import cache
from importlib import resources

from streams.board.troubles import Trouble


def in_words(trouble: Trouble) -> tuple[str, str]:
    """Return the cause and what to do, in English. `command` of the trouble is what to type for it, where there is something."""
    words = _words()
    facts = {name: f"{value:,}" if isinstance(value, int) else str(value) for name, value in trouble.facts.items()}
    if (line := words.get(f"gate.{facts.get('line', '')}")) is not None:
        facts["line"] = line
    key = f"trouble.{trouble.kind}"
    return _filled(words[key], facts), _filled(words[f"{key}.do"], facts)


def _filled(text: str, facts: dict[str, str]) -> str:
    for name, value in facts.items():
        text = text.replace(f"{{{name}}}", value)
    return text


@cache
def _words() -> dict[str, str]:
    text = resources.files("streams.board").joinpath("page", "words.json").read_text(encoding="utf-8")
    return {key: each["en"] for key, each in json.loads(text).items()}
