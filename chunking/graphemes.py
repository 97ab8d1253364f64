"""Cuts that part no grapheme: never inside CRLF, a base and its marks, a ZWJ sequence, a flag, a Hangul or Indic cluster.

Grapheme clusters are those of UAX 29 as the `regex` package knows them, up to LONGEST code points: marks past that are no
writing but noise (UAX 15's stream-safe format allows 30 in a row), and may be parted.
"""

from __future__ import annotations

import regex

LONGEST = 512
"""Code points of a cluster that is surely left whole."""

_CLUSTER = regex.compile(r"\X")
_REACH = 64
_PLAIN = regex.compile("[ -~\n\u2010-\u2027\u3000-\u3029\u3041-\u3096\u3400-\u9fff\uff01-\uff5e]")
"""Characters that stand alone: between two of them there is always a border."""


def _is_border(text: str, position: int) -> bool:
    return _PLAIN.match(text, position) is not None and _PLAIN.match(text, position - 1) is not None


def cut_before(text: str, position: int, low: int) -> int:
    """Return the last cluster border at or before `position` and above `low`, or `low` if there is none.

    `low` must be a border itself (0, or the end of the piece before). Looks at a window around the cut, at most back to `low`.
    """
    if position <= low or position >= len(text) or _is_border(text, position):
        return position
    start = position - 1
    lowest = max(low, position - _REACH)
    while start > lowest and not _is_border(text, start):
        start -= 1
    if start <= lowest:
        start = low
    # A slice, since the pattern looks back over a run of flags or joiners as far as the string goes.
    window = text[start : position + 1]
    border = 0
    for cluster in _CLUSTER.finditer(window):
        if cluster.end() > position - start:
            break
        border = cluster.end()
    return start + border


def cut_after(text: str, position: int, low: int) -> int:
    """Return the first cluster border at or after `position`, or `position` itself inside a cluster of over LONGEST code points.

    `low` must be a border at or before `position`.
    """
    if position >= len(text):
        return len(text)
    border = cut_before(text, position, low)
    if border == position:
        return position
    reach = _REACH
    while reach <= LONGEST:
        cluster = _CLUSTER.match(text[border : border + reach])
        if cluster is not None and (cluster.end() < reach or border + reach >= len(text)):
            return max(position, border + cluster.end())
        reach *= 2
    return position
