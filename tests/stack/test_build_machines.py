"""A build on a machine of its own: `docdelta worker --only batch:ID` beside machines that serve what readers see.

Costs about half a minute on two quiet cores.
"""

from __future__ import annotations

import asyncio
import time
from dataclasses import replace
from pathlib import Path

import pytest

from chunking.policy import load_policy
from schemas.document_change import DocumentChange
from streams.settings import KafkaSettings
from tests.stack.rig import POLICY, Rig, a_page, delete, rig, upsert
from tests.support.patience import PATIENCE

pytestmark = pytest.mark.kafka

GREEN = POLICY.replace("version: 1", "version: 2").replace("max_tokens: 120", "max_tokens: 60")
BLUE_BATCH, GREEN_BATCH = load_policy(POLICY).batch_id, load_policy(GREEN).batch_id
LONG = {"DOCDELTA_WORKER__HANDOVER_GRACE_SECONDS": "240"}
"""So long that nothing which waits for commits ends within this test."""


async def test_a_build_runs_on_its_own_machine_and_its_death_is_not_felt_by_the_served_batch(
    apache_settings: KafkaSettings, tmp_path: Path, fresh: str
) -> None:
    async with rig(apache_settings, tmp_path, fresh) as stack:
        (tmp_path / "green.yaml").write_text(GREEN, encoding="utf-8")
        stack.start("front", only="parser")
        stack.start("live", only=f"batch:{BLUE_BATCH}")
        newest = {f"d{n}": upsert(f"d{n}", 1, a_page(f"d{n}")) for n in range(10)}
        await stack.put(*newest.values())

        build = stack.start("build", only=f"batch:{GREEN_BATCH}")  # before there is such a batch: it waits
        rolling = asyncio.create_task(stack.docdelta("rollout", "green.yaml", "--auto", "--rate", "0.02"))
        await stack.receipts_when(lambda found: any(receipt.batch == GREEN_BATCH for receipt in found))
        build.kill()
        build.wait()
        await edit(stack, newest, "d0", BLUE_BATCH)  # nobody builds, and an edit goes through
        assert not rolling.done()
        stack.start("build", only=f"batch:{GREEN_BATCH}", **LONG)
        faster = await stack.docdelta("pace", GREEN_BATCH, "off")
        assert faster.returncode == 0, faster.stderr

        done = await rolling
        assert done.returncode == 0, done.stdout + done.stderr
        assert await stack.shim.index.alias_target("docdelta") == GREEN_BATCH
        await edit(stack, newest, "d1", BLUE_BATCH, GREEN_BATCH)
        newest["d2"] = delete("d2", 2)
        await stack.send(newest["d2"])
        await in_each(stack, newest["d2"], BLUE_BATCH, GREEN_BATCH)
        await stack.check(newest.values())
        await replace(stack, policy=load_policy(GREEN)).check(newest.values())

        assert not batches_of(tmp_path / "state-front")
        assert batches_of(tmp_path / "state-live") == {BLUE_BATCH}
        assert batches_of(tmp_path / "state-build") == {GREEN_BATCH}
        back = await stack.docdelta("rollback")
        assert back.returncode == 0, back.stdout + back.stderr


def batches_of(folder: Path) -> set[str]:
    """Return the batches that a worker has local state of."""
    return {each.name.partition("-batch-")[2] for each in folder.iterdir() if "-batch-" in each.name}


async def edit(stack: Rig, newest: dict[str, DocumentChange], document: str, *batches: str) -> None:
    """Publish an edit and wait until it is in each of the batches."""
    newest[document] = upsert(document, 2, a_page(document, edit=" today"))
    await stack.send(newest[document])
    await in_each(stack, newest[document], *batches)


async def in_each(stack: Rig, change: DocumentChange, *batches: str) -> None:
    began = time.monotonic()
    wanted = {(change.event_id, batch) for batch in batches}
    while not wanted <= {(receipt.event_id, receipt.batch) for receipt in await stack.receipts()}:
        assert time.monotonic() - began < PATIENCE, wanted
        await asyncio.sleep(0.2)
