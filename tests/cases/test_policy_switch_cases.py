"""Cases of the area policy-switch on batches in memory and an index over REST. tests/stack/test_rollout.py has them on a broker.

Each test names its case, and notices when the case has changed in the shared list (where that is beside the repository).
"""

from __future__ import annotations

import asyncio
import json
from dataclasses import dataclass, field, replace
from functools import cache
from pathlib import Path
from typing import Any

import pytest

from chunking.policy import load_policy
from schemas.batch import LaunchRecord
from streams.batches.evidence import Planned, agree
from streams.batches.gate import Evidence, Limits, Verdict, judge
from streams.batches.ledger import Outrun, with_state
from streams.batches.outcomes import Outcomes
from streams.batches.record import collection_spec
from streams.batches.retire import Remover, execute_retire, plan_retire
from streams.batches.rollout import Launcher, execute_rollout, plan_rollout
from streams.batches.switch import execute_switch, plan_switch
from streams.embedders.hashing import hashed
from streams.errors import NotPrepared, PoisonRecord
from streams.index.qdrant import open_index
from streams.ports import IndexPlan, Query
from streams.settings import QdrantSettings
from tests.contracts.qdrant_shim import running_shim
from tests.support.batches import ALIAS, BLUE, DIMENSIONS, GREEN, NAMES, NOW, FlakyIndex, Hosted, Installation, page

CASES = Path(__file__).resolve().parents[2] / "../shared/cases/cases.jsonl"
QUESTION = hashed("what happened on day 1", DIMENSIONS)


@cache
def _cases() -> dict[str, dict[str, Any]]:
    lines = CASES.read_text(encoding="utf-8").split("\n") if CASES.is_file() else []
    return {each["id"]: each for each in map(json.loads, filter(None, lines))}


def still_says(identity: str, words: str) -> None:
    """Assert that the case is what this test was written for, where the shared list is at hand."""
    if _cases():
        assert words in json.dumps(_cases()[identity], ensure_ascii=False), f"case {identity} has changed: look at this test again"


def test_every_case_of_the_area_has_a_test_here() -> None:
    if not _cases():
        pytest.skip("the shared list of cases is not beside the repository")
    here = Path(__file__).read_text(encoding="utf-8")
    area = [identity for identity, case in _cases().items() if case["area"] == "policy-switch"]
    assert [identity for identity in area if f'still_says("{identity}"' not in here] == []


async def a_site(documents: int, index: Any = None) -> tuple[Installation, Hosted]:
    site = Installation() if index is None else Installation(index=index)
    blue = await site.host(BLUE, "active")
    for number in range(documents):
        site.put(f"d{number}", page(f"d{number}", 2))
    await site.drain()
    return site, blue


async def switch_to(site: Installation, hosted: Hosted) -> None:
    plan = plan_switch(site.ledger, hosted.record.batch, await site.index.alias_target(ALIAS))
    await execute_switch(plan, site.ledger, site.clerk, site.index)


async def gate_of(site: Installation, hosted: Hosted) -> Verdict:
    """The gate on evidence gathered from memory instead of a broker."""

    async def read() -> dict[bytes, Planned]:
        return hosted.planned()

    async def at_once(_: float) -> None:
        return None

    record = with_state(site.ledger.batches[hosted.record.batch], launch=LaunchRecord(at=NOW))
    outcomes = Outcomes(record.batch)
    for each in hosted.log.topics[NAMES.receipts]:
        outcomes.take(each)
    spec = collection_spec(record, hosted.policy)
    evidence = Evidence(
        batch=record,
        offsets=(),
        parsed_topic=NAMES.parsed,
        agreement=await agree(read, site.index, record.collection, at_once),
        unknown=(),
        refused=outcomes.of("dead_lettered"),
        held=outcomes.of("held"),
        stray_letters=(),
        readiness=await site.index.readiness(record.collection),
        spec=await site.index.collection_spec(record.collection),
        wanted_spec=spec,
        probes=0,
        missed_probes=(),
    )
    return judge(evidence, Limits())


async def test_po_01_each_setting_that_changes_output_makes_another_batch_and_equal_settings_the_same() -> None:
    still_says("PO-01", "load p1 again under a new name p3 with equal settings")
    site, blue = await a_site(1)
    green = await site.host(GREEN)
    await site.drain()
    for hosted, limit in ((blue, 60), (green, 40)):
        points = await site.points(hosted.record.collection)
        assert points
        assert all(payload["tokens"] <= limit for payload in points.values())
        spec = await site.index.collection_spec(hosted.record.collection)
        assert spec is not None
        assert spec.policy_fingerprint == hosted.policy.fingerprint
    assert not (await site.points(blue.record.collection)).keys() & (await site.points(green.record.collection)).keys()
    policy = load_policy(BLUE)
    changed = [
        BLUE.replace("60", "61"),
        BLUE.replace("{max_tokens: 60}", "{max_tokens: 60, tokenizer: characters}"),
        BLUE.replace("dimensions: 32", "dimensions: 33"),
        BLUE.replace("dimensions: 32", "dimensions: 32, document_prefix: 'passage: '"),
        BLUE.replace("model: hashing-v1", "model: other"),
        BLUE + "rules: [{use: recursive}]\n",
        BLUE + "embed: {title: true}\n",
        BLUE + "payload: {attributes: [owner]}\n",
        BLUE + "identity: strict/1\n",
    ]
    fingerprints = {load_policy(text).fingerprint for text in changed}
    assert len(fingerprints) == len(changed)
    assert policy.fingerprint not in fingerprints
    assert load_policy("# p1 again\n" + BLUE.replace("60", "0x3c")).fingerprint == policy.fingerprint


