"""Each kind of drift, made by hand in index or log, is named exactly, shows at /metrics, is mended by events, and stays away.

About 60 s on two cores.
"""

from __future__ import annotations

import asyncio
import json
import shutil
import time
from pathlib import Path
from typing import Any

from qdrant_client import models

from chunking.identity import point_id
from schemas.codec import decode
from schemas.document_change import DocumentChange
from schemas.receipt import Receipt
from streams.index.marks import marks_of
from streams.kafka.admin import delete_topics
from streams.kafka.client import make_admin
from streams.kafka.partitioner import partition_of
from streams.kafka.produce import OutRecord, produce_all
from streams.kafka.read import read_topic
from streams.ports import StoredPoint
from streams.settings import KafkaSettings
from tests.stack.rig import PARTITIONS, Rig, a_page, delete, rig, upsert
from tests.stack.scrape import free_port, scrape_when
from tests.support.patience import PATIENCE

DRIFT, CLEAN, KILLED = 6, 0, -9
OFTEN = {"DOCDELTA_AUDIT__EVERY_SECONDS": "1", "DOCDELTA_AUDIT__POINTS_PER_SECOND": "5000"}


async def audit(stack: Rig, *options: str, **expected: int) -> dict[str, Any]:
    """Run an audit; the counts it gives must be exactly these."""
    done = await stack.docdelta("audit", "--json", *options)
    assert done.returncode == (DRIFT if expected else CLEAN), done.stdout + done.stderr
    report: dict[str, Any] = json.loads(done.stdout)
    assert report["counts"] == expected, done.stdout
    return report


async def audit_when_clean(stack: Rig, *options: str) -> dict[str, Any]:
    """Run audits until one is clean with nothing on its way."""
    deadline = time.monotonic() + PATIENCE
    while True:
        done = await stack.docdelta("audit", "--json", *options)
        assert done.returncode in (CLEAN, DRIFT), done.stderr
        report: dict[str, Any] = json.loads(done.stdout)
        if report["clean"] and not report["in_flight"]:
            return report
        assert time.monotonic() < deadline, done.stdout
        await asyncio.sleep(0.5)


async def points_of(stack: Rig, document: str, tenant: str = "acme") -> list[StoredPoint]:
    return await stack.shim.index.document_points(stack.collection, tenant, document)


async def by_hand(stack: Rig, *operations: models.UpdateOperation) -> None:
    """Change the index behind everybody's back."""
    await stack.shim.index.store.batch(stack.collection, operations)


def set_fields(point: StoredPoint, **fields: Any) -> models.UpdateOperation:
    change = models.SetPayload(payload=fields, points=[point_id(point.chunk_id)])
    return models.SetPayloadOperation(set_payload=change)


def insert(name: str, payload: dict[str, Any], size: int) -> models.UpdateOperation:
    made = models.PointStruct(id=point_id(name), vector={"dense": [1.0] * size}, payload=payload)
    return models.UpsertOperation(upsert=models.PointsList(points=[made]))


def remove(point: StoredPoint) -> models.UpdateOperation:
    return models.DeleteOperation(delete=models.PointIdsList(points=[point_id(point.chunk_id)]))


async def changelog(stack: Rig, key: bytes, value: bytes | None) -> None:
    """Write over a manifest in the log, as a broken disk might."""
    await asyncio.to_thread(produce_all, stack.kafka, [OutRecord(_manifests(stack), key, value)])


def _manifests(stack: Rig) -> str:
    topics = stack.settings.topics
    return topics.changelog(topics.batch_group(stack.policy.batch_id), topics.manifests_table)


async def manifest_of(stack: Rig, key: bytes) -> bytes:
    records = await asyncio.to_thread(lambda: list(read_topic(stack.kafka, _manifests(stack))))
    return next(record.value for record in reversed(records) if record.key == key and record.value)


async def embedded(stack: Rig) -> int:
    """Return how many embeddings were made so far."""
    first: dict[tuple[str, str], Receipt] = {}
    for receipt in await stack.receipts():
        first.setdefault((receipt.event_id, receipt.batch), receipt)
    return sum(receipt.embedded for receipt in first.values())


