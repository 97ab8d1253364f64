"""Rollouts on Apache Kafka: a policy is built beside the served one while editors, kills and outages go on, and both stay right.

Costs about four minutes in all on two quiet cores; each test begins an installation of its own.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import random
import time
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import pytest

from chunking.document import DocumentKey
from chunking.identity import content_id
from chunking.policy import ChunkPolicy, load_policy
from schemas.document_change import DocumentChange
from schemas.receipt import Receipt
from streams.crash_points import COMMAND_STEPS
from streams.embedders import open_embedder
from streams.kafka.client import cluster_topics, make_admin
from streams.ports import Query, Vector
from streams.settings import EmbedderSettings, KafkaSettings, WorkerSettings
from tests.contracts.qdrant_shim import Fault
from tests.stack.rig import POLICY, Rig, a_page, delete, rig, upsert
from tests.support.patience import PATIENCE

pytestmark = pytest.mark.kafka

SMALLER = POLICY.replace("version: 1", "version: 2").replace("max_tokens: 120", "max_tokens: 60")
MORE_PAYLOAD = POLICY.replace("version: 1", "version: 3").replace("[owner]", "[owner, topic]")
KILLED = -9
GRACE = "handover_grace_seconds"
QUICK = {f"DOCDELTA_WORKER__{GRACE.upper()}": "1"} if GRACE in WorkerSettings.model_fields else {}
"""The gate looks at committed offsets, and a worker commits nothing while a handover is checked."""


def under(stack: Rig, policy: str) -> Rig:
    """Return the same installation seen through another policy: its `check` holds that policy's collection."""
    return replace(stack, policy=load_policy(policy))


@dataclass
class Site:
    """The editors' side: the newest revision of every document, changed at random."""

    stack: Rig
    dice: random.Random
    newest: dict[str, DocumentChange] = field(default_factory=dict)
    events: list[str] = field(default_factory=list)

    async def publish(self, *changes: DocumentChange) -> None:
        for change in changes:
            self.newest[change.document_id] = change
            self.events.append(change.event_id)
        await self.stack.send(*changes)

    async def edit(self, count: int) -> None:
        """Change documents at random: edited, removed, made again, new."""
        for _ in range(count):
            document = f"d{self.dice.randrange(len(self.newest) + 1)}"
            before = self.newest.get(document)
            revision = before.revision + 1 if before else 1
            if before is not None and before.op == "upsert" and self.dice.random() < 0.3:
                await self.publish(delete(document, revision))
            else:
                page = a_page(document, sections=self.dice.randrange(1, 5), edit=f" {revision}")
                await self.publish(upsert(document, revision, page, attributes={"owner": "me", "topic": "t"}))

    async def check(self, *policies: str) -> None:
        """Wait until every event has its outcome in every batch, then hold each collection against a rebuild under its policy."""
        for policy in policies:
            batch = load_policy(policy).batch_id
            wanted = {change.event_id for change in self.newest.values()}
            await self.stack.receipts_when(
                lambda found, batch=batch, wanted=wanted: wanted <= {each.event_id for each in found if each.batch == batch}  # type: ignore[misc]
            )
            await under(self.stack, policy).check(self.newest.values())


@asynccontextmanager
async def a_site(kafka: KafkaSettings, folder: Path, prefix: str, seed: int, documents: int = 12) -> AsyncIterator[Site]:
    """Give an installation with a worker and some documents, and the policies of this module as files."""
    async with rig(kafka, folder, prefix) as stack:
        (folder / "v2.yaml").write_text(SMALLER, encoding="utf-8")
        (folder / "v3.yaml").write_text(MORE_PAYLOAD, encoding="utf-8")
        site = Site(stack, random.Random(seed))
        stack.start(**QUICK)
        about = {"owner": "me", "topic": "t"}
        await site.publish(*(upsert(f"d{n}", 1, a_page(f"d{n}"), attributes=about) for n in range(documents)))
        await stack.outcomes(site.events)
        yield site


async def served(stack: Rig) -> str | None:
    return await stack.shim.index.alias_target("docdelta")


async def until(claim: Callable[[], bool]) -> None:
    """Return when a claim holds; fail when it does not within the rig's patience."""
    deadline = time.monotonic() + PATIENCE
    while not claim():
        assert time.monotonic() < deadline
        await asyncio.sleep(0.1)


