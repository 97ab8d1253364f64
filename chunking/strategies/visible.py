"""What can be seen: blank and worthless stretches, and spans without the blanks at their ends."""

from __future__ import annotations

import regex

from chunking.document import Span
from chunking.quick import quick

_VISIBLE = regex.compile(r"[^\s\p{Cf}\p{Cc}]")
_RULE = regex.compile(r"[\s\p{Cf}]*+(?:[*_=~—–-][\s\p{Cf}]*+){3,200}")

_span = quick(Span)


def is_blank(text: str, start: int = 0, end: int | None = None) -> bool:
    """Return whether nothing can be seen in text[start:end]: only blanks, zero-width and control characters."""
    end = len(text) if end is None else end
    if start >= end:
        return True
    first = text[start]
    return not ("!" <= first <= "~" or first.isalnum()) and _VISIBLE.search(text, start, end) is None


def is_worthless(text: str) -> bool:
    """Return whether `text` is blank or no more than a rule (---, ***)."""
    return _RULE.fullmatch(text) is not None or is_blank(text)


def trimmed(text: str, start: int, end: int) -> Span:
    """Return text[start:end] without blank lines before it and blanks behind it; the first line keeps its indentation."""
    body = text[start:end]
    tail = len(body.rstrip())
    if tail and not body[0].isspace():
        return _span(start, start + tail)
    lead = len(body) - len(body.lstrip())
    if lead >= tail:
        return Span(start, start)
    return Span(start + body.rfind("\n", 0, lead) + 1, start + tail)
