"""Claims about why: the newest revision decides, and every state says what to do."""

from __future__ import annotations

import base64
from dataclasses import replace
from datetime import UTC, datetime

import pytest

from chunking.manifest import Manifest, ManifestEntry
from schemas.batch import BatchRecord, EmbeddingRecord
from schemas.codec import encode
from schemas.dead_letter import DeadLetter
from schemas.document_change import AGAIN, Content, DocumentChange
from schemas.receipt import Outcome, Receipt
from schemas.record import Record
from streams.ports import InRecord
from streams.reading.batches import newest_batches
from streams.reading.status import Held, count_held
from streams.reading.why import InIndex, Seen, Why, dead_letters_of, last_receipts, newest_seen

NOW = datetime(2026, 1, 1, tzinfo=UTC)
CHUNK = "chk_" + "ab" * 32


def record(value: Record | bytes | None, offset: int = 0, key: bytes = b"acme/a") -> InRecord:
    return InRecord("t", 0, offset, key, encode(value) if isinstance(value, Record) else value)


def change(revision: int, op: str = "upsert") -> DocumentChange:
    content = Content(text="x") if op == "upsert" else None
    return DocumentChange(tenant_id="acme", document_id="a", revision=revision, op=op, content=content)  # type: ignore[arg-type]


def receipt(revision: int, outcome: Outcome, batch: str = "b", reason: str = "") -> Receipt:
    stage = "indexer" if batch else "parser"
    return Receipt(
        tenant_id="acme",
        document_id="a",
        revision=revision,
        batch=batch,
        stage=stage,
        outcome=outcome,
        reason=reason,  # type: ignore[arg-type]
    )


def letter(revision: int | None, offset: int = 0, reason: str = "not UTF-8") -> DeadLetter:
    return DeadLetter(
        topic="t",
        partition=0,
        offset=offset,
        key=base64.b64encode(b"acme/a").decode(),
        value=None,
        stage="parser",
        error="PoisonRecord",
        reason=reason,
        revision=revision,
        failed_at=NOW,
    )


def why(seen: int | None, *receipts: Receipt, op: str = "upsert", points: int = 1, letters: tuple[DeadLetter, ...] = ()) -> Why:
    found = Seen(seen, op, "text/plain", 0, 0, None) if seen is not None else None
    payloads = tuple({"revision": 1, "chunk_id": CHUNK} for _ in range(points))
    return Why("acme", "a", found, receipts, InIndex("b", payloads), letters)


DROPPED = receipt(3, "unchanged", "", "ops decided against it").model_copy(update={"dropped": True})


@pytest.mark.parametrize(
    ("found", "state", "words"),
    [
        pytest.param(why(None, points=0), "unknown", "ever seen", id="never-seen"),
        pytest.param(why(None), "current", "no event of it is left", id="events-gone-points-there"),
        pytest.param(why(2), "waiting", "is a worker running", id="no-receipt-yet"),
        pytest.param(why(2, receipt(1, "indexed")), "waiting", "revision 2 waits", id="only-an-older-receipt"),
        pytest.param(why(2, receipt(2, "indexed")), "current", "searches find 1 chunk of revision 1", id="indexed"),
        pytest.param(why(2, receipt(2, "unchanged", batch="")), "current", "is settled", id="same-content-settled-early"),
        pytest.param(why(2, receipt(2, "indexed"), op="delete", points=0), "deleted", "ended it", id="deleted"),
        pytest.param(why(2, receipt(2, "held", reason="too many chunks")), "held", "too many chunks", id="held"),
        pytest.param(why(2, receipt(2, "held", "", "breaker")), "held", "breaker", id="held-at-the-door"),
        pytest.param(why(2, receipt(2, "held", ""), receipt(2, "indexed")), "current", "is settled", id="held-then-let-pass"),
        pytest.param(
            why(2, receipt(2, "unchanged", "", "ops said"), op="delete"), "current", "dropped: ops said", id="a-dropped-delete"
        ),
        pytest.param(
            why(3, DROPPED, receipt(1, "indexed"), op="delete", letters=(letter(2),)),
            "dead_lettered",
            "not UTF-8; mend it and send a revision above 3",
            id="a-dropped-delete-mends-nothing-that-was-refused-before",
        ),
        pytest.param(
            why(2, receipt(1, "indexed"), receipt(2, "dead_lettered", "", "unreadable markup")),
            "dead_lettered",
            "unreadable markup; mend it and send a revision above 2; searches find 1 chunk of revision 1",
            id="refused-while-the-last-good-one-serves",
        ),
        pytest.param(why(2, letters=(letter(2),)), "dead_lettered", "not UTF-8", id="refused-without-a-receipt"),
        pytest.param(why(None, letters=(letter(None),)), "dead_lettered", "not UTF-8", id="its-only-event-was-unreadable"),
        pytest.param(why(2, receipt(2, "indexed"), letters=(letter(None, 3),)), "dead_lettered", "not UTF-8", id="a-later-one-was"),
        pytest.param(why(2, receipt(2, "indexed"), letters=(letter(2),)), "current", "settled", id="refused-once-then-replayed"),
        pytest.param(why(2, letters=(letter(1),)), "waiting", "revision 2 waits", id="refusal-of-an-older-revision"),
    ],
)
def test_the_newest_revision_decides_where_a_document_stands(found: Why, state: str, words: str) -> None:
    assert found.state == state
    assert words in found.explanation
    assert found.as_json()["state"] == state