def batch_of(policy: str) -> str:
    return load_policy(policy).batch_id


async def test_a_policy_is_rolled_out_back_and_out_again_while_editors_go_on(
    apache_settings: KafkaSettings, tmp_path: Path, fresh: str
) -> None:
    """PO-04: live upserts, deletes and re-creations reach both batches; either can be served at any moment until `retire`."""
    async with a_site(apache_settings, tmp_path, fresh, seed=1) as site:
        stack = site.stack
        preview = await stack.docdelta("rollout", "v2.yaml", "--dry-run")
        assert preview.returncode == 0, preview.stderr
        assert "sample: 12 of 12 documents" in preview.stdout
        assert "embedded" in preview.stdout
        assert batch_of(SMALLER) not in await stack.shim.index.collections()

        rolling = asyncio.create_task(stack.docdelta("rollout", "v2.yaml", "--auto"))
        while not rolling.done():
            await site.edit(1)
            await asyncio.sleep(0.2)  # the editors' pace
        done = rolling.result()
        assert done.returncode == 0, done.stdout + done.stderr
        assert "docdelta rollback" in done.stdout
        assert await served(stack) == batch_of(SMALLER)
        await site.edit(6)
        await site.check(POLICY, SMALLER)

        back = await stack.docdelta("rollback")
        assert back.returncode == 0, back.stdout + back.stderr
        assert await served(stack) == batch_of(POLICY)
        await site.edit(6)
        await site.check(POLICY, SMALLER)
        again = await stack.docdelta("switch", batch_of(SMALLER))
        assert again.returncode == 0, again.stdout + again.stderr
        assert await served(stack) == batch_of(SMALLER)

        await retire_leaves_nothing(site)
        await a_policy_that_comes_back_gets_a_new_name(site)
        await stack.stop()


async def retire_leaves_nothing(site: Site) -> None:
    """PO-03: the old batch goes only when nothing points at it and its grace period is over, or with force; then all of it goes."""
    stack, old = site.stack, batch_of(POLICY)
    for refused in (("retire", batch_of(SMALLER), "--yes", "--force"), ("retire", old, "--yes")):
        done = await stack.docdelta(*refused)
        assert done.returncode == 5, done.stdout + done.stderr
    assert "--force it goes now, and the way back" in done.stderr
    state = stack.folder / "state-one" / f"{stack.kafka.topic_prefix}-batch-{old}"
    assert state.is_dir()
    done = await stack.docdelta("retire", old, "--yes", "--force")
    assert done.returncode == 0, done.stdout + done.stderr
    assert old not in await stack.shim.index.collections()
    own = stack.kafka.topic_prefix
    assert not [topic for topic in cluster_topics(make_admin(stack.kafka)) if topic.startswith(own) and old in topic]
    admin = make_admin(stack.kafka)
    groups = admin.list_consumer_groups(request_timeout=15).result().valid
    assert not [group.group_id for group in groups if group.group_id.startswith(own) and old in group.group_id]
    await until(lambda: not state.exists())
    assert stack.workers["one"].poll() is None


class Renamed(Rig):
    """The same installation, seen through the second batch of its first policy."""

    @property
    def collection(self) -> str:
        return f"{self.policy.batch_id}.2"


async def a_policy_that_comes_back_gets_a_new_name(site: Site) -> None:
    stack = site.stack
    done = await stack.docdelta("rollout", "policy.yaml", "--auto")
    assert done.returncode == 0, done.stdout + done.stderr
    assert await served(stack) == f"{batch_of(POLICY)}.2"
    await Renamed(**vars(stack)).check(site.newest.values())
    listed = json.loads((await stack.docdelta("batches", "--all", "--json")).stdout)["batches"]
    assert {row["batch"]: row["state"] for row in listed} == {
        batch_of(POLICY): "retired",
        batch_of(SMALLER): "warm",
        f"{batch_of(POLICY)}.2": "active",
    }


