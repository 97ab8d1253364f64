"""Inputs for the campaign: seeds (the sample site, the shared corpus, nasty pieces) and what a seed number makes of them.

`Inputs(number)` is fully determined by the number and the seed files, so a finding is repeated by naming its target and number.
"""

from __future__ import annotations

import codecs
import functools
import random
from pathlib import Path

from chunking.charset import decode

ROOT = Path(__file__).resolve().parents[2]
SEED_FOLDERS = (ROOT / "deploy/sample-site", ROOT / "../shared/corpus")
"""The second one is there on some machines only."""
TYPES = {".md": "text/markdown", ".html": "text/html", ".txt": "text/plain"}
PIECE = 3_000
"""Characters of a seed that one input is made of, at most: most faults show in small inputs, and small ones are cheap."""

MARKUP = (
    *(
        "<table>",
        "<tr>",
        "<td rowspan=100000>",
        "<td colspan=100000>",
        "<td rowspan=0 colspan=-1>",
        "</td>",
        "</table>",
        "<th>",
        "<caption>",
    ),
    *(
        "<div>",
        "</div>",
        "<ul>",
        "<li>",
        "</ul>",
        "<ol start=99999999999>",
        "<blockquote>",
        "<pre>",
        "</pre>",
        "<code>",
        "<svg>",
        "<math>",
    ),
    *(
        "<!--",
        "-->",
        "<![CDATA[",
        "]]>",
        "<!DOCTYPE x [<!ENTITY a '&b;&b;'><!ENTITY b '&a;'>]>",
        "&a;",
        "&lt;",
        "&#0;",
        "&#x110000;",
    ),
    *(
        "<?xml version='1.0' encoding='utf-16'?>",
        "<meta charset=gbk>",
        "<meta charset=utf-7>",
        "<script>",
        "<template>",
        "<select>",
    ),
    *(
        "<p",
        "</",
        "<h1>",
        "<h6>",
        "</h9>",
        "<body>",
        "<html>",
        "<frameset>",
        "<plaintext>",
        "<textarea>",
        "<img alt='",
        "<details hidden>",
    ),
)
MARKDOWN = (
    *(
        "# ",
        "###### ",
        "\n===\n",
        "\n---\n",
        "\n***\n",
        "- ",
        "  - ",
        "\t",
        "1. ",
        "999999999. ",
        "> ",
        ">>>> ",
        "```",
        "~~~",
        "````md\n",
    ),
    *(
        "|",
        "|-|-|\n",
        "\n| a | b |\n|---|:-:|\n",
        "\\|",
        "[",
        "](",
        ")",
        "![",
        "[^1]",
        "[^1]: ",
        "<http://x>",
        "**",
        "__",
        "*",
        "_",
        "`",
        "\\",
    ),
    *(":::", "$$", "{{", "<!-- ", "\n\n", "  \n", "\n    ", "---\ntitle: x\n---\n", "---\n- [\n", "&amp;"),
)
LETTERS = (
    *(
        "\u202e",
        "\u202d",
        "\u2066",
        "\u2069",
        "\u200b",
        "\u200c",
        "\u200d",
        "\u2060",
        "\ufeff",
        "\u00ad",
        "\u0000",
        "\u0085",
        "\u2028",
    ),
    *(
        "\u0301",
        "\u0344",
        "e\u0301" * 40,
        "\u0323\u0301" * 40,
        "\u1100\u1161\u11a8",
        "👩‍👩‍👧‍👦",
        "🇨🇳",
        "\U000e0041",
        "\ufdfa",
        "\u3164",
        "\ud800",
    ),
    *("，", "。", "“", "”", "…", "——", "　", "①", "ﷺ", "ｱ", "\r", "\r\n", "\x0b", "\x0c", "\x1f", "\uffff", "İ", "ß", "ﬃ"),
)
CLAUSES = (
    "第一章 总则\n",
    "第十条 ",
    "（一）",
    "一、",
    "1.1.1 ",
    "1986. ",
    "第百千万条",
    "Chapter IV\n",
    "Article 5 ",
    "① ",
    "目录\n",
    "第一章 …… 3\n",
)
TOKENS = (*MARKUP, *MARKDOWN, *LETTERS, *CLAUSES)
CHARSETS = (
    "utf-8",
    "utf-8-sig",
    "gb18030",
    "gbk",
    "cp950",
    "big5hkscs",
    "utf-16",
    "utf-16-le",
    "utf-16-be",
    "utf-32",
    "cp1252",
    "euc-jp",
    "koi8-r",
)
LABELS = (
    None,
    None,
    None,
    "utf-8",
    "gbk",
    "gb18030",
    "big5",
    "utf-16",
    "utf-7",
    "hz",
    "idna",
    "rot13",
    "base64",
    "x",
    "latin1",
    "iso-2022-jp",
    "\x00",
)
BOMS = (
    codecs.BOM_UTF8,
    codecs.BOM_UTF16_LE,
    codecs.BOM_UTF16_BE,
    codecs.BOM_UTF32_LE,
    codecs.BOM_UTF32_BE,
    b"\x84\x31\x95\x33",
    b"+/v8",
)


