"""A batch that an earlier release built, which cut otherwise: no worker of this one touches it, and the way on is open."""

from __future__ import annotations

import asyncio
from pathlib import Path

from schemas.codec import encode
from streams.batches.ledger import read_ledger
from streams.kafka.produce import OutRecord, produce_all
from streams.settings import KafkaSettings
from tests.stack.rig import POLICY, rig, upsert
from tests.support.patience import PATIENCE

NEXT = POLICY.replace("version: 1", "version: 2")


async def test_a_batch_of_a_release_that_cut_otherwise_is_left_alone_and_can_be_rolled_out_anew(
    tansu_settings: KafkaSettings, tmp_path: Path, fresh: str
) -> None:
    async with rig(tansu_settings, tmp_path, fresh) as stack:
        topics = stack.settings.topics
        (served,) = (await asyncio.to_thread(read_ledger, stack.settings)).in_order()
        earlier = served.model_copy(update={"policy_fingerprint": "0" * 64, "after": None})
        await asyncio.to_thread(produce_all, stack.kafka, [OutRecord(topics.batches, served.batch.encode(), encode(earlier))])

        worker = stack.start()
        assert await asyncio.to_thread(worker.wait, PATIENCE) == 1, stack.log()
        assert "leave the batch to workers of the release that built it" in stack.log()
        assert stack.shim.writes == []

        stack.start("parser", only="parser")
        await stack.send(upsert("d", 1, "# Page\n\nSome words.\n"))
        (tmp_path / "next.yaml").write_text(NEXT, encoding="utf-8")
        same = await stack.docdelta("rollout", "policy.yaml", "--dry-run")
        assert same.returncode != 0
        assert "this release cuts otherwise" in same.stderr, same.stderr
        shown = await stack.docdelta("rollout", "next.yaml", "--dry-run")
        assert shown.returncode == 0, shown.stderr
        assert "was built by a release that cuts otherwise" in shown.stderr