async def test_a_rollout_killed_at_every_step_ends_the_same_and_readers_never_notice(
    apache_settings: KafkaSettings, tmp_path: Path, fresh: str
) -> None:
    """PO-02, PO-03: kill -9 of the command at each named step, of a worker between them; a reader asks all the while."""
    async with a_site(apache_settings, tmp_path, fresh, seed=2) as site, a_reader(site) as reader:
        stack = site.stack
        for step in [step for step in COMMAND_STEPS if step.startswith(("rollout", "switch"))]:
            died = await stack.docdelta("rollout", "v2.yaml", "--auto", DOCDELTA_CRASH_AT=f"{step}:1")
            assert died.returncode == KILLED, f"{step}: {died.stdout}{died.stderr}"
            assert await served(stack) == (batch_of(SMALLER) if step == "switch.pointed" else batch_of(POLICY)), step
            await site.edit(2)
            if step == "rollout.building":
                stack.workers["one"].kill()
                stack.shim.faults += [Fault(status=503)] * 20
                stack.start("one", **QUICK)
            if step == "switch.claimed":
                listed = await stack.docdelta("batches")
                assert listed.returncode == 1
                assert "is active, alias docdelta points at" in listed.stderr
        done = await stack.docdelta("rollout", "v2.yaml", "--auto")
        assert done.returncode == 0, done.stdout + done.stderr
        assert await served(stack) == batch_of(SMALLER)
        await site.check(POLICY, SMALLER)
        reader.check()
        assert reader.seen == {batch_of(POLICY), batch_of(SMALLER)}
        for step in [step for step in COMMAND_STEPS if step.startswith("retire")]:
            died = await stack.docdelta("retire", batch_of(POLICY), "--yes", "--force", DOCDELTA_CRASH_AT=f"{step}:1")
            assert died.returncode == KILLED, f"{step}: {died.stdout}{died.stderr}"
        done = await stack.docdelta("retire", batch_of(POLICY), "--yes")
        assert done.returncode == 0, done.stdout + done.stderr
        assert await stack.shim.index.collections() == [batch_of(SMALLER)]
        own, old = stack.kafka.topic_prefix, batch_of(POLICY)
        assert not [topic for topic in cluster_topics(make_admin(stack.kafka)) if topic.startswith(own) and old in topic]
        await site.edit(3)
        await site.check(SMALLER)


@dataclass
class Reader:
    """Asks through the alias without a pause; every answer must be of exactly one policy, and none empty."""

    site: Site
    vector: Vector
    seen: set[str] = field(default_factory=set)
    answers: int = 0
    faults: list[str] = field(default_factory=list)
    policies: tuple[ChunkPolicy, ...] = (load_policy(POLICY), load_policy(SMALLER))

    async def run(self) -> None:
        while True:
            hits = await self.site.stack.shim.index.search("docdelta", Query("acme", self.vector, limit=8))
            self.answers += 1
            of = [policy.batch_id for policy in self.policies if all(is_of(hit.payload, policy) for hit in hits)]
            if not hits:
                self.faults.append("empty answer")
            elif len(of) != 1:
                self.faults.append(f"answer of {len(of)} policies")
            self.seen.update(of)
            await asyncio.sleep(0.005)

    def check(self) -> None:
        assert not self.faults, self.faults[:5]
        assert self.answers > 100


def is_of(payload: Mapping[str, Any], policy: ChunkPolicy) -> bool:
    """Return whether a hit's id is one that this policy gives to its words."""
    key = DocumentKey(payload["tenant_id"], payload["document_id"])
    text = policy.embedding.document_prefix + payload.get("repeat", "") + payload.get("rendering", payload["text"])
    return any(content_id(key, policy.fingerprint, text, twin) == payload["chunk_id"] for twin in range(3))


@asynccontextmanager
async def a_reader(site: Site) -> AsyncIterator[Reader]:
    embedder = open_embedder(EmbedderSettings(kind="hashing"), load_policy(POLICY).embedding)
    (vector,) = await embedder.embed(["what the depot does on day 1"])
    reader = Reader(site, vector)
    asking = asyncio.create_task(reader.run())
    try:
        yield reader
        if asking.done():
            asking.result()
    finally:
        asking.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await asking


