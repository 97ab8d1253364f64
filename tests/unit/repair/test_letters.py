"""Claims about the book of dead letters: what heals one, what closes it, and that the order of what is known does not matter."""

from __future__ import annotations

import base64
import itertools
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from typing import Any, Literal

import pytest

from schemas.codec import encode
from schemas.dead_letter import DeadLetter
from schemas.document_change import Content, DocumentChange
from schemas.letter_index import LetterCheckpoint, LetterClosing
from schemas.receipt import Receipt
from schemas.record import Record
from streams.ports import InRecord
from streams.repair.dead_letters import Replayed, Send, decide_replay
from streams.repair.letters import LetterBook, Wanted
from streams.repair.newest import Newest, NewestEvents, overtaken, sent_again

NOW = datetime(2031, 1, 1, tzinfo=UTC)
KEY = b"acme/a"


def record(value: Record | None, offset: int = 0, key: bytes = KEY, topic: str = "t", partition: int = 3) -> InRecord:
    return InRecord(topic, partition, offset, key, None if value is None else encode(value))


def letter(revision: int | None = 5, stage: str = "parser", batch: str = "", source: int = 1, **more: Any) -> DeadLetter:
    named = {} if revision is None else {"tenant_id": "acme", "document_id": "a", "revision": revision}
    fields = {"topic": "documents", "partition": 3, "offset": source, "key": base64.b64encode(KEY).decode(), "value": "QUFB"}
    return DeadLetter(**{**fields, **named, **more}, stage=stage, batch=batch, error="PoisonRecord", reason="bad", failed_at=NOW)  # type: ignore[arg-type]


def receipt(revision: int, outcome: str = "indexed", batch: str = "b", seconds: float = 1) -> Receipt:
    return Receipt(
        tenant_id="acme", document_id="a", revision=revision, batch=batch, stage="indexer", outcome=outcome,  # type: ignore[arg-type]
        settled_at=NOW + timedelta(seconds=seconds),
    )  # fmt: skip


def dropped(revision: int) -> Receipt:
    return receipt(revision, "unchanged", "").model_copy(update={"stage": "parser", "dropped": True})


def closing(name: str, state: Literal["healed", "replayed", "dropped"]) -> LetterClosing:
    return LetterClosing(letter=name, state=state, at=NOW)


@pytest.mark.parametrize(
    ("refused", "later", "state"),
    [
        pytest.param(letter(5), receipt(5), "healed", id="same-revision-in-any-batch"),
        pytest.param(letter(5), receipt(9), "healed", id="newer-revision"),
        pytest.param(letter(5), receipt(5, "unchanged"), "healed", id="unchanged-is-good"),
        pytest.param(letter(5), dropped(6), "open", id="a-delete-that-a-person-decided-against"),
        pytest.param(letter(None), dropped(6), "open", id="which-heals-no-garbage-either"),
        pytest.param(letter(5), receipt(4), "open", id="older-revision"),
        pytest.param(letter(5), receipt(5, "stale"), "open", id="stale-settles-nothing"),
        pytest.param(letter(5), receipt(5, "held"), "open", id="held-settles-nothing"),
        pytest.param(letter(5), receipt(5, "dead_lettered"), "open", id="refused-again"),
        pytest.param(letter(5), receipt(5, seconds=-1), "open", id="settled-before-it-was-refused"),
        pytest.param(letter(5, "indexer", "b"), receipt(5), "healed", id="in-its-own-batch"),
        pytest.param(letter(5, "indexer", "b"), receipt(5, batch="other"), "open", id="another-batch-says-nothing"),
        pytest.param(letter(None), receipt(1), "healed", id="unreadable-under-a-document's-key"),
        pytest.param(letter(None, key=base64.b64encode(b"nonsense").decode()), receipt(1), "open", id="no-document"),
        pytest.param(letter(None, key=None), receipt(1), "open", id="no-key"),
    ],
)
def test_a_letter_heals_by_what_went_through_later(refused: DeadLetter, later: Receipt, state: str) -> None:
    book = LetterBook()
    book.take_letter(record(refused, 17))
    book.take_receipt(record(later))
    found = book.letter("3-17")
    assert found is not None
    assert found.state == state
    assert book.open_count == (state == "open")