async def test_po_02_a_half_built_batch_is_told_from_a_whole_one_and_the_rest_alone_is_done() -> None:
    still_says("PO-02", "stop the worker after 40 documents")
    site, blue = await a_site(100)
    green = await site.host(GREEN)
    await site.step(green, documents=40, groups=10)
    assert sum(not document.deleted for document in green.planned().values()) == 40
    assert {receipt.document_id for receipt in green.receipts()} == {f"d{n}" for n in range(40)}
    hits = await site.index.search(ALIAS, Query("acme", QUESTION, limit=20))
    assert hits
    assert {hit.chunk_id for hit in hits} <= (await site.points(blue.record.collection)).keys()
    green = await site.host(GREEN)  # the worker that goes on
    await site.drain(green)
    assert len(green.receipts()) == 100, "the forty are not done again"
    await site.check(green)
    await switch_to(site, green)
    hits = await site.index.search(ALIAS, Query("acme", QUESTION, limit=20))
    assert hits
    assert {hit.chunk_id for hit in hits} <= (await site.points(green.record.collection)).keys()


class Killed(BaseException):
    """A process that dies at a named step."""


@dataclass
class Death:
    """Kills at the n-th effect that is about to happen, or after it."""

    at: int
    count: int = 0

    def effect(self) -> None:
        self.count += 1
        if self.count == self.at:
            raise Killed


@dataclass
class DyingIndex:
    """An index whose alias and collections are touched by a process that may die before or after."""

    inner: FlakyIndex
    death: Death

    async def alias_target(self, alias: str) -> str | None:
        return await self.inner.alias_target(alias)

    async def set_alias(self, alias: str, collection: str) -> None:
        self.death.effect()
        await self.inner.set_alias(alias, collection)
        self.death.effect()

    async def drop_collection(self, name: str) -> None:
        self.death.effect()
        await self.inner.drop_collection(name)
        self.death.effect()


async def test_po_03_killed_at_each_step_and_run_again_it_ends_the_same_and_every_query_is_answered() -> None:
    still_says("PO-03", "kill the process at each step in turn and run it again")
    ends = []
    for at in range(1, 60):
        site, blue = await a_site(3)
        assert isinstance(site.index, FlakyIndex)
        death = Death(at)
        died = False
        for _ in range(2):
            try:
                await _whole_life(site, DyingIndex(site.index, death), death)
                break
            except Killed:
                died = True
            target = await site.index.alias_target(ALIAS)
            assert target in await site.index.collections(), "the alias always points at a collection"
            assert await site.index.search(ALIAS, Query("acme", QUESTION, limit=5))
            green = f"{load_policy(GREEN).batch_id}"
            assert target == green or blue.record.collection in await site.index.collections()
        ends.append((await site.index.alias_target(ALIAS), await site.index.collections()))
        if not died:
            break
    assert at > 8, "the life has many steps to die at"
    assert {(target, tuple(names)) for target, names in ends} == {(load_policy(GREEN).batch_id, (load_policy(GREEN).batch_id,))}


async def _whole_life(site: Installation, index: Any, death: Death) -> None:
    """Roll out, switch, retire the old one: each effect is one at which a process may die."""

    def write(key: bytes, value: bytes) -> None:
        death.effect()
        site.topic.write(key, value)
        death.effect()

    def effect(*_: object) -> None:
        death.effect()

    clerk = replace(site.clerk, write=write)
    policy = load_policy(GREEN)
    plan = plan_rollout(policy, GREEN, site.ledger, ALIAS, NOW)
    if not plan.done:
        launcher = Launcher(effect, lambda served: LaunchRecord(at=NOW))
        execute_rollout(plan, clerk, launcher, site.ledger)
        if plan.record.batch not in site.hosted:
            await site.host(GREEN)
        await site.drain()
        assert (await gate_of(site, site.hosted[plan.record.batch])).passed
    switch = plan_switch(site.ledger, plan.record.batch, await index.alias_target(ALIAS))
    await execute_switch(switch, site.ledger, clerk, index)
    old = load_policy(BLUE).batch_id
    aliases = {ALIAS: str(await index.alias_target(ALIAS))}
    retire = plan_retire(site.ledger, old, aliases, None, NOW, 0, ("group", ("changes",)))
    await execute_retire(retire, site.ledger, clerk, index, Remover(effect, effect, effect, effect))


