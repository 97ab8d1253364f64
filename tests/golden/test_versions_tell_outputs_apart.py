"""A version names one output for ever: what a strategy or parser gives may only change together with its version.

Live batches are known by versions: with the same version and other chunks, workers of two releases would write two kinds of
chunks into one collection. `digests.json` holds, by versions and sources, a digest of all that `chunk` makes of the sample
documents. Lines of it are never changed: ``DOCDELTA_UPDATE_GOLDEN=1`` only adds those of versions that are new.
"""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Iterator
from typing import Any

import pytest

from chunking.chunk import Chunk
from chunking.chunker import Provenance, chunk
from chunking.document import Document, DocumentKey
from chunking.parsers import media_type_of, parse_document
from chunking.policy import ChunkPolicy, Limits, Rule
from chunking.strategies import STRATEGIES
from chunking.tokens import counter
from tests.golden.test_golden_chunks import CASES, HERE

DIGESTS = HERE / "digests.json"
SITE = HERE.parents[1] / "deploy" / "sample-site"
UNSTABLE = ("chunk_id", "embed_hash", "strategy")
"""Payload fields that a new version changes by itself."""


def documents() -> Iterator[tuple[bytes, Document]]:
    """Yield source and document of the handbook and of the pages of the sample site."""
    for path in (HERE / "handbook.md", *sorted(SITE.rglob("*.*.*"))):
        if path.suffix in (".md", ".html", ".txt"):
            yield path.read_bytes(), parse_document(path.read_bytes(), media_type_of(path.name))


def said(each: Chunk) -> list[Any]:
    payload = {name: value for name, value in each.payload.items() if name not in UNSTABLE and name != "parent_id"}
    return [each.embed_text, each.boundary, each.ordinal, payload]


def digests() -> dict[str, str]:
    """Return the digest of each case by ``parser, digest of its sources, strategy, case``."""
    sources: dict[str, hashlib._Hash] = {}
    for source, document in documents():
        sources.setdefault(document.parser, hashlib.sha256()).update(hashlib.sha256(source).digest())
    found = {}
    for case, (name, options) in sorted(CASES.items()):
        policy = ChunkPolicy(name="golden", version=1, rules=(Rule(use=name, options=options),), limits=Limits(max_tokens=90))
        by_parser: dict[str, list[Any]] = {}
        for _, document in documents():
            chunks = chunk(document, Provenance(DocumentKey("t", "d"), 1), policy, counter("cl100k_base"))
            by_parser.setdefault(document.parser, []).append([said(each) for each in chunks])
        for parser, chunks_said in sorted(by_parser.items()):
            data = json.dumps(chunks_said, ensure_ascii=False, sort_keys=True, default=list).encode("utf-8", "surrogatepass")
            versions = f"{parser} {sources[parser].hexdigest()[:8]} {STRATEGIES[name].versioned_name}"
            found[f"{versions} {case}"] = hashlib.sha256(data).hexdigest()
    return found


def changed(found: dict[str, str], known: dict[str, str]) -> list[str]:
    """Return the cases whose output is another although no version was raised."""
    return [name for name, digest in found.items() if name in known and known[name] != digest]


def test_no_output_changed_under_its_version() -> None:
    found, known = digests(), json.loads(DIGESTS.read_text(encoding="utf-8"))
    assert not changed(found, known), (
        "chunks changed under an unchanged version: raise the strategy's version (its last line) or the parser's, "
        "then DOCDELTA_UPDATE_GOLDEN=1"
    )
    if os.environ.get("DOCDELTA_UPDATE_GOLDEN"):
        assert os.environ.get("CI") != "true", "golden files are not rewritten in CI"
        DIGESTS.write_text(json.dumps(known | found, indent=1, sort_keys=True) + "\n", encoding="utf-8")
    assert found.keys() <= known.keys() | (found.keys() if os.environ.get("DOCDELTA_UPDATE_GOLDEN") else set()), (
        "a version is new: DOCDELTA_UPDATE_GOLDEN=1 adds its digests"
    )


def test_another_output_under_the_same_version_is_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    known = digests()
    whole = STRATEGIES["structure"]

    def one_less(document: Document, options: Any, budget: Any) -> Any:
        return whole.cut(document, options, budget)[:-1]

    monkeypatch.setitem(STRATEGIES, "structure", type(whole)(whole.name, whole.version, whole.options, one_less))
    assert {name.split()[-1] for name in changed(digests(), known)} == {"structure", "structure-sentences"}
    monkeypatch.setitem(STRATEGIES, "structure", type(whole)(whole.name, whole.version + 1, whole.options, one_less))
    assert not changed(digests(), known)
