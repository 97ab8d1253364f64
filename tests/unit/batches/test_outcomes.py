"""What receipts say of a build: the newest outcome of a document decides, and a repeated receipt is counted once."""

from __future__ import annotations

from schemas.codec import encode
from schemas.dead_letter import DeadLetter
from schemas.receipt import Outcome, Receipt
from streams.batches.outcomes import Outcomes, strays
from streams.ports import InRecord
from tests.support.batches import NOW


def a_receipt(document: str, outcome: Outcome, event: str, batch: str = "green", deleted: bool = False, **figures: int) -> InRecord:
    about = {"tenant_id": "a", "document_id": document, "revision": 1, "batch": batch, "stage": "indexer", "event_id": event}
    receipt = Receipt.model_validate({**about, "outcome": outcome, "deleted": deleted, **figures})
    return InRecord("receipts", 0, 0, f"a/{document}".encode(), encode(receipt))


def told(*records: InRecord) -> Outcomes:
    outcomes = Outcomes("green")
    for record in records:
        outcomes.take(record)
    return outcomes


def test_a_refusal_counts_until_a_later_event_of_the_document_is_indexed() -> None:
    refused, mended = a_receipt("d", "dead_lettered", "e1"), a_receipt("d", "indexed", "e2")
    assert told(refused).of("dead_lettered") == {"a/d": ""}
    assert told(refused, mended).of("dead_lettered") == {}
    assert told(mended, refused).of("dead_lettered") == {"a/d": ""}


def test_a_receipt_that_is_repeated_is_the_same_one() -> None:
    once = a_receipt("d", "indexed", "e", added=4, embedded=1, borrowed=3)
    again = a_receipt("d", "indexed", "e", added=4)
    found = told(once, again, a_receipt("d", "indexed", "e2", kept=2, added=1, removed=2))
    assert (found.documents, found.chunks, found.embedded, found.borrowed) == (1, 3, 1, 3)


def test_a_revision_that_went_stale_on_the_way_changes_what_was_embedded_and_not_what_is_there() -> None:
    """A build from a log that is not compacted yet: figures of the newer revision are against those of the overtaken one."""
    overtaken = a_receipt("d", "stale", "e1", embedded=3)
    found = told(overtaken, a_receipt("d", "indexed", "e2", kept=2, added=1, removed=1, embedded=1))
    assert (found.documents, found.chunks, found.embedded) == (1, 3, 4)


def test_what_a_build_finds_in_place_is_there_though_nothing_was_added() -> None:
    assert told(a_receipt("d", "unchanged", "e1", kept=3), a_receipt("d", "unchanged", "e2")).chunks == 3


def test_a_deleted_document_is_none() -> None:
    found = told(
        a_receipt("d", "indexed", "e1", added=2),
        a_receipt("d", "indexed", "e2", deleted=True, removed=2),
        a_receipt("e", "unchanged", "e3"),
    )
    assert (found.documents, found.chunks, len(found.events)) == (1, 0, 3)


def test_other_batches_are_not_looked_at() -> None:
    found = told(a_receipt("d", "indexed", "e", batch="blue"), InRecord("receipts", 0, 0, b"a/d", None))
    assert found.documents == 0


def test_only_dead_letters_without_a_document_are_strays() -> None:
    about = {"key": None, "value": None, "stage": "indexer", "error": "E", "reason": "no JSON", "failed_at": NOW}
    letter = DeadLetter.model_validate({"topic": "t", "partition": 1, "offset": 7, "batch": "green", **about})
    others = ({"document_id": "d"}, {"batch": "blue"})
    letters = [letter, *(letter.model_copy(update=other) for other in others)]
    records = [InRecord("dead", 0, number, None, encode(each)) for number, each in enumerate(letters)]
    assert strays(records, "green") == ("t[1]@7: no JSON",)
