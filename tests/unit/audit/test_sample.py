"""A sample sees what marks can't: a payload changed under its own hash, a vector that is not that of its text."""

from __future__ import annotations

import random
from typing import Any

import numpy as np
import pytest

from chunking.chunker import Provenance, chunk
from chunking.document import DocumentKey
from chunking.parsers import parse_document
from chunking.policy import load_policy
from chunking.tokens import counter
from streams.audit.run import Sample
from streams.audit.sample import differs, embed_text_of, is_edited
from streams.embedders import open_embedder
from streams.settings import EmbedderSettings
from tests.unit.audit.site import Site, chunk_name, payload_of

PAGE = (
    "# Rules\n\n## Leave\n\n"
    + "Sick pay is eighty per cent. 病假工资按百分之八十发放。" * 40
    + "\n\n| a | b |\n|---|---|\n| 1 | 2 |\n"
)
PLAIN = "name: p\nversion: 1\nrules: [{use: structure}]\nlimits: {max_tokens: 60}\nembedding: {model: hashing-v1, dimensions: 4}\n"
POLICIES = [
    pytest.param(PLAIN, id="plain"),
    pytest.param(PLAIN + "embed: {title: true, heading_path: true}\n", id="with title and headings"),
    pytest.param(PLAIN.replace("dimensions: 4", "dimensions: 4, document_prefix: 'passage: '"), id="with a prefix"),
    pytest.param(PLAIN.replace("{use: structure}", "{use: parent_child}"), id="parents and children"),
]


@pytest.mark.parametrize("text", POLICIES)
def test_the_embedded_text_follows_from_the_payload(text: str) -> None:
    policy = load_policy(text)
    document = parse_document(PAGE, "text/markdown", title="Handbook")
    provenance = Provenance(DocumentKey("acme", "d"), 1, "Handbook", attributes={})
    made = chunk(document, provenance, policy, counter(policy.limits.tokenizer))
    assert len(made) > 3
    for each in made:
        stored: dict[str, Any] = {**each.payload, "revision": 1, "order_key": 7, "payload_hash": each.payload_hash}
        assert not is_edited(stored)
        assert is_edited({**stored, "acl": ["everybody"]})
        assert embed_text_of(stored, policy) == each.embed_text
        if each.embed_text:
            assert embed_text_of({**stored, "text": "something else", "rendering": "something else"}, policy) is None


def test_vectors_are_compared_by_direction_and_where_it_counts_by_length() -> None:
    one = np.array([3.0, 4.0, 0.0, 0.0], dtype=np.float32)
    near, far = one + np.float32(1e-4), np.array([4.0, 3.0, 0.0, 0.0], dtype=np.float32)
    assert differs(one / 5, one, "cosine") == differs(near, one, "dot") == ""
    assert "cosine 0.96" in differs(far, one, "cosine")
    assert "length" in differs(one / 5, one, "dot")
    assert differs(None, one, "cosine") == "no vector"
    assert "dimensions" in differs(one[:3], one, "cosine")
    assert differs(one * 0, one, "cosine") == "no direction"


async def test_a_sample_names_what_is_wrong_with_its_points() -> None:
    site = await Site().begin()
    policy = load_policy(PLAIN)
    embedder = open_embedder(EmbedderSettings(kind="hashing"), policy.embedding)
    spec = policy.embedding.spec
    for number in range(6):
        await site.put(f"d{number}", chunks=3)
    report = await site.audit().run(Sample(100, policy, embedder, "cosine", random.Random(1)))
    assert report.unsampled == 18, "made for another embedding spec: their text can't be told from their payload"
    assert spec != "hashing/4"


async def test_a_payload_that_was_edited_by_hand_shows_in_a_sample_alone() -> None:
    site = await Site().begin()
    for number in range(6):
        await site.put(f"d{number}", chunks=3)
    await site.write(b"acme/d2", [1], acl=["everybody"])
    assert (await site.audit().run()).clean, "its digest is what it was"
    policy = load_policy(PLAIN)
    embedder = open_embedder(EmbedderSettings(kind="hashing"), policy.embedding)
    report = await site.audit().run(Sample(18, policy, embedder, "cosine", random.Random(1)))
    assert [(each.kind, each.chunk_id, each.payload_edited) for each in report.findings] == [
        ("wrong_payload", chunk_name(b"acme/d2", 1), True)
    ]
    few = await site.audit().run(Sample(3, policy, embedder, "cosine", random.Random(1)))
    assert few.reads.vectors == 3
    assert payload_of(b"acme/d2", 1)["acl"] is None
