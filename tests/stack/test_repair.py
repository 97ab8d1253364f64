"""Repair on a real broker: what was refused comes back once, what the index lost comes back, and no revision ever goes backwards.

Costs about two minutes in all on two quiet cores: two installations on Apache Kafka, the rest needs a broker alone.
"""

from __future__ import annotations

import asyncio
import json
import time
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from schemas.codec import decode, encode
from schemas.dead_letter import DeadLetter
from schemas.document_change import DocumentChange
from schemas.receipt import Receipt
from schemas.record import document_key
from streams.kafka.admin import apply_topics
from streams.kafka.offsets import end_offsets
from streams.kafka.produce import OutRecord, produce_all
from streams.kafka.read import read_topic
from streams.ports import IndexPlan
from streams.repair.broker import KafkaBroker
from streams.repair.dead_letters import drop, list_letters, named, read_letters, replay
from streams.repair.letter_reader import LetterReader
from streams.repair.letters import Wanted
from streams.repair.newest import mend_order
from streams.repair.reindex import Selection, reindex_documents
from streams.settings import KafkaSettings, Settings
from streams.topics import shared_topics
from tests.stack.rig import Rig, a_page, delete, rig, upsert
from tests.stack.scrape import free_port, scrape, scrape_when
from tests.support.patience import PATIENCE

NOW = datetime(2031, 1, 1, tzinfo=UTC)
KILLED = -9
SMALL = {"DOCDELTA_PARSER__MAX_DOCUMENT_BYTES": "1024"}
"""A limit that a page of more than one section is above: a cause that an operator mends."""
TRACE = b"00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"
MANY = 50


def page(name: str, revision: int, sections: int = 1) -> DocumentChange:
    return upsert(name, revision, a_page(f"{name} r{revision}", sections=sections))


async def events_of(stack: Rig) -> int:
    """How many records [documents] has had."""
    return sum((await asyncio.to_thread(end_offsets, stack.kafka, [stack.settings.topics.documents])).values())


async def asked(stack: Rig, *words: str, code: int = 0, **environment: str) -> Any:
    """Run a command with --json and return its answer."""
    done = await stack.docdelta(*words, "--json", **environment)
    assert done.returncode == code, (words, done.stdout[-2000:], done.stderr[-2000:])
    return json.loads(done.stdout)


async def open_letters(stack: Rig) -> dict[str, Any]:
    """Return the open letters by name."""
    listed = await asked(stack, "dead-letters", "list", "--limit", "1000")
    return {letter["letter"]: letter for letter in listed["letters"]}


