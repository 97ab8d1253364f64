"""Texts for property tests."""

from __future__ import annotations

from chunking.parsers.odd import NotText, refuse_binary


def is_text(text: str) -> bool:
    """Return whether the parsers take it for a text: not too much of it is control characters and the like."""
    try:
        refuse_binary(text)
    except NotText:
        return False
    return True
