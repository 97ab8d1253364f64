"""refuse_binary(): what is no text is refused: a picture or an archive under a text's name, a file that a conversion spoilt.

Odd are control characters (tab, line ends and page feeds are not), replacement characters, noncharacters and lone surrogates.
Proper texts have none or a few: a stray escape, a name that a conversion spoilt. What a terminal showed in colours has many: an
escape before "[" does not count.
"""

from __future__ import annotations

import re

_ODD = re.compile("[\x00-\x08\x0e-\x1a\x1c-\x1f\x7f-\x84\x86-\x9f\ud800-\udfff\ufdd0-\ufdef\ufffd-\uffff]|\x1b(?!\\[)")
_ORDINARY = re.compile("[\t-\r -~\x85\xa0-\ud7ff\ue000-\ufdcf\ufdf0-\ufffc\U00010000-\U0010ffff]*+")
FEW = 3
"""Odd characters that any text may hold."""
MOST = 10
"""One odd character in so many is too much."""


class NotText(ValueError):
    """The characters are not those of a text. The message says where they begin and what to do."""


def refuse_binary(text: str) -> None:
    """Raise NotText where more than FEW characters and more than one in MOST, blanks not counted, are odd."""
    ordinary = _ORDINARY.match(text)
    first = ordinary.end() if ordinary else 0
    if first == len(text):
        return
    odd = sum(1 for _ in _ODD.finditer(text, first))
    shown = max(odd, len("".join(text.split())))
    if odd <= FEW or odd * MOST <= shown:
        return
    line = text.count("\n", 0, first) + 1
    raise NotText(
        f"not a text: {odd} of {shown} characters are control or replacement characters, the first at line {line}, character "
        f"{first}: is it a picture, an archive or a program under a text's name? send a text, with its charset declared "
        "(media type parameter charset=...) or saved as UTF-8"
    )