@pytest.mark.kafka
async def test_what_was_refused_is_replayed_once_and_nothing_goes_backwards(
    apache_settings: KafkaSettings, tmp_path: Path, fresh: str
) -> None:
    port = free_port()
    watched = {"DOCDELTA_WORKER__METRICS_PORT": str(port), "DOCDELTA_WORKER__LAG_SECONDS": "1"}
    async with rig(apache_settings, tmp_path, fresh) as stack:
        stack.start(**SMALL, **watched)
        good, bad = page("d1", 1), page("d1", 2, sections=4)
        many = [page(f"e{n}", 1, sections=4) for n in range(MANY)]
        healed, first, second = page("d2", 2), page("d3", 1, sections=4), page("d3", 2, sections=4)
        topic = stack.settings.topics.documents
        traced = OutRecord(topic, b"acme/d1", encode(bad), {"traceparent": TRACE, "authorization": b"secret"})
        await stack.put(good, page("d2", 1, sections=4), first)
        await asyncio.to_thread(produce_all, stack.kafka, [traced])
        await stack.put(healed, second, *many)
        await stack.outcomes([bad.event_id])
        await stack.send_raw((b"nonsense", b"{"), (b"acme/x", b"\xff\xfe\x1b[31m"))

        # Open are: d1, d3 twice, the many, two of garbage; d2's healed by itself. The last good version serves meanwhile.
        found = await scrape_when(port, lambda seen: seen.sum("docdelta_dead_letter_records") == MANY + 5)
        assert found.sum("docdelta_dead_letters_total") == MANY + 6
        await stack.check([good, healed])
        letters = await open_letters(stack)
        assert len(letters) == MANY + 5
        of = {(letter["document_id"], letter["revision"]): name for name, letter in letters.items()}
        why = await asked(stack, "why", "acme/d1", code=1)
        assert why["state"] == "dead_lettered"
        assert why["fix"]["command"] == f"docdelta dead-letters replay {of['d1', 2]}"
        assert [moment["what"] for moment in why["timeline"] if moment["stage"] == "event"] == ["upsert", "upsert"]
        assert "depot" not in json.dumps(why), "no text of a document"
        assert (await asked(stack, "status"))["dead_letters"] == MANY + 5

        # Filters, and what can't be replayed says what to do instead.
        one = await asked(stack, "dead-letters", "list", "--document", "d3", "--stage", "parser", "--since", "1h")
        assert {letter["revision"] for letter in one["letters"]} == {1, 2}
        shown = await stack.docdelta("dead-letters", "show", of["x", None], "--value")
        assert "hex ff fe 1b" in shown.stdout
        assert "\x1b" not in shown.stdout
        refused = await asked(stack, "dead-letters", "replay", of["x", None], of["", None], "--yes", code=1)
        assert refused["refused"] == 2
        told = {row["letter"]: row["said"] for row in refused["letters"]}
        assert "send the document again" in told[of["x", None]]
        assert "docdelta dead-letters drop" in told[of["", None]]
        assert "secret" not in (await stack.docdelta("dead-letters", "show", of["d1", 2], "--value")).stdout

        # The cause is mended; an older letter stays behind the newer revision.
        await stack.stop()
        stack.start(**watched)
        before = await events_of(stack)
        stale = await asked(stack, "dead-letters", "replay", of["d3", 1])
        assert (stale["stale"], stale["sent"], await events_of(stack)) == (1, 0, before)
        replayed = await asked(stack, "dead-letters", "replay", of["d1", 2])
        assert replayed["sent"] == 1
        event = f"acme/d1@2#{of['d1', 2]}#replay"
        receipt = (await stack.outcomes([event]))[event]
        assert (receipt.outcome, receipt.revision, receipt.batch) == ("indexed", 2, stack.policy.batch_id)
        again = await asked(stack, "dead-letters", "replay", of["d1", 2])
        assert (again["closed"], again["sent"], await events_of(stack)) == (1, 0, before + 1), "twice is once"
        records = await asyncio.to_thread(lambda: list(read_topic(stack.kafka, topic, b"acme/d1")))
        assert records[-1].headers == {"traceparent": TRACE}, "its trace and nothing else goes on"
        assert (await asked(stack, "why", "acme/d1"))["state"] == "current"
        await stack.check([good.model_copy(update=dict(bad)), healed])

        await _a_replay_killed_in_the_middle(stack, many, second)
        await scrape_when(port, lambda seen: seen.sum("docdelta_dead_letter_records") == 2)
        dropped = await asked(stack, "dead-letters", "drop", "--all", "--reason", "garbage", "--yes")
        assert set(dropped["dropped"]) == {of["x", None], of["", None]}
        assert await open_letters(stack) == {}
        await scrape_when(port, lambda seen: seen.sum("docdelta_dead_letter_records") == 0)
        await stack.check([bad, healed, second, *many])
        await _closed_letters_are_forgotten(stack)
        assert (await scrape(port)).sum("docdelta_dead_letter_records") == 0


async def _closed_letters_are_forgotten(stack: Rig) -> None:
    """gc removes their bytes from the broker, then their entries; killed between the two it is completed by the next."""
    topic = stack.settings.topics.dead_letters
    assert (await asked(stack, "gc", "--older-than", "1d", "--dry-run"))["letters"] == 0, "closed, but lately"
    known = (await asked(stack, "dead-letters", "list", "--state", "all"))["matching"]
    died = await stack.docdelta("gc", "--older-than", "0s", "--yes", DOCDELTA_CRASH_AT="gc.letters:1")
    assert died.returncode == KILLED, died.stdout + died.stderr
    assert await asyncio.to_thread(lambda: list(read_topic(stack.kafka, topic))) == []
    done = await asked(stack, "gc", "--older-than", "0s", "--yes")
    assert (done["letters"], done["letter_records"]) == (known, 0)
    listed = await asked(stack, "dead-letters", "list", "--state", "all")
    assert (listed["matching"], listed["open"]) == (0, 0)


