"""normalize(): the one place where text is cleaned before it is counted or hashed.

What goes: byte-order marks, zero-width characters that hide markers, soft hyphens, carriage returns. What stays: everything a
reader sees. Only LF ends a line: form feed, NEL and U+2028 are ordinary characters. NFC and not NFKC, which would turn ，（ into
ASCII and ① into 1.
"""

from __future__ import annotations

import re
import unicodedata

_MARKS = "".join(chr(code) for code in range(0x300, 0x1F000) if unicodedata.combining(chr(code)))
_LONG_MARKS = re.compile(f"[{_MARKS}]{{64,}}")
_SCRIPTS_WITH_MARKS = re.compile(
    "[\u0300-\u036f\u0483-\u0487\u0591-\u1dff\u20d0-\u20f0\u2cef-\u2cf1\u2d7f\u2de0-\u2dff"
    "\u302a-\u302f\u3099\u309a\ua66f-\uabed\ufb1e\ufe20-\ufe2f\U00010000-\U0001efff]"
)
_PLAIN = re.compile(
    "[\x00-\u02ff\u1e00-\u20cf\u2100-\u2ce0\u3000-\u3029\u3030-\u3098\u309b-\ua66e\uac00-\ud7ff\ue000-\ufb00\uff00-\uffff]*+"
)
"""A run of characters that are surely no marks, in wide ranges: matched several times as fast as marks are looked for."""
_HIDDEN = "\ufeff\u200b\u2060\u00ad"
_BLANK = "\x85\xa0\u1680\u2000-\u200a\u2028\u2029\u202f\u205f"
_BARE = f"\x00-\x7f{_BLANK}\u3000-\u3029\u3030-\u303f\u3400-\u4dbf\u4e00-\u9fff\uff01-\uff60"
_IDLE_JOINERS = re.compile(f"(?<![^{_BARE}])[\u200c\u200d]++(?![^{_BARE}])")
_SURROGATES = re.compile("[\ud800-\udfff]")


def normalize(text: str) -> str:
    """Return the text as it is counted, hashed and stored. Idempotent; linear in the length of the text.

    Line ends become LF; BOM, U+200B, U+2060 and soft hyphens go; U+200C and U+200D stay where a script or an emoji needs them
    and go between blanks, ASCII and Chinese characters; NUL and lone surrogates, which no store takes, become U+FFFD.
    """
    if "\r" in text:
        text = text.replace("\r\n", "\n").replace("\r", "\n")
    if text.isascii():
        return text.replace("\x00", "\ufffd")
    if "\x00" in text:
        text = text.replace("\x00", "\ufffd")
    if not _is_encodable(text):
        text = _SURROGATES.sub("\ufffd", text)
    # A search for one character is many times as fast as a pattern, and nearly every text has none of them.
    for hidden in _HIDDEN:
        if hidden in text:
            text = text.replace(hidden, "")
    text = _nfc(text)
    return _IDLE_JOINERS.sub("", text) if "\u200c" in text or "\u200d" in text else text


def _is_encodable(text: str) -> bool:
    """Return whether a text holds no lone surrogates."""
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True


def _nfc(text: str) -> str:
    """Return NFC, except that runs of 64 and more marks are left alone: ordering such a run takes quadratic time."""
    plain = _PLAIN.match(text)
    start = plain.end() if plain else 0
    if start == len(text) or not _SCRIPTS_WITH_MARKS.search(text, start) or not _LONG_MARKS.search(text, start):
        return unicodedata.normalize("NFC", text)
    while True:
        pieces: list[str] = []
        position = 0
        for run in _LONG_MARKS.finditer(text):
            pieces += (unicodedata.normalize("NFC", text[position : run.start()]), run.group())
            position = run.end()
        pieces.append(unicodedata.normalize("NFC", text[position:]))
        done = "".join(pieces)
        if done == text:
            return done
        text = done
