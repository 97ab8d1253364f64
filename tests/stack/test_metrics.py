"""Numbers are true: a scripted history gives exactly its figures at `/metrics`; lag is seen by others; health says what it should.

About 40 s on two cores.
"""

from __future__ import annotations

import asyncio
import time
from pathlib import Path

from schemas.codec import decode, encode
from schemas.receipt import Receipt
from streams import metrics
from streams.kafka.produce import OutRecord, produce_all
from streams.kafka.read import read_topic
from streams.settings import KafkaSettings
from tests.contracts.qdrant_shim import Fault, rate_limited
from tests.stack.rig import PARTITIONS, Rig, a_page, delete, rig, upsert
from tests.stack.scrape import Scrape, free_port, get, scrape, scrape_when

CHECKED_BY_LAG = {"DOCDELTA_WORKER__LAG_SECONDS": "1"}
TRACEPARENT = b"00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"


def _port(port: int) -> dict[str, str]:
    return {"DOCDELTA_WORKER__METRICS_PORT": str(port), **CHECKED_BY_LAG}


def _no_lag(found: Scrape) -> bool:
    return found.sum("docdelta_lag_read_timestamp_seconds") > 0 and found.sum("docdelta_consumer_lag_records") == 0


def _lags_by(found: Scrape, group: str, records: int) -> bool:
    """Whether a group lags by so many records, and no other group at all."""
    return found.sum("docdelta_consumer_lag_records") == found.sum("docdelta_consumer_lag_records", group=group) == records


async def test_a_scripted_history_gives_exactly_its_figures(tansu_settings: KafkaSettings, tmp_path: Path, fresh: str) -> None:
    port = free_port()
    async with rig(tansu_settings, tmp_path, fresh) as stack:
        stack.start(DOCDELTA_WORKER__CANARY_TENANT="probe", **_port(port))
        await scrape_when(port, lambda found: found.sum("docdelta_canary_written_total") > 0)
        await stack.receipts_when(lambda receipts: any(receipt.tenant_id == "probe" for receipt in receipts))

        first = [upsert(f"d{n}", 1, a_page(f"d{n}")) for n in range(6)]
        built = await stack.put(*first)
        edit, moved = upsert("d0", 2, a_page("d0", edit=" today")), upsert("d1", 2, a_page("d1"), title="Another")
        same, gone = upsert("d2", 2, a_page("d2")), delete("d3", 2)
        late, broken = upsert("d0", 1, "late", event_id="late"), upsert("d4", 2, "x", media_type="application/x-nonsense")
        traced = OutRecord(stack.settings.topics.documents, b"acme/d0", encode(edit), {"traceparent": TRACEPARENT})
        await asyncio.to_thread(produce_all, stack.kafka, [traced])
        outcome = await stack.put(moved, same, gone, late, broken) | await stack.outcomes([edit.event_id])
        assert outcome[broken.event_id].outcome == "dead_lettered"
        await stack.send_raw((b"nonsense", b"{"))  # no document: a dead letter and no receipt
        found, truth, canaries = await _at_rest(stack, port)
        assert len(truth) == 12 + canaries, "an event has one receipt"
        for name in metrics.OUTCOMES:
            for stage in metrics.STAGES:
                expected = sum(receipt.outcome == name and receipt.stage == stage for receipt in truth)
                assert found.sum("docdelta_documents_total", outcome=name, stage=stage) == expected, (name, stage)
        assert found.sum("docdelta_documents_total", outcome="indexed") == 9 + canaries
        for change in metrics.CHANGES:
            assert found.sum("docdelta_chunks_total", change=change) == sum(getattr(receipt, change) for receipt in truth), change
        assert found.sum("docdelta_embeddings_total", source="computed") == sum(receipt.embedded for receipt in truth)
        assert found.sum("docdelta_embeddings_total", source="computed") == found.sum("docdelta_embedder_texts_total")
        pages = {receipt.document_id: receipt.added for receipt in built.values()}
        stays = pages["d0"] - 1 + pages["d1"]  # the parser settles d2, and knows no chunks
        assert found.sum("docdelta_embeddings_total", source="avoided") == stays, "kept or updated, never embedded again"
        assert found.sum("docdelta_publish_to_searchable_seconds_count") == 9 + canaries
        assert found.sum("docdelta_dead_letters_total", stage="parser") == 2
        assert found.sum("docdelta_order_mended_total") == 1, "the newest event of d0, behind the late one"
        assert found.sum("docdelta_stage_seconds_count", stage="parser") == 14 + canaries
        assert found.sum("docdelta_app_ready") == 3, "parser, feeder, batch"
        assert found.sum("docdelta_assigned_partitions") == 4 * PARTITIONS, "of [documents], [bulk], [parsed] and [changes]"
        assert found.sum("docdelta_records_in_hand") == 0
        assert found.sum("docdelta_batch_info", state="active", batch=stack.policy.batch_id) == 1
        assert found.sum("process_resident_memory_bytes") > 1e6
        assert found.sum("docdelta_canary_age_seconds") >= 0
        assert (await get(port, "/livez"))[0] == (await get(port, "/readyz"))[0] == 200

        await _the_trace_arrived(stack)
        await _faults_are_counted(stack, port)


