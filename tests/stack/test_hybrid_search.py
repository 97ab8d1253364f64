"""Hybrid search from event to hit: words and meaning, Chinese and English, prefixes of the policy, tenant and readers before top-k.

Costs about half a minute on two quiet cores.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from chunking.policy import load_policy
from schemas.document_change import DocumentChange
from streams.embedders import open_embedder
from streams.embedders.hashing import hashed
from streams.reading.search import Found, Question, search
from streams.settings import KafkaSettings
from tests.stack.rig import POLICY, Rig, rig, upsert

PREFIXED = POLICY.replace("dimensions: 64}", 'dimensions: 64, document_prefix: "passage: ", query_prefix: "query: "}')
HYBRID = PREFIXED + "sparse: {}\n"
CROWD = 8
"""Documents that fit a question better than those its reader may see: more than are asked for."""
CODE, ZH_QUESTION = "what does E-4031 mean", "冷链箱多久消毒一次"


def site() -> list[DocumentChange]:
    """Return pages of two tenants; the crowd speaks of nothing but what is asked."""
    crowd = f"# {CODE}\n\nE-4031 E-4031 {CODE} E-4031\n\n## {ZH_QUESTION}\n\n冷链箱消毒，{ZH_QUESTION}，冷链箱消毒。\n"
    english = "# Alarms {n}\n\nWhen the probe of cabinet {n} is loose, the logger shows E-4031 until somebody tightens it.\n"
    chinese = "# 清洁 {n}\n\n{n}号库的冷链箱每七天消毒一次，由当班的仓管员登记，逾期不得使用。\n"
    other = "# Day {n}\n\nOn day {n} the depot counted parcels, swept the yard, and closed at nine.\n\n第{n}天盘点包裹。\n"
    return [
        *(upsert(f"rival-{n}", 1, crowd, tenant="rival") for n in range(CROWD)),
        *(upsert(f"board-{n}", 1, crowd, acl=("board",)) for n in range(CROWD)),
        *(upsert(f"alarm-{n}", 1, english.format(n=n), acl=("staff",), language="en") for n in range(2)),
        *(upsert(f"clean-{n}", 1, chinese.format(n=n), language="zh-CN") for n in range(2)),
        *(upsert(f"day-{n}", 1, other.format(n=n)) for n in range(CROWD)),
    ]


async def test_words_and_meaning_find_what_the_reader_may_see(tansu_settings: KafkaSettings, tmp_path: Path, fresh: str) -> None:
    async with rig(tansu_settings, tmp_path, fresh, policy=HYBRID) as stack:
        stack.start()
        newest = site()
        await stack.put(*newest)
        await stack.check(newest)

        for question, wanted in ((CODE, {"alarm-0", "alarm-1"}), (ZH_QUESTION, {"clean-0", "clean-1"})):
            staff = await asked(stack, question, "staff", limit=2)
            assert {hit.document_id for hit in staff} == wanted, "the crowd is neither shown nor counted among the first two"
            board = await asked(stack, question, "board", limit=CROWD)
            assert {hit.document_id for hit in board} == {f"board-{n}" for n in range(CROWD)}
        nobody = await asked(stack, CODE, "guests", limit=CROWD)
        assert {hit.document_id.partition("-")[0] for hit in nobody} == {"day", "clean"}, "no acl: open to all"
        chinese = await asked(stack, ZH_QUESTION, "staff", languages=("zh-CN",))
        assert {hit.document_id for hit in chinese} == {"clean-0", "clean-1"}
        rival = await asked(stack, CODE, limit=2, tenant="rival")
        assert all(hit.document_id.startswith("rival-") for hit in rival)

        await the_prefixes_are_part_of_what_is_embedded(stack)


async def asked(stack: Rig, text: str, *groups: str, limit: int = 5, tenant: str = "acme", **more: Any) -> list[Found]:
    question = Question(tenant, text, limit, groups=groups or None, **more)
    return await search(stack.shim.index, lambda embedding: open_embedder(stack.embedder, embedding), "docdelta", question)


async def the_prefixes_are_part_of_what_is_embedded(stack: Rig) -> None:
    """Dense scores are those of the prefixed question against prefixed passages, and would be others without either."""
    dimensions = load_policy(HYBRID).embedding.dimensions
    options = ("--mode", "dense", "--group", "staff", "--language", "en", "-k", "1", "--json")
    done = await stack.docdelta("search", CODE, "--tenant", "acme", *options)
    assert done.returncode == 0, done.stderr
    (hit,) = json.loads(done.stdout)["hits"]
    (point,) = (await stack.shim.index.retrieve(stack.collection, [hit["chunk_id"]], with_vectors=True)).values()
    assert point.vector is not None
    assert np.allclose(point.vector, hashed("passage: " + hit["text"], dimensions), atol=1e-5)
    assert not np.allclose(point.vector, hashed(hit["text"], dimensions), atol=1e-2)
    with_prefix, without = (float(np.dot(hashed(before + CODE, dimensions), point.vector)) for before in ("query: ", ""))
    assert hit["score"] == pytest.approx(with_prefix, abs=1e-4)
    assert abs(with_prefix - without) > 1e-3