def test_the_newest_event_is_the_highest_revision_whatever_the_order() -> None:
    seen = newest_seen(
        [record(change(5), 0), record(change(9, "delete"), 1), record(change(7), 2), record(b"{", 3), record(None, 4)]
    )
    assert seen is not None
    assert (seen.revision, seen.op, seen.offset) == (9, "delete", 1)


@pytest.mark.parametrize("compacted", [False, True])
def test_an_event_that_was_said_again_did_not_come_after_the_garbage_before_it(compacted: bool) -> None:
    garbage, again = record(b"no event", 3), replace(record(change(2), 4), headers={AGAIN: b"3"})
    seen = newest_seen([garbage, again] if compacted else [record(change(2), 1), garbage, again])
    assert seen is not None
    assert (seen.revision, seen.offset) == (2, 2)
    found = Why("acme", "a", seen, (receipt(2, "indexed"),), None, (letter(None, 3),))
    assert found.state == "dead_lettered"


def test_the_last_receipt_of_each_batch_counts_and_late_stale_ones_do_not() -> None:
    found = last_receipts(
        [
            record(receipt(5, "indexed")),
            record(receipt(9, "indexed")),
            record(receipt(7, "stale")),
            record(receipt(9, "unchanged", batch="")),
        ]
    )
    assert [(each.batch, each.revision, each.outcome) for each in found] == [("", 9, "unchanged"), ("b", 9, "indexed")]


def test_repeats_of_one_refusal_count_once() -> None:
    found = dead_letters_of([record(letter(1, 4, "first")), record(letter(1, 4, "again")), record(letter(2, 5))])
    assert [each.reason for each in found] == ["again", "not UTF-8"]


def test_manifests_are_counted_by_their_newest_value() -> None:
    def manifest(chunks: int, deleted: bool = False) -> bytes:
        entries = tuple(ManifestEntry(CHUNK, "cd" * 16, number + 1) for number in range(chunks))
        return Manifest(1, entries, deleted).to_bytes()

    records = [
        record(manifest(3), key=b"acme/a"),
        record(manifest(5), key=b"acme/b"),
        record(manifest(4), key=b"acme/a"),
        record(manifest(2), key=b"other/a"),
        record(manifest(0, deleted=True), key=b"acme/b"),
    ]
    assert count_held(records) == Held(documents=2, chunks=6, deleted=1)


def test_the_newest_record_of_a_batch_counts_and_a_tombstone_removes_it() -> None:
    def batch(name: str, state: str) -> BatchRecord:
        return BatchRecord(
            batch=name,
            state=state,  # type: ignore[arg-type]
            policy_yaml="",
            policy_fingerprint="f",
            collection=name,
            embedding=EmbeddingRecord(model="m", dimensions=2),
            alias="docdelta",
            created_at=NOW,
            updated_at=NOW,
        )

    records = [
        record(batch("one", "active"), key=b"one"),
        record(batch("two", "building"), key=b"two"),
        record(batch("one", "warm"), key=b"one"),
        record(batch("three", "building"), key=b"three"),
        record(None, key=b"three"),
    ]
    assert [(each.batch, each.state) for each in newest_batches(records)] == [("one", "warm"), ("two", "building")]


def test_what_a_build_refused_does_not_say_that_the_document_is_served_badly() -> None:
    receipts = (receipt(3, "indexed"), receipt(3, "dead_lettered", batch="next", reason="too many chunks"))
    seen = Seen(3, "upsert", "text/markdown", 0, 5, NOW)
    served = InIndex("b", ({"revision": 3, "chunk_id": CHUNK},))
    assert Why("acme", "a", seen, receipts, served).state == "dead_lettered"
    assert Why("acme", "a", seen, receipts, served, builds=frozenset({"next"})).state == "current"