async def _at_rest(stack: Rig, port: int) -> tuple[Scrape, list[Receipt], int]:
    """Return figures and receipts of one moment when nothing is under way, and the canaries among them: one a minute."""
    while True:
        found = await scrape_when(port, lambda seen: seen.sum("docdelta_dead_letter_records") == 2 and _no_lag(seen))
        truth = await stack.receipts()
        canaries = sum(receipt.tenant_id == "probe" for receipt in truth)
        if found.sum("docdelta_canary_written_total") == found.sum("docdelta_documents_total") - 12 == canaries:
            return found, truth, canaries


async def _the_trace_arrived(stack: Rig) -> None:
    """The trace of the one traced event is on its receipt and on no other."""
    records = await asyncio.to_thread(lambda: list(read_topic(stack.kafka, stack.settings.topics.receipts)))
    traced = [decode(record.value or b"", Receipt).event_id for record in records if record.headers.get("traceparent")]
    assert traced == ["acme/d0@2"]
    assert TRACEPARENT.split(b"-")[1].decode() in stack.log()


async def _faults_are_counted(stack: Rig, port: int) -> None:
    """An index that is away shows while it lasts, and what it cost stays in the counters."""
    before = await scrape(port)
    stack.shim.faults += [rate_limited(1)] + [Fault(status=503)] * 3
    edit = upsert("d5", 3, a_page("d5", edit=" under faults"))
    await stack.send(edit)
    seen = await scrape_when(port, lambda found: found.sum("docdelta_waiting_operations", side="index") >= 1)
    assert seen.sum("docdelta_records_in_hand", agent="indexer") >= 1
    assert (await get(port, "/livez"))[0] == 200, "whoever waits for another is alive"
    await stack.outcomes([edit.event_id])
    after = await scrape_when(port, lambda found: found.sum("docdelta_waiting_operations") == 0 and _no_lag(found))
    assert after.sum("docdelta_retries_total", side="index") - before.sum("docdelta_retries_total", side="index") == 4
    assert after.sum("docdelta_rate_limited_total", side="index") == 1
    assert after.sum("docdelta_index_failures_total", action="write", failure="rate_limited") == 1
    assert after.sum("docdelta_index_failures_total", action="write", failure="server_error") == 3


async def test_a_stopped_worker_shows_as_growing_lag_at_another(apache_settings: KafkaSettings, tmp_path: Path, fresh: str) -> None:
    """Worker two hosts the parser alone; when one, which hosts the batch, is stopped, two tells how far the batch falls behind."""
    port = free_port()
    async with rig(apache_settings, tmp_path, fresh) as stack:
        stack.start("one")
        await stack.put(*[upsert(f"d{n}", 1, a_page(f"d{n}")) for n in range(3)])
        group = stack.settings.topics.batch_group(stack.policy.batch_id)
        stack.start("two", only="parser", **_port(port))
        await scrape_when(port, lambda found: _no_lag(found) and found.sum("docdelta_app_ready") == 2)
        await stack.stop("one")

        await stack.send(*[upsert(f"d{n}", 2, a_page(f"d{n}", edit=" x")) for n in range(3)])
        sent = time.time()
        three = await scrape_when(port, lambda found: _lags_by(found, group, 3))
        assert three.sum("docdelta_consumer_lag_records", topic=stack.settings.topics.parsed) == 3
        await stack.send(upsert("e0", 1, a_page("e0"), tenant="other"))
        four = await scrape_when(port, lambda found: _lags_by(found, group, 4))
        assert max(four.all("docdelta_consumer_lag_seconds", group=group)) <= time.time() - sent + 5
        older = await scrape_when(port, lambda found: max(found.all("docdelta_consumer_lag_seconds", group=group)) > 4)
        assert older.all("docdelta_oldest_unsynced_seconds", tenant="acme")[0] > 4
        assert 0 < older.all("docdelta_oldest_unsynced_seconds", tenant="other")[0] < time.time() - sent + 5

        stack.start("one")
        healed = await scrape_when(port, _no_lag)
        assert healed.all("docdelta_oldest_unsynced_seconds") == []
        assert max(healed.all("docdelta_consumer_lag_seconds")) == 0


async def test_a_worker_is_not_ready_until_its_tables_are_there(tansu_settings: KafkaSettings, tmp_path: Path, fresh: str) -> None:
    port = free_port()
    async with rig(tansu_settings, tmp_path, fresh) as stack:
        stack.start("one")
        pages = [upsert(f"d{n}", 1, a_page(f"d{n}")) for n in range(8)]
        await stack.put(*pages)
        await stack.stop("one")
        worker = stack.start("elsewhere", **_port(port))  # an empty state folder: its tables come from the changelog
        said: list[tuple[int, str]] = []
        while not said or said[-1][0] != 200:
            assert worker.poll() is None, stack.log("elsewhere")
            status, words = await get(port, "/readyz")
            ready = stack.log("elsewhere").count('"app ready"')
            if status:
                said.append((status, words))
                assert status == 503 or ready >= 1, "ready is said before any app is"
                assert (await get(port, "/livez"))[0] == 200
            await asyncio.sleep(0.05)
        assert said[0][0] == 503
        assert any("recovering" in words for _, words in said)
        found = await scrape(port)
        assert found.sum("docdelta_rebalances_total") >= 2
        assert found.sum("docdelta_rebalance_seconds_count") >= 2
        assert found.sum("docdelta_recovery_remaining_records") == 0
        code = await stack.stop("elsewhere")
        assert code == 0, stack.log("elsewhere")
