"""What a reader may cite of a stored chunk: a chunk can hold several clauses, under several headings; a quotation stands in one.

Pure; reads the fields `heading_path`, `clause`, `clauses`, `parts` and `text` of a payload.
"""

from __future__ import annotations

import unicodedata
from collections.abc import Mapping
from itertools import takewhile
from typing import Any

from chunking.passage import Part


def clauses_of(payload: Mapping[str, Any]) -> tuple[str, ...]:
    """Return every clause that a chunk holds text of, in order."""
    first = str(payload.get("clause") or "")
    return tuple(str(clause) for clause in payload.get("clauses") or ([first] if first else []))


def parts_of(payload: Mapping[str, Any]) -> tuple[Part, ...]:
    """Return the parts of a chunk, in order; one that begins at 0 where all of it stands in one place."""
    path = tuple(str(title) for title in payload.get("heading_path") or ())
    stored = payload.get("parts") or [{"at": 0, "clause": payload.get("clause") or ""}]
    return tuple(Part(int(part["at"]), tuple(part.get("heading_path", path)), str(part["clause"])) for part in stored)


def part_at(payload: Mapping[str, Any], at: int) -> Part:
    """Return the part that the character text[at] of a chunk stands in."""
    parts = parts_of(payload)
    return [parts[0], *takewhile(lambda part: part.at <= at, parts)][-1]


def part_with(payload: Mapping[str, Any], quotation: str) -> Part | None:
    """Return the part in which a quotation begins, blanks aside; None when it does not stand in the chunk's own text."""
    text, wanted = str(payload.get("text") or ""), bare(quotation)
    begin = bare(text).find(wanted) if wanted else -1
    return part_at(payload, _unbared(text, begin)) if begin >= 0 else None


def bare(text: str) -> str:
    """Return a text without whitespace, composed: lines are broken differently in a file and in a chunk."""
    return "".join(unicodedata.normalize("NFC", text).split())


def _unbared(text: str, begin: int) -> int:
    """Return where the bare character number `begin` stands in the text as it is."""
    low, high = 0, len(text)  # the longest beginning of the text that has `begin` bare characters
    while low < high:
        middle = (low + high + 1) // 2
        low, high = (middle, high) if len(bare(text[:middle])) <= begin else (low, middle - 1)
    return low
