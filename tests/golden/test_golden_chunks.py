"""The chunks that a document must give, by strategy. A change here is a new strategy version, and so a new batch for everybody.

``DOCDELTA_UPDATE_GOLDEN=1`` writes the files anew; refused where CI=true.
"""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import pytest

from chunking.parsers import parse_document
from chunking.passage import Part
from chunking.strategies import STRATEGIES
from chunking.strategies.base import Budget
from chunking.tokens import counter

HERE = Path(__file__).resolve().parent
CASES: dict[str, tuple[str, dict[str, Any]]] = {
    "structure": ("structure", {}),
    "structure-sentences": ("structure", {"tables": "sentences", "walls": 6}),
    "chapters": ("chapters", {"min_chapter": 0}),
    "recursive": ("recursive", {"size": 120, "overlap": 30}),
    "tokens": ("tokens", {"size": 64}),
    "parent_child": ("parent_child", {"child_size": 60, "parent_size": 200, "overlap": 15, "above": 0}),
    "sentences": ("sentences", {"size": 120, "overlap": 40}),
    "semantic": ("semantic", {"size": 200}),
    "fixed": ("fixed", {"size": 100, "overlap": 20}),
}


def chunks_of(strategy_name: str, options: dict[str, Any]) -> dict[str, Any]:
    document = parse_document((HERE / "handbook.md").read_text(encoding="utf-8"), "text/markdown")
    strategy = STRATEGIES[strategy_name]
    budget = Budget(counter("cl100k_base"), 90)
    return {
        "strategy": strategy.versioned_name,
        "parser": document.parser,
        "passages": [
            {
                "role": str(passage.role),
                "text": passage.span.of(document.text),
                **({"repeat": passage.repeat} if passage.repeat else {}),
                **({"rendering": passage.rendering} if passage.rendering else {}),
                **({"overlap": passage.overlap.kind} if passage.overlap else {}),
                **({"parent": passage.parent} if passage.parent is not None else {}),
                "path": list(passage.heading_path),
                "clause": passage.clause,
                **({"parts": [_part(part) for part in passage.parts]} if passage.parts else {}),
                "boundary": passage.boundary,
            }
            for passage in strategy.cut(document, strategy.options(**options), budget)
        ],
    }


def _part(part: Part) -> str:
    return f"{part.at} {' > '.join(part.heading_path)}, {part.clause}"


@pytest.mark.parametrize("case", sorted(CASES))
def test_the_handbook_gives_the_golden_chunks(case: str) -> None:
    golden = HERE / "chunks" / f"{case}.json"
    found = chunks_of(*CASES[case])
    if os.environ.get("DOCDELTA_UPDATE_GOLDEN"):
        assert os.environ.get("CI") != "true", "golden files are not rewritten in CI"
        golden.write_text(json.dumps(found, ensure_ascii=False, indent=1) + "\n", encoding="utf-8")
    assert found == json.loads(golden.read_text(encoding="utf-8"))


def test_every_strategy_has_a_golden_case() -> None:
    assert {name for name, _ in CASES.values()} == set(STRATEGIES)
