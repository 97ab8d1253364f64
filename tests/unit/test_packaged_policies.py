"""The policies that come with docdelta load, and do to the sample site what their comments say."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import yaml

from chunking.chunk import Chunk
from chunking.chunker import Provenance, chunk
from chunking.diff import diff
from chunking.document import Document, DocumentKey
from chunking.manifest import Manifest
from chunking.parsers import media_type_of, parse_document
from chunking.policy import ChunkPolicy, load_policy
from chunking.tokens import counter
from streams.connectors.site_file import FileMetadata, load_site_file
from streams.embedded.sample_edits import Edit, load_edits
from streams.reading.citation import part_with

DEPLOY = Path(__file__).resolve().parents[2] / "deploy"
SITE = DEPLOY / "sample-site"
POLICIES = {path.stem: path for path in sorted((DEPLOY / "policies").glob("*.yaml"))}
FILES = load_site_file(SITE).files
GOLDEN: list[dict[str, Any]] = yaml.safe_load((SITE / "golden.yaml").read_text(encoding="utf-8"))["questions"]


def policy_named(name: str) -> ChunkPolicy:
    return load_policy(POLICIES[name].read_text(encoding="utf-8"), POLICIES[name].name)


def document_of(path: str, data: bytes, said: FileMetadata) -> Document:
    labels = tuple(said.labels)
    return parse_document(data, media_type_of(path), title=said.title, language=said.language, kind=said.kind, labels=labels)


def chunks_of(path: str, data: bytes, said: FileMetadata, policy: ChunkPolicy) -> tuple[Chunk, ...]:
    provenance = Provenance(DocumentKey("demo", said.id), revision=1, title=said.title)
    return chunk(document_of(path, data, said), provenance, policy, counter(policy.limits.tokenizer))


def test_the_policies_are_there() -> None:
    first = {"default", "policy-documents", "narrative", "manuals-parent-child", "faq-sentences", "hybrid"}
    assert set(POLICIES) == first | {"default-v2"}


@pytest.mark.parametrize("name", POLICIES)
def test_a_packaged_policy_loads_under_its_file_name(name: str) -> None:
    policy = policy_named(name)
    stem, version = (name[: -len("-v2")], 2) if name.endswith("-v2") else (name, 1)
    assert policy.name == stem
    assert policy.batch_id == f"{stem}-v{version}-{policy.fingerprint[:8]}"


@pytest.mark.parametrize("name", POLICIES)
def test_a_packaged_policy_chunks_the_whole_site_within_its_limit(name: str) -> None:
    policy = policy_named(name)
    for path, said in FILES.items():
        chunks = chunks_of(path, (SITE / path).read_bytes(), said, policy)
        assert chunks
        assert len({each.chunk_id for each in chunks}) == len(chunks)
        assert max(each.tokens for each in chunks) <= policy.limits.max_tokens


@pytest.mark.parametrize(
    ("name", "kind", "strategy"),
    [
        ("default", "policy", "structure"),
        ("default", "story", "structure"),
        ("policy-documents", "policy", "structure"),
        ("narrative", "story", "chapters"),
        ("narrative", "policy", "structure"),
        ("manuals-parent-child", "manual", "parent_child"),
        ("faq-sentences", "faq", "sentences"),
    ],
)
def test_the_rules_pick_the_strategy_for_a_kind(name: str, kind: str, strategy: str) -> None:
    assert policy_named(name).pick(Document("", (), kind=kind)).strategy.name == strategy


def test_the_site_makes_a_body_worth_watching() -> None:
    policy = policy_named("default")
    total = sum(len(chunks_of(path, (SITE / path).read_bytes(), said, policy)) for path, said in FILES.items())
    assert 160 <= total <= 280


@pytest.mark.parametrize("edit", load_edits(SITE), ids=lambda edit: edit.title)
def test_an_edit_of_the_session_costs_what_it_says(edit: Edit) -> None:
    policy = policy_named("default")
    said, data = FILES[edit.file], (SITE / edit.file).read_bytes()
    before = chunks_of(edit.file, data, said, policy)
    manifest: Manifest = diff(None, before, 1)[1]
    if edit.remove or edit.unpublish:
        delta, _ = diff(manifest, (), 2, deleted=True)
        assert (len(delta.added), len(delta.removed)) == (0, len(before))
        return
    after_said = FileMetadata.model_validate({**said.model_dump(), **(edit.metadata or {})})
    after = chunks_of(edit.file, edit.text_after(data.decode("utf-8")).encode("utf-8"), after_said, policy)
    delta, _ = diff(manifest, after, 2)
    assert len(delta.added) == edit.embeddings
    assert len(delta.removed) == edit.embeddings
    if edit.metadata:
        assert len(delta.updated) == len(before)
    if edit.save:
        assert delta.empty
    if edit.move:
        assert delta.updated


@pytest.mark.parametrize("golden", GOLDEN, ids=[golden["question"] for golden in GOLDEN])
def test_a_golden_answer_stands_whole_in_one_chunk_under_its_headings(golden: dict[str, Any]) -> None:
    path = next(path for path, said in FILES.items() if said.id == golden["document"])
    chunks = chunks_of(path, (SITE / path).read_bytes(), FILES[path], policy_named("default"))
    holding = [each for each in chunks if golden["fragment"] in each.text]
    assert len(holding) == 1
    expected = tuple(golden.get("heading_path", ()))
    found = holding[0].heading_path
    assert found == expected[: len(found)]
    assert bool(found) == bool(expected)


@pytest.mark.parametrize("name", ["default", "default-v2", "policy-documents"])
def test_a_golden_clause_is_named_by_the_chunk_that_holds_the_answer(name: str) -> None:
    wrong = []
    for golden in GOLDEN:
        path = next(path for path, said in FILES.items() if said.id == golden["document"])
        chunks = chunks_of(path, (SITE / path).read_bytes(), FILES[path], policy_named(name))
        part = next(filter(None, (part_with(each.payload, golden["fragment"]) for each in chunks)))
        clause, heading_path = golden.get("clause", ""), tuple(golden.get("heading_path", ()))
        if clause not in ("", part.clause.partition("（")[0]) or heading_path not in ((), part.heading_path):
            wrong.append((golden["question"], part))
    assert wrong == []


def test_a_policy_clause_is_found_by_its_number() -> None:
    path = "policies/travel-expenses.zh.md"
    chunks = chunks_of(path, (SITE / path).read_bytes(), FILES[path], policy_named("policy-documents"))
    holding = [each for each in chunks if "连续飞行超过八小时" in each.text]
    assert len(holding) == 1
    assert holding[0].heading_path[-1] == "第三章 交通"


def test_the_notice_in_gb18030_is_read_right() -> None:
    path = "notices/office-move.zh.txt"
    chunks = chunks_of(path, (SITE / path).read_bytes(), FILES[path], policy_named("default"))
    assert "".join(each.text for each in chunks).startswith("关于苏州总部搬迁的通知")
