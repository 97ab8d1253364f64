"""A bulk import waits in its lane: live edits overtake it, nothing of it is lost, whoever dies meanwhile. About a minute in all."""

from __future__ import annotations

import asyncio
import json
from collections import Counter
from pathlib import Path

import pytest

from schemas.codec import decode, encode
from schemas.document_change import DocumentChange
from schemas.receipt import Receipt
from schemas.record import document_key
from streams.controls.release import standing_of
from streams.kafka.offsets import end_offsets
from streams.kafka.read import Follower, read_topic
from streams.lanes.mark import HEADER
from streams.settings import KafkaSettings
from tests.stack.rig import Rig, a_page, rig, upsert
from tests.support.patience import PATIENCE

pytestmark = pytest.mark.kafka


async def test_edits_of_one_tenant_go_before_what_another_imports(
    apache_settings: KafkaSettings, tmp_path: Path, fresh: str
) -> None:
    """Three edits, one after the other, are settled while an import of 600 pages still waits; in one lane, none would be."""
    async with rig(apache_settings, tmp_path, fresh) as stack:
        imported = [
            upsert(f"p{number:03}", 1, f"# Page {number}\n\nOn day {number} the depot is open.", "a") for number in range(600)
        ]
        stack.start()
        await stack.put(upsert("page", 1, a_page("page"), "b"))
        receipts = Follower(stack.kafka, stack.settings.topics.receipts, from_end=True)
        await receipts.start()
        try:
            await stack.send(*imported, lane="bulk")
            overtaken, settled = [], 0
            await _next_of(receipts, "a")  # it is under way
            for revision in range(2, 5):
                await stack.send(upsert("page", revision, a_page("page", edit=f" {revision}"), "b"))
                while (receipt := await _next(receipts)).tenant_id != "b":
                    settled += 1
                assert (receipt.outcome, receipt.revision) == ("indexed", revision)
                overtaken.append(settled)
        finally:
            await receipts.stop()
        assert settled < len(imported), f"imported pages settled before each edit: {overtaken}"

        outcomes = await stack.outcomes(change.event_id for change in imported)
        assert Counter(each.outcome for each in outcomes.values()) == {"indexed": 600}
        await stack.check([*imported, upsert("page", 4, a_page("page", edit=" 4"), "b")])


async def _next(receipts: Follower) -> Receipt:
    record = await asyncio.wait_for(anext(receipts), PATIENCE)
    return decode(record.value or b"", Receipt)


async def _next_of(receipts: Follower, tenant: str) -> Receipt:
    while (receipt := await _next(receipts)).tenant_id != tenant:
        continue
    return receipt


async def test_an_import_goes_on_when_a_worker_is_killed_and_another_comes(
    apache_settings: KafkaSettings, tmp_path: Path, fresh: str
) -> None:
    """A folder through `docdelta sync`, edits that overtake it, a null and garbage; a death, a rebalance, a clean stop."""
    async with rig(apache_settings, tmp_path, fresh) as stack:
        site = tmp_path / "site"
        site.mkdir()
        for number in range(60):
            (site / f"p{number:02}.md").write_text(a_page(f"p{number:02}", 1), encoding="utf-8")
        synced = await stack.docdelta("sync", "site", "--tenant", "acme", "--json")
        said = json.loads(synced.stdout)
        assert (said["lane"], len(said["sent"])) == ("bulk", 60)
        bulk = stack.settings.topics.bulk
        assert sum(end_offsets(stack.kafka, [bulk]).values()) == 60
        await stack.send_raw((document_key("acme", "gone"), None), (b"acme/garbage", b"no event"), topic=bulk)
        edits = [
            upsert(f"p{number:02}.md", 2**52, a_page(f"p{number:02}", 1, edit=" x"), title="Live") for number in range(0, 60, 6)
        ]
        await stack.send(*edits)
        status = json.loads((await stack.docdelta("status", "--json")).stdout)
        feeder = next(group for group in status["groups"] if group["group"] == stack.settings.topics.feeder_group)
        assert (status["bulk_lag"], feeder["lane"], feeder["lag"]) == (62, "bulk", 62)

        stack.start("one", DOCDELTA_CRASH_AT="feeder.forwarded:25")
        assert await asyncio.to_thread(stack.workers["one"].wait, PATIENCE) == -9
        stack.start("two")
        stack.start("three")
        outcomes = await stack.outcomes([*(event["event_id"] for event in said["sent"]), *(edit.event_id for edit in edits)])
        assert {outcomes[edit.event_id].outcome for edit in edits} == {"indexed"}
        await _passed_on(stack)
        passed_on = await _ends_in_edits(stack, edits)
        waited = [record for record in await asyncio.to_thread(lambda: list(read_topic(stack.kafka, bulk))) if record.value]
        assert passed_on == {(record.partition, record.offset) for record in waited}, "what is decided of [bulk] is known by it"
        letters = {letter.key: letter for letter in await stack.dead_letters()}
        assert len(letters) == 2, "the null, which has no revision, and what is no event"

        points = await stack.points()
        titles = Counter(payload["document_id"] for payload in points.values() if payload["title"] == "Live")
        assert titles.keys() == {edit.document_id for edit in edits}, "what waited did not take an edit's place"
        assert {payload["document_id"] for payload in points.values()} == {f"p{number:02}.md" for number in range(60)}
        for name in ("two", "three"):
            code = await stack.stop(name)
            assert code == 0, stack.log(name)[-3000:]


async def _ends_in_edits(stack: Rig, edits: list[DocumentChange]) -> set[tuple[int, int] | None]:
    """Wait until each edit is the last record of its document again, whatever was passed on behind it. Return where that stood."""
    deadline = asyncio.get_running_loop().time() + PATIENCE
    while True:
        records = await asyncio.to_thread(lambda: list(read_topic(stack.kafka, stack.settings.topics.documents)))
        last = {record.key: record.value for record in records}
        if all(last[document_key(edit.tenant_id, edit.document_id)] == encode(edit) for edit in edits):
            return {standing_of(record).waited for record in records if HEADER in record.headers}
        assert asyncio.get_running_loop().time() < deadline, "compaction would keep what an edit has overtaken"
        await asyncio.sleep(0.2)


async def _passed_on(stack: Rig) -> None:
    """Wait until nothing waits in [bulk], by the broker's word."""
    deadline = asyncio.get_running_loop().time() + PATIENCE
    while json.loads((await stack.docdelta("status", "--json")).stdout)["bulk_lag"]:
        assert asyncio.get_running_loop().time() < deadline
        await asyncio.sleep(0.2)