async def test_po_04_updates_during_the_build_are_in_the_new_batch_and_not_overwritten_by_older_ones() -> None:
    still_says("PO-04", "update d10 (already copied) and d90 (not yet), create d101")
    site, _ = await a_site(100)
    green = await site.host(GREEN)
    await site.step(green, documents=50, groups=10)
    for name in ("d10", "d90", "d101"):
        site.put(name, page(name, 2, " newest"))
    await site.drain()
    await switch_to(site, green)
    target = await site.index.alias_target(ALIAS)
    assert target == green.record.collection
    for name in ("d10", "d90", "d101"):
        points = await site.index.document_points(ALIAS, "acme", name)
        assert any("newest" in point.payload["text"] or "newest" in point.payload["title"] for point in points)
    await site.check(green)


class RefusingIndex(FlakyIndex):
    """An index that refuses some documents of one collection."""

    refused: frozenset[tuple[str, str]] = frozenset()

    async def apply(self, collection: str, plan: IndexPlan) -> None:
        if (collection, plan.document_id) in self.refused:
            raise PoisonRecord("refused by the test", document_id=plan.document_id)
        await super().apply(collection, plan)


async def test_po_06_an_incomplete_build_is_refused_by_name_and_mended_alone() -> None:
    still_says("PO-06", "The switch is refused and d13 and d77 are named")
    index = RefusingIndex()
    site, blue = await a_site(100, index)
    collection = load_policy(GREEN).batch_id
    index.refused = frozenset({(collection, "d13"), (collection, "d77")})
    green = await site.host(GREEN)
    await site.drain(green)
    verdict = await gate_of(site, green)
    assert not verdict.passed
    assert not verdict.may_pass
    assert "acme/d13" in str(verdict)
    assert "acme/d77" in str(verdict)
    assert await index.alias_target(ALIAS) == blue.record.collection
    index.refused = frozenset()
    before = len(green.receipts())
    for name in ("d13", "d77"):
        site._append(site.newest[name].model_copy(update={"event_id": f"again-{name}", "reindex": True}))
    await site.drain()
    assert {receipt.document_id for receipt in green.receipts()[before:]} == {"d13", "d77"}
    verdict = await gate_of(site, green)
    assert verdict.passed, str(verdict)
    await switch_to(site, green)
    await site.check(green)
    await site.check(blue)


@dataclass
class Hammer:
    """Asks through the alias all the time. Every answer must hold hits, all of one batch."""

    url: str
    ids: dict[str, frozenset[str]]
    answers: int = 0
    seen: set[str] = field(default_factory=set)
    faults: list[str] = field(default_factory=list)

    async def run(self) -> None:
        index = open_index(QdrantSettings(url=self.url))
        try:
            while True:
                hits = await index.search(ALIAS, Query("acme", QUESTION, limit=8))
                found = {hit.chunk_id for hit in hits}
                of = [batch for batch, ids in self.ids.items() if found and found <= ids]
                if len(of) != 1:
                    self.faults.append(f"{len(found)} hits of {len(of)} batches")
                self.seen.update(of)
                self.answers += 1
                await asyncio.sleep(0.004)  # the server of both runs in this loop
        finally:
            await index.close()


async def test_po_07_two_hundred_switches_are_never_seen_half_done_and_of_two_operators_one_wins() -> None:
    still_says("PO-07", "poll the alias every millisecond during 50 switches")
    async with running_shim() as shim:
        index = open_index(QdrantSettings(url=shim.url))
        site, blue = await a_site(3, index)
        green = await site.host(GREEN)
        await site.drain()
        both = (blue, green)
        ids = {hosted.record.batch: frozenset(await site.points(hosted.record.collection)) for hosted in both}
        hammer = Hammer(shim.url, ids)
        asking = asyncio.create_task(hammer.run())
        anna, bert = site.topic.clerk("anna@a (process 1)"), site.topic.clerk("bert@b (process 2)")
        outrun = 0
        for number in range(200):
            to, start = both[(number + 1) % 2], site.ledger
            target = await index.alias_target(ALIAS)
            plan = plan_switch(start, to.record.batch, target)
            if number % 10 == 0:  # both at once: bert decided on what anna has changed since
                other = plan_switch(start, to.record.batch, target)
                await execute_switch(plan, start, anna, index)
                with pytest.raises(Outrun, match="anna@a"):
                    await execute_switch(other, start, bert, index)
                outrun += 1
            else:
                await execute_switch(plan, start, anna, index)
            served = site.ledger.served(ALIAS)
            assert served is not None
            assert await index.alias_target(ALIAS) == served.collection == to.record.collection
        asking.cancel()
        await asyncio.gather(asking, return_exceptions=True)
        assert not hammer.faults, hammer.faults[:3]
        assert hammer.answers > 100
        assert hammer.seen == set(ids)
        assert outrun == 20
        aliases = [place for place, _ in shim.seen if place == "POST /collections/aliases"]
        assert len(aliases) == 201, "one request a switch, and the first one"
        with pytest.raises(NotPrepared):
            await index.drop_collection(served.collection)
        await index.close()
