"""TokenCounter: counts tokens of text by a named tokenizer. Counting a long unbroken run never takes quadratic time."""

from __future__ import annotations

from typing import Protocol


class TokenCounter(Protocol):
    """Counts tokens. `name` enters the policy fingerprint through `limits.tokenizer`."""

    name: str

    def count(self, text: str) -> int:
        """Return the number of tokens of `text`; never raises for any text, special token literals included."""
        ...

    def count_many(self, texts: list[str]) -> list[int]:
        """Return the number of tokens of each text."""
        ...