async def test_a_build_that_lost_documents_is_refused_by_name_until_they_are_mended(
    apache_settings: KafkaSettings, tmp_path: Path, fresh: str
) -> None:
    """PO-06: two documents that the index refuses; the switch is refused, names them, and goes through once they are sent again."""
    async with a_site(apache_settings, tmp_path, fresh, seed=3, documents=8) as site:
        stack = site.stack
        stack.shim.faults += [Fault(match=f"/{batch_of(SMALLER)}/points/batch", status=422, words="refused by the test")] * 2
        done = await stack.docdelta("rollout", "v2.yaml", "--auto")
        assert done.returncode == 1, done.stdout + done.stderr
        assert "FAIL refused: 2 documents" in done.stdout
        lost = sorted(d.document_id for d in await stack.dead_letters() if d.batch == batch_of(SMALLER))
        assert len(lost) == 2
        assert all(f"acme/{document}" in done.stdout for document in lost)
        assert await served(stack) == batch_of(POLICY)

        before = await stack.receipts()
        again = [site.newest[d].model_copy(update={"event_id": f"again-{d}", "reindex": True}) for d in lost]
        await site.publish(*again)
        done = await stack.docdelta("rollout", "v2.yaml", "--auto")
        assert done.returncode == 0, done.stdout + done.stderr
        assert await served(stack) == batch_of(SMALLER)
        since = [receipt for receipt in await stack.receipts() if receipt not in before]
        touched = {receipt.document_id for receipt in since if receipt.batch == batch_of(SMALLER)}
        assert touched == set(lost), "only these two are processed"
        await site.check(POLICY, SMALLER)


async def test_a_change_of_payload_rules_embeds_nothing_and_a_pace_can_be_set_while_it_runs(
    apache_settings: KafkaSettings, tmp_path: Path, fresh: str
) -> None:
    async with a_site(apache_settings, tmp_path, fresh, seed=4) as site:
        stack = site.stack
        slow = asyncio.create_task(stack.docdelta("rollout", "v3.yaml", "--auto", "--rate", "0.02"))
        await stack.receipts_when(lambda found: any(receipt.batch == batch_of(MORE_PAYLOAD) for receipt in found))
        other = await stack.docdelta("rollout", "v2.yaml", "--auto")
        assert other.returncode == 5, other.stdout + other.stderr
        assert "one build at a time" in other.stderr
        assert "(process " in other.stderr
        assert not slow.done()
        faster = await stack.docdelta("pace", batch_of(MORE_PAYLOAD), "off")
        assert faster.returncode == 0, faster.stderr
        done = await slow
        assert done.returncode == 0, done.stdout + done.stderr
        first: dict[str, Receipt] = {}
        for receipt in await stack.receipts():
            if receipt.batch == batch_of(MORE_PAYLOAD):
                first.setdefault(receipt.event_id, receipt)
        of_green = list(first.values())
        assert sum(receipt.embedded for receipt in of_green) == 0
        assert sum(receipt.borrowed for receipt in of_green) == sum(receipt.added for receipt in of_green) > 0
        await site.check(POLICY, MORE_PAYLOAD)
        other_text = MORE_PAYLOAD.replace("max_tokens: 120", "max_tokens: 99")
        (stack.folder / "changed.yaml").write_text(other_text, encoding="utf-8")
        refused = await stack.docdelta("rollout", "changed.yaml", "--auto")
        assert refused.returncode == 5
        assert "+limits: {max_tokens: 99}" in refused.stderr
        await a_build_that_can_not_be_hosted_takes_nobody_down(site)


async def a_build_that_can_not_be_hosted_takes_nobody_down(site: Site) -> None:
    """A model that no worker has: the worker says so where commands look, goes on with what is served; the build is given up."""
    stack = site.stack
    absent = POLICY.replace("version: 1", "version: 4").replace("hashing-v1", "absent-model")
    (stack.folder / "v4.yaml").write_text(absent, encoding="utf-8")
    done = await stack.docdelta("rollout", "v4.yaml", "--auto")  # and it does not wait for ever
    assert done.returncode == 5, done.stdout + done.stderr
    assert "time unknown here" in done.stdout
    words = f"no worker hosts {batch_of(absent)}: "
    assert words in done.stderr
    assert "absent-model" in done.stderr.partition(words)[2]
    assert "build can't be hosted here" in stack.log()
    listed, status = await stack.docdelta("batches"), await stack.docdelta("status", "--json")
    assert words in listed.stdout
    assert (listed.returncode, status.returncode) == (0, 0), "what is served goes on"
    assert [problem.startswith(words) for problem in json.loads(status.stdout)["build_problems"]] == [True]
    await site.edit(2)
    await site.check(POLICY, MORE_PAYLOAD)
    gone = await stack.docdelta("retire", batch_of(absent), "--yes")
    assert gone.returncode == 0, gone.stdout + gone.stderr
    code = await stack.stop()
    assert code == 0, stack.log()[-2000:]