def test_what_is_closed_stays_closed_whatever_comes_in_whatever_order() -> None:
    source = LetterBook()
    source.take_letter(record(letter(), 17))
    entry = source.entries["3-17"]
    takes: list[Callable[[LetterBook], None]] = [
        lambda book: book.take_index(record(entry, key=b"open/3-17")),
        lambda book: book.take_index(record(closing("3-17", "dropped"), key=b"closed/3-17")),
        lambda book: book.take_letter(record(letter(), 17)),
        lambda book: book.take_receipt(record(receipt(3))),
    ]
    for order in itertools.permutations(takes):
        book = LetterBook()
        for take in order:
            take(book)
        found = book.letter("3-17")
        assert found is not None
        assert (found.state, book.open_count, list(book.open()), list(book.open_keys)) == ("dropped", 0, [], [])


def test_a_letter_that_repeats_another_is_that_one() -> None:
    book = LetterBook()
    book.take_letter(record(letter(source=41), 17))
    book.take_letter(record(letter(source=41), 18))
    book.take_letter(record(letter(5, "chunker", "b", source=41), 19))
    assert book.open_count == 2
    assert book.letter("3-18") == book.letter("3-17")


def test_a_letter_of_a_retired_batch_needs_nobody() -> None:
    book = LetterBook()
    book.take_letter(record(letter(5, "chunker", "gone", 1), 17))
    book.take_letter(record(letter(5, "parser", "", 2), 18))
    book.retire({"gone"}, NOW)
    assert [entry.letter for entry in book.open()] == ["3-18"]


def test_what_the_index_says_is_not_written_again() -> None:
    book = LetterBook()
    book.take_letter(record(letter(), 17))
    book.take_receipt(record(receipt(5)))
    assert list(book.unwritten) == ["open/3-17", "closed/3-17"]
    for key, value in list(book.unwritten.items()):
        book.take_index(record(value, key=key.encode()))
    book.take_index(record(LetterCheckpoint(letters={3: 18}, receipts={3: 1}, at=NOW), key=b"checkpoint"))
    assert book.unwritten == {}
    assert book.checkpoint is not None


@pytest.mark.parametrize(
    ("wanted", "names"),
    [
        pytest.param(Wanted(), ["3-19", "3-17"], id="open"),
        pytest.param(Wanted(frozenset({"dropped"})), ["3-18"], id="by-state"),
        pytest.param(Wanted(stage="chunker"), ["3-19"], id="by-stage"),
        pytest.param(Wanted(batch="b"), ["3-19"], id="by-batch"),
        pytest.param(Wanted(tenant="acme", document="a"), ["3-19", "3-17"], id="by-document"),
        pytest.param(Wanted(tenant="other"), [], id="by-tenant"),
        pytest.param(Wanted(error="Other"), [], id="by-error"),
        pytest.param(Wanted(since=NOW + timedelta(seconds=1)), [], id="by-time"),
    ],
)
def test_filters(wanted: Wanted, names: list[str]) -> None:
    book = LetterBook()
    book.take_letter(record(letter(source=1), 17))
    book.take_letter(record(letter(source=2), 18))
    book.take_letter(record(letter(5, "chunker", "b", source=3), 19))
    book.take_index(record(closing("3-18", "dropped"), key=b"closed/3-18"))
    assert [found.id for found in book.letters(wanted)] == names


def change(revision: int, op: str = "upsert", event: str = "e", **more: Any) -> DocumentChange:
    content = Content(text="x") if op == "upsert" else None
    return DocumentChange(tenant_id="acme", document_id="a", revision=revision, op=op, content=content, event_id=event, **more)  # type: ignore[arg-type]


