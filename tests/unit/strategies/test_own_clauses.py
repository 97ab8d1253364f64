"""A policy's own way to number clauses is found beside the built-in ones."""

from __future__ import annotations

import pytest

from chunking.chunker import Provenance, chunk
from chunking.document import DocumentKey
from chunking.parsers import parse_document
from chunking.policy import ChunkPolicy, Limits, PolicyError, Rule, load_policy
from chunking.tokens import counter

OWN = {"name": "duty", "pattern": r"值班规则\d{1,3}", "starts": "值", "rank": 60, "needs_blank": True}
LINES = [f"值班规则{number} " + "值班员每两小时巡查一次仓库并登记。" * 3 for number in range(1, 5)]
TEXT = "\n".join(LINES) + "\n\n第五条 本规则自发布之日起施行。\n"


def clauses(options: dict[str, object]) -> set[str]:
    policy = ChunkPolicy(name="own", version=1, rules=(Rule(use="structure", options=options),), limits=Limits(max_tokens=80))
    document = parse_document(TEXT, "text/plain")
    return {each.clause for each in chunk(document, Provenance(DocumentKey("t", "d"), 1), policy, counter("cl100k_base"))}


def test_clauses_of_the_policys_own_rule_are_named() -> None:
    assert clauses({"clauses": [OWN]}) == {"值班规则1", "值班规则2", "值班规则3", "值班规则4", "第五条"}
    assert not any("值班规则" in clause for clause in clauses({}))


def test_a_pattern_that_does_not_compile_is_refused_by_field() -> None:
    with pytest.raises(PolicyError, match="no regular expression"):
        load_policy(
            "name: p\nversion: 1\nrules:\n  - use: structure\n"
            "    options: {clauses: [{name: a, pattern: '(', starts: a, rank: 1}]}\n"
        )
