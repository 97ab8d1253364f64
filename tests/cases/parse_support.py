"""The shared cases, and documents in the short form that case tests compare."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from chunking.document import BlockKind, Document
from chunking.outline import heading_paths, outline
from chunking.parsers import parse_document

CASES = Path(__file__).resolve().parents[2] / "../shared/cases/cases.jsonl"
MEDIA_TYPES = {"markdown": "text/markdown", "html": "text/html", "text": "text/plain"}


def case_input(case_id: str) -> dict[str, Any]:
    """Return the input of a case; skips where the shared cases are not beside this checkout."""
    if not CASES.is_file():
        pytest.skip("the shared cases are not beside this checkout")
    for line in CASES.read_text(encoding="utf-8").split("\n"):
        case = json.loads(line or "{}")
        if case.get("id") == case_id:
            return dict(case["input"])
    raise LookupError(f"no case {case_id}")


def parsed(case_id: str) -> Document:
    """Return the outlined document of a case with one text."""
    given = case_input(case_id)
    return outlined(given["text"], MEDIA_TYPES[given["format"]])


def variants(case_id: str) -> list[Document]:
    """Return the outlined documents of a case with several texts."""
    given = case_input(case_id)
    return [outlined(text, MEDIA_TYPES[given["format"]]) for text in given["variants"]]


def outlined(text: str, media_type: str) -> Document:
    """Return the document as a strategy reads it."""
    return outline(parse_document(text, media_type))


def headings(document: Document) -> list[tuple[str, int]]:
    """Return label and level of every heading."""
    return [(block.label, block.level) for block in document.blocks if block.kind is BlockKind.HEADING]


def bodies(document: Document) -> list[tuple[str, tuple[str, ...]]]:
    """Return text and heading path of every block that is no heading."""
    pairs = zip(document.blocks, heading_paths(document.blocks), strict=True)
    return [(document.text_of(block), path) for block, path in pairs if block.kind is not BlockKind.HEADING]


def clauses(document: Document) -> list[str]:
    """Return the numbers of the clauses that begin in a document."""
    return [block.clause for block in document.blocks if block.clause]
