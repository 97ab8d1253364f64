"""Cuts that part no grapheme: never inside CRLF, a base and its marks, a ZWJ sequence, a flag, a Hangul or Indic cluster.

Grapheme clusters are those of UAX 29 as the `regex` package knows them.
"""

from __future__ import annotations

import regex

_CLUSTER = regex.compile(r"\X")
_REACH = 64
"""Characters looked back for a place where a cluster surely begins; past it the search goes back to `low`."""


_PLAIN = regex.compile("[ -~\n\u2010-\u2027\u3000-\u3029\u3041-\u3096\u3400-\u9fff\uff01-\uff5e]")
"""Characters that stand alone: between two of them there is always a border."""


def _is_border(text: str, position: int) -> bool:
    return _PLAIN.match(text, position) is not None and _PLAIN.match(text, position - 1) is not None


def cut_before(text: str, position: int, low: int) -> int:
    """Return the last cluster border at or before `position` and above `low`, or `low` if there is none.

    `low` must be a border itself (0, the end of the piece before). Looks at a window, so cost does not grow with the text; a
    cluster longer than the window is walked once from `low`.
    """
    if position <= low or position >= len(text) or _is_border(text, position):
        return position
    start = max(low, position - _REACH)
    while start > low and not _is_border(text, start):
        start = start - 1 if start > position - 2 * _REACH else low
    border = start
    for cluster in _CLUSTER.finditer(text, start):
        if cluster.end() > position:
            break
        border = cluster.end()
    return border


def cut_after(text: str, position: int, low: int) -> int:
    """Return the first cluster border at or after `position`; `low` is a border at or before it."""
    if position >= len(text):
        return len(text)
    border = cut_before(text, position, low)
    while border < position:
        cluster = _CLUSTER.match(text, border)
        if cluster is None:
            return len(text)
        border = cluster.end()
    return border
