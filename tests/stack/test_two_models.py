"""A rollout from one real model to another whose vectors are as long: what tells them apart is the embedding spec, not the size.

Costs about a minute and a half on two quiet cores; skipped where Maven can't get the second model.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from chunking.policy import Embedding, load_policy
from schemas.document_change import DocumentChange
from schemas.receipt import Receipt
from streams.embedders import open_embedder
from streams.ports import CollectionSpec, Embedder
from streams.settings import EmbedderSettings, KafkaSettings
from tests.stack.rig import Rig, rig, upsert
from tests.support.second_model import DIMENSIONS, NAME, QUERY_PREFIX, second_model_directory

pytestmark = pytest.mark.kafka

POLICY = """
name: models
version: VERSION
limits: {max_tokens: 120}
embedding: {model: MODEL, dimensions: 512, query_prefix: "PREFIX"}
"""


def policy(version: int, model: str, prefix: str = "", more: str = "") -> str:
    return POLICY.replace("VERSION", str(version)).replace("MODEL", model).replace("PREFIX", prefix) + more


FIRST = policy(1, "use-multilingual-v3")
SECOND = policy(2, NAME, QUERY_PREFIX)
FIRST_AGAIN = policy(3, "use-multilingual-v3", more="payload: {attributes: [owner]}\n")
OTHER_PREFIX = policy(4, NAME, "query: ")
QUICK = {"DOCDELTA_WORKER__HANDOVER_GRACE_SECONDS": "1"}
QUESTION = "出差住宿费最多能报销多少？"
PAGES = {
    "travel": "# 差旅制度\n\n## 住宿\n\n经理出差住宿费每晚最多报销七百元，其他人五百元。\n\n## 交通\n\n高铁坐二等座。\n",
    "leave": "# 请假规定\n\n## 病假\n\n病假两日以内凭就诊记录办理。\n\n## 年假\n\n满一年不满十年的，每年七日。\n",
    "depot": "# Depot\n\n## Hours\n\nThe depot opens at six and closes at nine.\n\n## Returns\n\nWithin ten days.\n",
    "security": "# 数据安全\n\n## 上报\n\n发现泄露后三十分钟内拨打热线。\n\n## 归档\n\n温度数据归档五年。\n",
}


def batch_of(text: str) -> str:
    return load_policy(text).batch_id


async def test_a_model_of_the_same_size_is_another_batch_in_which_nothing_is_borrowed(
    apache_settings: KafkaSettings, tmp_path: Path, fresh: str
) -> None:
    models = EmbedderSettings(directories={NAME: second_model_directory()}, threads=1)
    async with rig(apache_settings, tmp_path, fresh, policy=FIRST, embedder=models) as stack:
        for version, text in enumerate((SECOND, FIRST_AGAIN, OTHER_PREFIX), start=2):
            (tmp_path / f"v{version}.yaml").write_text(text, encoding="utf-8")
        stack.start(**QUICK)
        newest = [upsert(name, 1, text, attributes={"owner": "me"}) for name, text in PAGES.items()]
        await stack.put(*newest)
        first, second = Asked(stack, FIRST), Asked(stack, SECOND)
        await first.is_what_readers_get()

        done = await stack.docdelta("rollout", "v2.yaml", "--auto")
        assert done.returncode == 0, done.stdout + done.stderr + stack.log()[-2000:]
        assert "FAIL" not in done.stdout
        assert "0 borrowed from the served batch" in done.stdout
        built = await receipts_of(stack, SECOND)
        assert sum(receipt.borrowed for receipt in built) == 0
        assert sum(receipt.embedded for receipt in built) == sum(receipt.added for receipt in built) > 0
        await second.is_what_readers_get()
        await both_hold_what_their_policies_make(stack, newest)

        done = await stack.docdelta("rollback")
        assert done.returncode == 0, done.stdout + done.stderr
        await first.is_what_readers_get()

        await the_same_model_lends(stack, newest)
        await a_collection_of_the_right_size_and_another_spec_is_refused(stack)


class Asked:
    """The question as one policy's model reads it."""

    def __init__(self, stack: Rig, policy_yaml: str) -> None:
        self.stack = stack
        self.policy = load_policy(policy_yaml)
        self.embedder: Embedder = open_embedder(stack.embedder, self.policy.embedding)

    async def is_what_readers_get(self) -> None:
        """Hold what `docdelta search` finds through the alias against the stored vectors: scores of this model and its prefix."""
        found = await self.stack.docdelta("search", QUESTION, "--tenant", "acme", "-k", "3", "--json")
        assert found.returncode == 0, found.stderr
        hits = json.loads(found.stdout)["hits"]
        expected = await self._cosines(self.policy.embedding.query_prefix + QUESTION)
        assert [hit["chunk_id"] for hit in hits] == sorted(expected, key=lambda name: -expected[name])[:3]
        assert [hit["score"] for hit in hits] == pytest.approx([expected[hit["chunk_id"]] for hit in hits], abs=1e-3)
        assert "七百元" in hits[0]["text"]
        if self.policy.embedding.query_prefix:
            bare = await self._cosines(QUESTION)
            assert abs(bare[hits[0]["chunk_id"]] - hits[0]["score"]) > 0.01, "the prefix tells"

    async def _cosines(self, text: str) -> Mapping[str, float]:
        (query,) = await self.embedder.embed([text])
        index, collection, found = self.stack.shim.index, self.policy.batch_id, {}
        async for page in index.scan(collection):
            for name, point in (await index.retrieve(collection, [each.chunk_id for each in page], with_vectors=True)).items():
                assert point.vector is not None
                found[name] = float(np.dot(query, point.vector) / np.linalg.norm(query) / np.linalg.norm(point.vector))
        return found


