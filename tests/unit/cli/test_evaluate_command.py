"""`docdelta evaluate` and `search --mode` over an index in a folder: table, JSON, page, and what is refused."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from chunking.policy import Embedding, Sparse
from streams.embedders.hashing import hashed
from streams.embedders.sparse import Bm25
from streams.index.qdrant import open_index
from streams.ports import CollectionSpec, IndexPlan, NewPoint
from streams.settings import QdrantSettings
from tests.contracts.index_values import chunk_id
from tests.unit.cli.conftest import Run

EMBEDDING = Embedding(model="hashing-v1", dimensions=64)
TEXTS = ("We refund within fourteen days.", "Error E-4031 means a loose probe.", "退款将在十四天内到账。")
GOLDEN = """tenant: acme
questions:
  - {question: what is E-4031, document: faq, clause: "2", fragment: loose probe}
  - {question: 退款几天到账, document: faq, clause: "2", fragment: 十四天内}
"""


async def fill(folder: Path) -> None:
    """Write a dense and a hybrid collection of the same texts; the alias points at the hybrid one."""
    index = open_index(QdrantSettings(path=folder))
    for name, sparse in (("try-v1-0000aaaa", None), ("try-v2-0000bbbb", Sparse())):
        spec = CollectionSpec(name, "f" * 64, EMBEDDING.spec, EMBEDDING.dimensions, "cosine", sparse.spec if sparse else "")
        await index.ensure_collection(name, spec)
        made = await Bm25(sparse).documents(TEXTS) if sparse else [None] * len(TEXTS)
        points = []
        for number, text in enumerate(TEXTS):
            identity = chunk_id(f"{name}/{number}")
            payload = {"tenant_id": "acme", "document_id": "faq", "revision": 1, "order_key": number, "chunk_id": identity}
            payload |= {"role": "body", "acl": None, "text": text, "clause": str(number + 1), "span": [0, len(text)]}
            points.append(NewPoint(identity, hashed(text, EMBEDDING.dimensions), payload, made[number]))
        await index.apply(name, IndexPlan("acme", "faq", 1, tuple(points)))
    await index.set_alias("docdelta", "try-v2-0000bbbb")
    await index.close()


@pytest.fixture
def golden(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    asyncio.run(fill(tmp_path / "index"))
    monkeypatch.setenv("DOCDELTA_QDRANT__PATH", str(tmp_path / "index"))
    monkeypatch.setenv("DOCDELTA_EMBEDDER__KIND", "hashing")
    file = tmp_path / "golden.yaml"
    file.write_text(GOLDEN, encoding="utf-8")
    return str(file)


def test_the_served_batch_is_asked_the_way_it_is_made_for(run: Run, golden: str) -> None:
    told = run("evaluate", "--golden", golden, "-k", "3,1", "--json").json
    (evaluation,) = told["evaluations"]
    assert (evaluation["collection"], evaluation["mode"], told["k"]) == ("try-v2-0000bbbb", "hybrid", [1, 3])
    assert evaluation["recall"] == {"1": 1.0, "3": 1.0}
    assert evaluation["citations"]["clauses"] == {"right": 1, "of": 2}


def test_batches_and_modes_stand_side_by_side_and_a_page_is_written(run: Run, golden: str, tmp_path: Path) -> None:
    page = tmp_path / "report.html"
    ran = run("evaluate", "-g", golden, "-b", "try-v1-0000aaaa", "-b", "try-v2-0000bbbb", "--html", str(page))
    assert ran.code == 0
    assert "try-v1-0000aaaa dense" in ran.out
    assert "try-v2-0000bbbb hybrid" in ran.out
    assert "try-v1-0000aaaa dense → try-v2-0000bbbb hybrid" in ran.out
    assert "Recall@10" in ran.out
    assert page.read_text(encoding="utf-8").startswith("<!doctype html>")
    both = run("evaluate", "-g", golden, "--mode", "dense", "--mode", "hybrid", "--json").json
    assert [each["mode"] for each in both["evaluations"]] == ["dense", "hybrid"]


def test_what_can_not_be_done_is_told_in_a_line(run: Run, golden: str, tmp_path: Path) -> None:
    for arguments, code, words in (
        (("-g", golden, "-b", "nowhere"), 5, "collection nowhere does not exist"),
        (("-g", golden, "-b", "try-v1-0000aaaa", "-m", "hybrid"), 5, "no sparse vectors"),
        (("-g", golden, "-m", "both"), 2, "it is dense or hybrid"),
        (("-g", golden, "-k", "1,many"), 2, "numbers with commas"),
        (("-g", golden, "--html", str(tmp_path / "no" / "page.html")), 2, "can't be written"),
        (("-g", str(tmp_path / "none.yaml")), 2, "can't be read"),
    ):
        ran = run("evaluate", *arguments)
        assert ran.code == code, ran
        assert words in ran.err


def test_search_takes_the_mode_from_the_batch_or_from_the_flag(run: Run, golden: str) -> None:
    scores = {}
    for mode in ((), ("--mode", "hybrid"), ("--mode", "dense")):
        hits = run("search", "what is E-4031", "-t", "acme", *mode, "--json").json["hits"]
        scores[mode] = [hit["score"] for hit in hits]
        assert hits[0]["text"] == TEXTS[1]
    assert scores[()] == scores["--mode", "hybrid"] != scores["--mode", "dense"]