def newest(revision: int, op: str = "upsert", null: bool = False) -> Newest:
    return Newest(revision, op, 3, 9, null=null)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("refused", "original", "last", "outcome"),
    [
        pytest.param(letter(5), change(5), newest(5), "sent", id="the-newest-revision-was-refused"),
        pytest.param(letter(5), change(5), newest(4), "sent", id="an-older-one-came-later"),
        pytest.param(letter(5), change(5), None, "sent", id="the-log-has-forgotten"),
        pytest.param(letter(5), change(5), newest(6), "stale", id="a-newer-revision"),
        pytest.param(letter(5), change(5), newest(5, "delete"), "stale", id="deleted-at-this-revision"),
        pytest.param(letter(5), change(5), newest(0, "delete", null=True), "stale", id="ended-by-a-null-value"),
        pytest.param(letter(5), change(5, "delete"), newest(5, "delete"), "sent", id="a-refused-delete"),
        pytest.param(letter(None), None, None, "refused", id="no-event"),
        pytest.param(letter(5, "indexer", "b"), None, newest(5), "newest", id="a-batch's-from-the-log"),
        pytest.param(letter(5, "indexer", "b"), None, newest(6), "newest", id="a-batch's-from-a-newer-revision"),
        pytest.param(letter(5, "indexer", "b"), None, newest(6, "delete"), "stale", id="a-batch's-that-was-deleted-since"),
        pytest.param(letter(5, "indexer", "b"), None, None, "refused", id="a-batch's-without-an-event"),
    ],
)
def test_a_replay_never_takes_a_document_back(
    refused: DeadLetter, original: DocumentChange | None, last: Newest | None, outcome: str
) -> None:
    book = LetterBook()
    book.take_letter(record(refused, 17))
    found = book.letter("3-17")
    assert found is not None
    decided = decide_replay(found, original, last, "not JSON")
    if isinstance(decided, Send):
        assert outcome == ("sent" if decided.change is original and original is not None else "newest")
    else:
        assert isinstance(decided, Replayed)
        assert decided.outcome == outcome
        assert decided.reason


def test_an_event_sent_again_names_the_first_one_however_often_it_is_sent() -> None:
    once = sent_again(change(5, event="evt#1"), "3-17#replay")
    assert (once.event_id, once.reindex, once.revision) == ("evt#1#3-17#replay", True, 5)
    assert sent_again(once, "reindex-abc").event_id == "evt#1#reindex-abc"
    assert len(sent_again(change(5, event="x" * 128), "1234567890-1234567890123456789#replay").event_id) <= 128


def test_the_newest_event_is_by_revision_and_a_delete_has_the_last_word() -> None:
    events = NewestEvents()
    said = [change(5), change(7), change(6), change(7, "delete"), change(7)]
    for offset, each in enumerate(said):
        events.take(record(each, offset))
    assert (events.found[KEY].revision, events.found[KEY].op, events.found[KEY].offset) == (7, "delete", 3)
    events.take(record(change(8), 9))
    events.take(record(None, 10))
    assert (events.found[KEY].revision, events.found[KEY].op, events.found[KEY].null) == (8, "delete", True)
    events.take(record(change(8), 11))
    assert events.found[KEY].op == "delete"
    events.take(InRecord("t", 3, 12, KEY, b"{"))
    events.take(record(change(99), 13, key=b"acme/another"))
    assert (events.unreadable, events.found[KEY].revision) == (2, 8)


OURS = "#r"
FOREIGN_NEW, OLD_OURS = change(6), change(5, event="e#r")


@pytest.mark.parametrize(
    ("log", "again"),
    [
        pytest.param([FOREIGN_NEW, OLD_OURS], 6, id="ours-came-behind-an-edit"),
        pytest.param([OLD_OURS, FOREIGN_NEW], None, id="the-edit-came-behind-ours"),
        pytest.param([FOREIGN_NEW, OLD_OURS, change(7)], None, id="a-later-edit-mends-it"),
        pytest.param([FOREIGN_NEW, OLD_OURS, FOREIGN_NEW], None, id="mended-before"),
        pytest.param([change(4), OLD_OURS], None, id="a-late-event-is-no-edit"),
        pytest.param([None, OLD_OURS], 5, id="ended-by-a-null-value"),
        pytest.param([FOREIGN_NEW, None, OLD_OURS], 6, id="edited-and-ended"),
        pytest.param([OLD_OURS, None], None, id="ended-after-ours"),
        pytest.param([None, OLD_OURS, change(5, "delete", "e#ended")], None, id="an-end-mended-before"),
    ],
)
def test_what_ours_came_behind_is_sent_once_more(log: list[DocumentChange | None], again: int | None) -> None:
    from schemas.codec import decode

    behind = overtaken([record(each, offset) for offset, each in enumerate(log)], OURS)
    if again is None:
        assert behind == {}
    else:
        sent = decode(behind[KEY], DocumentChange)
        assert sent.revision == again
        assert (sent.op == "delete") == (None in log)