async def _a_replay_killed_in_the_middle(stack: Rig, many: list[DocumentChange], second: DocumentChange) -> None:
    """kill -9 after a group's events are out and before its letters are closed; the second run completes the first."""
    order = ("dead-letters", "replay", "--error", "PoisonRecord", "--tenant", "acme", "--yes")
    before = await events_of(stack)
    died = await stack.docdelta(*order, DOCDELTA_CRASH_AT="replay.sent:1")
    assert died.returncode == KILLED, died.stdout + died.stderr
    assert await events_of(stack) - before in (MANY - 1, MANY), "a group of letters, and d3 may be one of them, twice refused"
    closed = await asked(stack, "dead-letters", "list", "--state", "replayed")
    assert closed["matching"] <= 1, "no letter of the group is closed by hand"
    again = await stack.docdelta(*order)
    assert again.returncode == 0, again.stdout + again.stderr
    wanted = {(change.document_id, change.revision) for change in (*many, second)}

    def all_in(receipts: list[Receipt]) -> bool:
        return wanted <= {(each.document_id, each.revision) for each in receipts if each.outcome == "indexed"}

    receipts = await stack.receipts_when(all_in)
    embedded: dict[str, int] = {}
    for receipt in receipts:
        if receipt.outcome == "indexed" and receipt.document_id in {change.document_id for change in many}:
            embedded[receipt.document_id] = embedded.get(receipt.document_id, 0) + receipt.embedded
    points = await stack.points()
    held = {name: sum(payload["document_id"] == name for payload in points.values()) for name in embedded}
    assert embedded == held, "every chunk was embedded once, whatever was sent twice"


@pytest.mark.kafka
async def test_what_the_index_lost_comes_back_and_vectors_in_place_are_kept(
    apache_settings: KafkaSettings, tmp_path: Path, fresh: str
) -> None:
    async with rig(apache_settings, tmp_path, fresh) as stack:
        stack.start()
        pages = [page(f"d{n}", 1, sections=3) for n in range(12)]
        other = upsert("o", 1, a_page("o"), tenant="other")
        gone = [delete("d10", 2), delete("d11", 2)]
        await stack.put(*pages, other)
        await stack.put(*gone)
        newest = [*pages[:10], other, *gone]
        await stack.check(newest)

        lost = [chunk for chunk, payload in (await stack.points()).items() if payload["document_id"] == "d3"]
        await stack.shim.index.apply(stack.collection, IndexPlan("acme", "d3", 1, deletes=tuple(lost)))
        why = await asked(stack, "why", "d3", "--tenant", "acme")
        assert len(why["manifests"][0]["missing"]) == len(lost)
        assert why["fix"]["command"] == "docdelta reindex d3 --tenant acme"
        sent = await asked(stack, "reindex", "acme/d3")
        assert (sent["sent"], sent["upserts"]) == (1, 1)
        event = f"acme/d3@1#reindex-{sent['run']}"
        receipt = (await stack.outcomes([event]))[event]
        assert (receipt.outcome, receipt.embedded) == ("indexed", len(lost))
        await stack.check(newest)

        # A tenant, killed after the third event and resumed: every document once, nothing embedded.
        order = ("reindex", "--tenant", "acme", "--lane", "live", "--yes")
        counted = await asked(stack, *order, "--dry-run")
        assert (counted["upserts"], counted["deletes"]) == (10, 2)
        run = "resumedrun"
        died = await stack.docdelta(*order, "--resume", run, "--rate", "20", DOCDELTA_CRASH_AT="reindex.sent:5")
        assert died.returncode == KILLED, died.stdout + died.stderr
        ends = await asked(stack, *order, "--resume", run)
        assert ends["sent"] + ends["sent_before"] == 12
        receipts = await stack.outcomes(f"{change.event_id}#reindex-{run}" for change in newest if change.tenant_id == "acme")
        assert {each.embedded for each in receipts.values()} == {0}
        assert sum(each.deleted for each in receipts.values()) == 2
        await stack.check(newest)
        missing = await asked(stack, "reindex", "acme/nobody", code=1)
        assert missing["missing"] == ["acme/nobody"]
        await _old_deletes_are_forgotten_and_stay_deleted(stack, pages[10:])
        await stack.check(newest)