async def receipts_of(stack: Rig, text: str) -> list[Receipt]:
    """Return the first receipt of each event in a policy's batch."""
    first: dict[str, Receipt] = {}
    for receipt in await stack.receipts():
        if receipt.batch == batch_of(text):
            first.setdefault(receipt.event_id, receipt)
    return list(first.values())


async def both_hold_what_their_policies_make(stack: Rig, newest: list[DocumentChange]) -> None:
    newest[0] = upsert("travel", 2, PAGES["travel"].replace("七百元", "七百元整"), attributes={"owner": "me"})
    await stack.send(newest[0])
    for text, cosine in ((FIRST, stack.least_cosine), (SECOND, 0.97)):
        batch, event = batch_of(text), newest[0].event_id
        await stack.receipts_when(
            lambda found, batch=batch, event=event: any((each.batch, each.event_id) == (batch, event) for each in found)
        )
        await replace(stack, policy=load_policy(text), least_cosine=cosine).check(newest)


async def the_same_model_lends(stack: Rig, newest: list[DocumentChange]) -> None:
    """What told the two apart is the model alone: another batch of the first one borrows all that is served.

    An overtaken revision, where the build meets it before the newest, has chunks that nobody holds any more.
    """
    done = await stack.docdelta("rollout", "v3.yaml", "--auto")
    assert done.returncode == 0, done.stdout + done.stderr
    wanted = {change.event_id for change in newest}
    built = [receipt for receipt in await receipts_of(stack, FIRST_AGAIN) if receipt.event_id in wanted]
    assert len(built) == len(newest)
    assert sum(receipt.embedded for receipt in built) == 0
    assert sum(receipt.borrowed for receipt in built) == sum(receipt.added for receipt in built) > 0


async def a_collection_of_the_right_size_and_another_spec_is_refused(stack: Rig) -> None:
    """Another prefix is another batch; and a collection under its name that says another spec is neither written nor served."""
    wanted = load_policy(OTHER_PREFIX)
    assert wanted.batch_id != batch_of(SECOND)
    lookalike = CollectionSpec(wanted.batch_id, wanted.fingerprint, Embedding(model=NAME).spec, DIMENSIONS, "cosine")
    await stack.shim.index.ensure_collection(wanted.batch_id, lookalike)
    done = await stack.docdelta("rollout", "v4.yaml", "--auto", "--timeout", "3")
    assert done.returncode == 1, done.stdout + done.stderr
    assert "FAIL metadata: embedding_spec is" in done.stdout
    assert await stack.shim.index.count(wanted.batch_id) == 0
    assert await stack.shim.index.alias_target("docdelta") == batch_of(FIRST_AGAIN)
    assert stack.workers["one"].poll() is None