@functools.cache
def seeds() -> dict[str, tuple[str, ...]]:
    """Return the texts of all seed files by media type, in a fixed order. The sample site's are always there."""
    found: dict[str, list[str]] = {media_type: [] for media_type in TYPES.values()}
    for folder in SEED_FOLDERS:
        for path in sorted(folder.rglob("*")) if folder.is_dir() else ():
            if path.suffix in TYPES:
                found[TYPES[path.suffix]].append(decode(path.read_bytes())[0])
    assert all(found.values()), "deploy/sample-site lacks a kind of document"
    return {media_type: tuple(texts) for media_type, texts in found.items()}


class Inputs:
    """Everything one number stands for. Draw once; the order of draws is part of the number's meaning."""

    def __init__(self, number: int) -> None:
        self.dice = random.Random(number)

    def text(self) -> tuple[str, str]:
        """Return (media type, text): a piece of a seed, changed in up to a dozen places, or a heap of pieces."""
        dice = self.dice
        media_type = dice.choice(("text/markdown", "text/html", "text/plain"))
        whole = dice.choice(seeds()[media_type if dice.random() < 0.9 else "text/html"])
        if dice.random() < 0.25:
            return media_type, "".join(self._token() for _ in range(dice.randint(0, 60)))
        length = int(PIECE * dice.random() ** 3) + 1
        start = dice.randrange(max(1, len(whole) - length))
        text = whole[start : start + length]
        for _ in range(int(12 * dice.random() ** 2)):
            text = self._changed(text)
        return media_type, text

    def data(self) -> tuple[str, str | None, bytes]:
        """Return (media type, declared charset, bytes): such a text in some charset, and perhaps damaged bytes."""
        dice = self.dice
        media_type, text = self.text()
        name = dice.choice(CHARSETS)
        data = text.encode(name, dice.choice(("ignore", "replace", "xmlcharrefreplace")))
        if dice.random() < 0.2:
            data = dice.choice(BOMS) + data
        if dice.random() < 0.15:
            data += self.text()[1].encode(dice.choice(CHARSETS), "ignore")
        for _ in range(dice.choice((0, 0, 0, 1, 1, 2, 5))):
            data = self._damaged(data)
        return media_type, dice.choice(LABELS), data

    def _token(self) -> str:
        return (
            self.dice.choice(TOKENS)
            if self.dice.random() < 0.8
            else chr(self.dice.choice((32, 65, 10, 0x4E00, self.dice.randrange(0x3000))))
        )

    def _changed(self, text: str) -> str:
        dice = self.dice
        place, end = sorted((dice.randrange(len(text) + 1), dice.randrange(len(text) + 1)))
        end = min(end, place + 200)
        match dice.randrange(7):
            case 0:
                return text[:place] + text[end:]
            case 1:
                return text[:end] + text[place:end] * dice.choice((1, 2, 30)) + text[end:]
            case 2:
                other = dice.choice(dice.choice(sorted(seeds().items()))[1])
                at = dice.randrange(max(1, len(other)))
                return text[:place] + other[at : at + 200] + text[end:]
            case 3:
                return text[:place] + self._token() * dice.choice((1, 1, 2, 50)) + text[place:]
            case 4:
                return text[:place] + text[place:end][::-1] + text[end:]
            case _:
                return text[:place] + self._token() + text[place:]

    def _damaged(self, data: bytes) -> bytes:
        dice = self.dice
        place, end = sorted((dice.randrange(len(data) + 1), dice.randrange(len(data) + 1)))
        match dice.randrange(5):
            case 0:
                return data[:place]
            case 1:
                return data[:place] + bytes([dice.randrange(256)]) + data[place + 1 :]
            case 2:
                return data[:place] + data[min(end, place + 50) :]
            case 3:
                return (
                    data[:place]
                    + dice.choice((b"\x00", b"\xff\xfe", b"\x81", b"\x84\x31", b"\xed\xa0\x80", b"\x1b$B", b"~{"))
                    + data[place:]
                )
            case _:
                return data[:end] + data[place : min(end, place + 50)] + data[end:]