async def _old_deletes_are_forgotten_and_stay_deleted(stack: Rig, gone: list[DocumentChange]) -> None:
    """Their events are followed by null values that compaction may act on; events of them that come late are stale as before."""

    async def parser_has_passed() -> dict[str, Any]:
        return await asked(stack, "gc", "--older-than", "0s", "--dry-run")

    deadline = time.monotonic() + PATIENCE
    while True:  # offsets are committed when the grace of a handover is over
        if (await parser_has_passed())["deletes"] == 2:
            break
        assert time.monotonic() < deadline, "the parser never passed the deletes"
        await asyncio.sleep(0.2)
    died = await stack.docdelta("gc", "--older-than", "0s", "--yes", DOCDELTA_CRASH_AT="gc.deletes:1")
    assert died.returncode == KILLED, died.stdout + died.stderr
    await asked(stack, "gc", "--older-than", "0s", "--yes")
    last = {}
    for record in await asyncio.to_thread(lambda: list(read_topic(stack.kafka, stack.settings.topics.documents))):
        last[record.key] = record
    assert [last[document_key("acme", change.document_id)].value for change in gone] == [None, None]
    assert (await parser_has_passed())["deletes"] == 0
    assert (await asked(stack, "reindex", "--tenant", "acme", "--dry-run"))["deletes"] == 0
    late = [change.model_copy(update={"event_id": f"late {change.document_id}"}) for change in gone]
    outcomes = await stack.put(*late)
    assert {each.outcome for each in outcomes.values()} == {"stale"}
    keys = {document_key("acme", change.document_id) for change in gone}
    deadline = time.monotonic() + PATIENCE
    while True:  # what came late stands last in the log, until the parser has said the end behind it
        records = await asyncio.to_thread(lambda: list(read_topic(stack.kafka, stack.settings.topics.documents)))
        words = {record.key: record.value for record in records if record.key in keys}
        if all(value and decode(value, DocumentChange).op == "delete" for value in words.values()):
            break
        assert time.monotonic() < deadline, "compaction would keep a late event of a deleted document"
        await asyncio.sleep(0.2)


@pytest.fixture
def topics(any_broker: KafkaSettings, fresh: str) -> Settings:
    """A broker with an installation's topics, and no worker."""
    kafka = any_broker.model_copy(update={"topic_prefix": fresh, "partitions": 2})
    settings = Settings(kafka=kafka)
    apply_topics(kafka, shared_topics(settings.topics, 2))
    return settings


def test_the_log_ends_in_the_newest_revision_whoever_sends_again(topics: Settings) -> None:
    """An edit comes between a look at the log and what is sent again; the log must not end in the older one."""
    topic = topics.topics.documents

    def said(change: DocumentChange) -> OutRecord:
        return OutRecord(topic, document_key(change.tenant_id, change.document_id), encode(change))

    produce_all(topics.kafka, [said(upsert("a", 5, "old")), said(upsert("b", 5, "old")), said(upsert("c", 5, "old"))])
    begins = {partition: end for (_, partition), end in end_offsets(topics.kafka, [topic]).items()}
    old = {name: upsert(name, 5, "old", reindex=True, event_id=f"{name}#reindex-r") for name in "abc"}
    edits = [said(upsert("a", 6, "new")), OutRecord(topic, b"acme/b", None)]
    produce_all(topics.kafka, [*edits, *(said(change) for change in old.values())])
    assert mend_order(KafkaBroker(topics.kafka), topic, begins, "#reindex-r") == 2
    last = {record.key: decode(record.value, DocumentChange) for record in read_topic(topics.kafka, topic) if record.value}
    assert (last[b"acme/a"].revision, last[b"acme/a"].reindex) == (6, False)
    assert (last[b"acme/b"].op, last[b"acme/b"].revision) == ("delete", 5), "what a null value ended stays ended"
    assert last[b"acme/c"].event_id == "c#reindex-r"
    assert mend_order(KafkaBroker(topics.kafka), topic, begins, "#reindex-r") == 0