async def test_each_fault_is_named_mended_and_stays_away(tansu_settings: KafkaSettings, tmp_path: Path, fresh: str) -> None:
    port = free_port()
    size = 64
    async with rig(tansu_settings, tmp_path, fresh) as stack:
        stack.start(DOCDELTA_WORKER__METRICS_PORT=str(port), **OFTEN)
        pages = {f"d{n}": upsert(f"d{n}", 10, a_page(f"d{n}", sections=5)) for n in range(12)}
        await stack.put(*pages.values())
        alive = await manifest_of(stack, b"acme/d11")
        pages["d11"] = delete("d11", 20)
        await stack.put(pages["d11"])
        await audit_when_clean(stack, "--sample", "1000")

        # Live edits while audits run: no false alarm.
        editing = asyncio.create_task(_edit(stack, pages, rounds=6))
        while not editing.done():
            done = await stack.docdelta("audit", "--json", "--sample", "20")
            assert json.loads(done.stdout)["counts"] == {}, done.stdout
        await editing
        first = await audit_when_clean(stack)
        assert first["points_read"] < first["points"], "what stands still is not read"

        await _break_the_index(stack, size)
        before = await embedded(stack)
        in_index = {"missing_point": 2, "left_over_point": 3, "wrong_payload": 1, "wrong_order": 1}
        shown = await scrape_when(
            port, lambda seen: all(seen.sum("docdelta_drift_points", kind=kind) == count for kind, count in in_index.items())
        )
        assert shown.sum("docdelta_audit_compared_points_total") > 0
        assert shown.sum("docdelta_audit_read_points_total") > 0
        await audit(stack, **in_index)
        told = await stack.docdelta("audit", "--tenant", "acme")
        assert "acme/d0 chk_" in told.stdout, told.stdout
        assert "to mend it: docdelta audit --repair" in told.stdout
        with_sample = in_index | {"wrong_vector": 1, "wrong_payload": 2}
        await audit(stack, "--sample", "1000", **with_sample)

        await _killed_repairs(stack)
        report = await audit(stack, "--sample", "1000", "--repair", left_over_point=1)
        assert report["repair"] == {"sent_again": 0, "deleted": 1, "left": []}, "the delete of what nobody knows was not out"
        await audit_when_clean(stack, "--sample", "1000")
        await stack.check(pages.values())
        assert await embedded(stack) - before == 3, "two points that were missing, and one vector"
        await scrape_when(port, lambda seen: len(seen.all("docdelta_drift_points")) == 4 and seen.sum("docdelta_drift_points") == 0)

        await _break_the_log(stack, alive)
        (tmp_path / "inventory.jsonl").write_text(_inventory(pages), encoding="utf-8")
        in_log = {"document_without_manifest": 1, "manifest_without_document": 1, "deleted_but_present": 1}
        at_source = {"missing_here": 1, "unknown_at_source": 1, "older_than_source": 1}
        missing = {"missing_point": 20}  # of two manifests that the log made up
        await audit(stack, "--inventory", "inventory.jsonl", **missing, **in_log, **at_source)
        report = await audit(stack, "--repair", **missing, **in_log)
        assert report["repair"]["sent_again"] == 2
        assert {each["kind"] for each in report["repair"]["left"]} == {"manifest_without_document", "missing_point"}
        await changelog(stack, b"acme/made-up", None)
        await audit_when_clean(stack)
        await stack.check(pages.values())
        assert await embedded(stack) - before == 3


async def _killed_repairs(stack: Rig) -> None:
    """A repair dies when the first hash is taken away, and a second one when the documents are sent again; then wait for these."""
    for step in ("repair.spoiled", "repair.sent"):
        died = await stack.docdelta("audit", "--sample", "1000", "--repair", DOCDELTA_CRASH_AT=f"{step}:1")
        assert died.returncode == KILLED, died.stdout + died.stderr
    documents = await asyncio.to_thread(lambda: list(read_topic(stack.kafka, stack.settings.topics.documents)))
    sent = [change.event_id for record in documents if record.value and (change := decode(record.value, DocumentChange)).reindex]
    assert len(sent) == len(set(sent)) == 6
    await stack.outcomes(sent)
    deadline = time.monotonic() + PATIENCE
    while (report := json.loads((await stack.docdelta("audit", "--json")).stdout))["counts"] != {"left_over_point": 1}:
        assert time.monotonic() < deadline, report
        await asyncio.sleep(0.5)


async def _edit(stack: Rig, pages: dict[str, Any], rounds: int) -> None:
    for number in range(rounds):
        edits = {
            f"d{n}": upsert(f"d{n}", 30 + number, a_page(f"d{n}", sections=5 + (n + number) % 2, edit=f" {number}"))
            for n in range(11)
            if (n + number) % 3 == 0
        }
        pages |= edits
        await stack.put(*edits.values())