def test_deletes_by_a_null_value_are_sent_again_as_deletes(topics: Settings) -> None:
    topic = topics.topics.documents
    produce_all(topics.kafka, [OutRecord(topic, b"acme/a", encode(upsert("a", 7, "x"))), OutRecord(topic, b"acme/a", None)])
    counts = reindex_documents(topics, Selection(documents=(("acme", "a"),)), run="r1")
    assert (counts.upserts, counts.deletes) == (0, 1)
    (*_, last) = read_topic(topics.kafka, topic)
    change = decode(last.value or b"", DocumentChange)
    assert (change.op, change.revision, change.reindex) == ("delete", 7, True)


def letter(number: int, **more: Any) -> DeadLetter:
    name = f"d{number}"
    return DeadLetter(
        topic="t.documents", partition=0, offset=number, key="YWNtZS9k", value="QUFB" * 500, stage="parser", error="PoisonRecord",
        reason="x", tenant_id="acme", document_id=name, revision=1, failed_at=NOW, **more,
    )  # fmt: skip


@pytest.mark.kafka
def test_ten_thousand_letters_are_listed_from_their_index(apache_settings: KafkaSettings, fresh: str) -> None:
    """Once somebody has kept the index, nobody reads the letters' bytes or the receipts before the checkpoint again."""
    kafka = apache_settings.model_copy(update={"topic_prefix": fresh, "partitions": 2})
    settings = Settings(kafka=kafka)
    names = settings.topics
    apply_topics(kafka, shared_topics(names, 2))
    count, good = 10_000, 300
    made = (OutRecord(names.dead_letters, f"acme/d{n}".encode(), encode(letter(n))) for n in range(count))
    produce_all(kafka, made)
    receipts = [
        Receipt(
            tenant_id="acme", document_id=f"d{n}", revision=1, batch="b", stage="indexer", outcome="indexed",
            settled_at=NOW + timedelta(seconds=1),
        )
        for n in range(good)
    ]  # fmt: skip
    produce_all(kafka, [OutRecord(names.receipts, f"acme/{each.document_id}".encode(), encode(each)) for each in receipts])
    keeper = LetterReader(settings)
    assert keeper.refresh().open_count == count - good
    assert keeper.keep(NOW)
    assert not keeper.keep(NOW), "nothing new, nothing written"

    reader = LetterReader(settings)
    book = reader.refresh()
    assert book.open_count == count - good
    assert reader.read == {names.letter_index: count + good + 1}
    reader.refresh()
    assert reader.read == {names.letter_index: count + good + 1}, "a second look reads what is new"

    listed = list_letters(settings, Wanted(document="d9999"))
    assert (listed.matching, listed.open) == (1, count - good)
    (dropped,) = drop(settings, listed.letters)
    assert drop(settings, named(read_letters(settings), settings, [dropped.id])) == []
    assert read_letters(settings).open_count == count - good - 1
    (told,) = replay(settings, named(read_letters(settings), settings, [dropped.id]))
    assert told.outcome == "closed"


def test_a_run_behind_live_edits_is_resumed_by_what_waits_there(topics: Settings) -> None:
    names = topics.topics
    changes = [upsert(f"d{n}", 1, "x") for n in range(5)]
    produce_all(topics.kafka, [OutRecord(names.documents, b"acme/" + c.document_id.encode(), encode(c)) for c in changes])
    selection = Selection(tenant="acme")
    first = reindex_documents(topics, selection, run="r1", topic=names.bulk)
    assert (first.upserts, first.before) == (5, 0)
    waiting = [decode(record.value, DocumentChange) for record in read_topic(topics.kafka, names.bulk) if record.value]
    assert {each.event_id for each in waiting} == {f"{change.event_id}#reindex-r1" for change in changes}
    assert all(each.reindex and each.revision == 1 for each in waiting)
    again = reindex_documents(topics, selection, run="r1", topic=names.bulk)
    assert (again.sent, again.before) == (0, 5)
    assert reindex_documents(topics, selection, run="r2", topic=names.bulk, dry_run=True).upserts == 5