async def _break_the_index(stack: Rig, size: int) -> None:
    """One fault of each kind in a document of its own; d0 loses two points."""
    held = {f"d{n}": await points_of(stack, f"d{n}") for n in range(7)}
    stray = {**held["d1"][0].payload, "chunk_id": "chk_" + "1" * 64}
    marked = {**held["d1"][1].payload, "chunk_id": "chk_" + "2" * 64, "bucket": 0, "digest": 5}
    ghost = {**stray, "chunk_id": "chk_" + "3" * 64, "document_id": "ghost"}
    ghost |= marks_of(ghost["chunk_id"], ghost, partition_of(b"acme/ghost", PARTITIONS))
    turned = models.PointVectors(id=point_id(held["d4"][1].chunk_id), vector={"dense": [1.0] * size})
    await by_hand(
        stack,
        remove(held["d0"][0]),
        remove(held["d0"][2]),
        insert(stray["chunk_id"], stray, size),
        insert(marked["chunk_id"], marked, size),
        insert(ghost["chunk_id"], ghost, size),
        set_fields(held["d2"][1], payload_hash="0" * 32, digest=1, text="of an older release"),
        set_fields(held["d3"][1], order_key=held["d3"][0].payload["order_key"] + 1, digest=2),
        models.UpdateVectorsOperation(update_vectors=models.UpdateVectors(points=[turned])),
        set_fields(held["d5"][1], acl=["everybody"]),
    )
    # d6: a manifest that is right, a point with a digest of nothing. Looked at, and no drift.
    await by_hand(stack, set_fields(held["d6"][0], digest=3))


async def _break_the_log(stack: Rig, alive: bytes) -> None:
    """d8's manifest is forgotten, that of d11 lives again, and there is one of a document that nobody sent."""
    await changelog(stack, b"acme/d8", None)
    await changelog(stack, b"acme/d11", alive)
    await changelog(stack, b"acme/made-up", alive)


def _inventory(pages: dict[str, Any]) -> str:
    """The source has one document more and one less than the log, and one of a newer revision."""
    rows = [
        {"tenant": "acme", "document": name, "revision": change.revision + (name == "d1")}
        for name, change in pages.items()
        if change.op == "upsert" and name != "d2"
    ]
    return "".join(json.dumps(row) + "\n" for row in [*rows, {"tenant": "acme", "document": "only-there", "revision": 1}])


async def test_state_lost_altogether_is_rebuilt_from_index_and_log(
    apache_settings: KafkaSettings, tmp_path: Path, fresh: str
) -> None:
    """Changelogs and local tables of parser and batch are gone between two lives. A re-sync embeds nothing; nothing comes back."""
    async with rig(apache_settings, tmp_path, fresh) as stack:
        stack.start()
        pages = {f"d{n}": upsert(f"d{n}", 10, a_page(f"d{n}")) for n in range(8)}
        await stack.put(*pages.values())
        pages |= {"d1": upsert("d1", 20, a_page("d1", edit=" again")), "d6": delete("d6", 20), "d7": delete("d7", 20)}
        await stack.put(pages["d1"], pages["d6"], pages["d7"])
        await stack.stop()
        before, ids = await embedded(stack), set(await stack.points())

        topics = stack.settings.topics
        seen = topics.changelog(topics.parser_group, topics.seen_table)
        await asyncio.to_thread(delete_topics, make_admin(stack.kafka), [_manifests(stack), seen])
        shutil.rmtree(tmp_path / "state-one")
        made = await stack.docdelta("topics", "apply")
        assert made.returncode == 0, made.stderr
        assert made.stdout.count("created") == 2

        # The re-sync of a source: everything that lives, under its revision. Old events of deleted documents come late.
        stack.start()
        again = [change.model_copy(update={"event_id": f"again-{name}"}) for name, change in pages.items() if change.op == "upsert"]
        again[0] = again[0].model_copy(update={"revision": 30})
        pages["d0"] = again[0]
        late = [upsert("d6", 5, a_page("d6"), event_id="late-d6"), upsert("d7", 20, a_page("d7"), event_id="late-d7")]
        outcome = await stack.put(*again, *late)
        assert {receipt.outcome for event, receipt in outcome.items() if event.startswith("again")} == {"unchanged"}
        assert {receipt.outcome for event, receipt in outcome.items() if event.startswith("late")} == {"stale"}
        await stack.check(pages.values())
        rebuilt = await stack.docdelta("reindex", "--all", "--yes")
        assert rebuilt.returncode == 0, rebuilt.stderr
        report = await audit_when_clean(stack, "--sample", "1000")
        await stack.check(pages.values())
        assert set(await stack.points()) == ids
        assert report["documents"] == 6
        assert await embedded(stack) == before, "no embedding for what did not change"
