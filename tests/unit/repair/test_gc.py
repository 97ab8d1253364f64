"""Claims about forgetting: nothing open, nothing fresh and nothing that came back is forgotten."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest

from schemas.codec import encode
from schemas.document_change import FORGET, Content, DocumentChange
from schemas.letter_index import LetterClosing, LetterEntry
from streams.ports import InRecord
from streams.repair.gc import last_words, plan_letters
from streams.repair.letters import LetterBook
from streams.repair.newest import NewestEvents

NOW = datetime(2031, 1, 1, tzinfo=UTC)
KEY = b"acme/a"
OLD, FRESH = NOW - timedelta(days=100), NOW - timedelta(days=1)


def book(**states: str) -> LetterBook:
    """A book of letters 0-0, 0-1, …: each `old` (closed long ago), `fresh` (closed lately) or `open`."""
    made = LetterBook()
    for number, state in enumerate(states.values()):
        entry = LetterEntry(
            letter=f"0-{number}", topic="t", partition=0, offset=number, stage="parser", error="E", reason="r", failed_at=OLD
        )
        made.take_index(InRecord("i", 0, 0, f"open/0-{number}".encode(), encode(entry)))
        if state != "open":
            closed = LetterClosing(letter=f"0-{number}", state="healed", at=OLD if state == "old" else FRESH)
            made.take_index(InRecord("i", 0, 0, f"closed/0-{number}".encode(), encode(closed)))
    return made


@pytest.mark.parametrize(
    ("letters", "keep", "gone"),
    [
        pytest.param({"a": "old", "b": "old"}, {0: 9}, ("0-0", "0-1"), id="all-of-them"),
        pytest.param({"a": "old", "b": "open", "c": "old"}, {0: 1}, ("0-0",), id="up-to-the-first-open-one"),
        pytest.param({"a": "old", "b": "fresh", "c": "old"}, {0: 1}, ("0-0",), id="up-to-one-closed-lately"),
        pytest.param({"a": "open", "b": "old"}, {}, (), id="nothing-before-an-open-one"),
    ],
)
def test_letters_go_up_to_the_first_that_is_needed(letters: dict[str, str], keep: dict[int, int], gone: tuple[str, ...]) -> None:
    plan = plan_letters(book(**letters), {0: 0}, {0: 9}, NOW - timedelta(days=90))
    assert (plan.keep, plan.forget) == (keep, gone)


def test_a_letter_stays_in_the_index_while_a_repeat_of_it_is_on_the_broker() -> None:
    made = book(a="old", b="open")
    made.repeats["0-2"] = "0-0"
    plan = plan_letters(made, {0: 0}, {0: 9}, NOW - timedelta(days=90))
    assert (plan.keep, plan.forget) == ({0: 1}, ())


def test_a_closing_goes_once_its_entry_is_gone_so_that_a_late_entry_is_never_open_again() -> None:
    made = book(a="old", b="old")
    first = plan_letters(made, {0: 0}, {0: 9}, NOW - timedelta(days=90))
    made.take_index(InRecord("i", 0, 0, b"open/0-0", None))
    second = plan_letters(made, {0: 9}, {0: 9}, NOW - timedelta(days=90))
    assert (first.forget, first.closings) == (("0-0", "0-1"), ())
    assert (second.forget, second.closings) == (("0-1",), ("0-0",))


def test_what_is_forgotten_is_gone_from_the_book() -> None:
    made = book(a="old", b="open")
    for kind in ("open/", "closed/"):
        made.take_index(InRecord("i", 0, 0, f"{kind}0-0".encode(), None))
    assert made.letter("0-0") is None
    assert (made.open_count, list(made.closings)) == (1, [])


def said(revision: int, op: str = "upsert") -> bytes:
    content = Content(text="x") if op == "upsert" else None
    return encode(DocumentChange(tenant_id="acme", document_id="a", revision=revision, op=op, content=content))  # type: ignore[arg-type]


FORGETTING = "forgetting"


@pytest.mark.parametrize(
    ("log", "deleted", "forgotten", "revived"),
    [
        pytest.param([said(5), said(6, "delete")], True, False, False, id="ended"),
        pytest.param([said(5), said(6, "delete"), FORGETTING], True, True, False, id="ended-and-forgotten"),
        pytest.param([said(5), said(6, "delete"), said(5)], True, False, False, id="a-late-event-revives-nothing"),
        pytest.param([said(6, "delete"), FORGETTING, said(5)], True, False, False, id="a-late-event-behind-a-forgetting"),
        pytest.param([said(6, "delete"), said(7), FORGETTING], False, True, True, id="forgotten-in-the-moment-it-came-back"),
        pytest.param([said(6, "delete"), said(7), FORGETTING, said(7)], False, False, True, id="and-said-once-more"),
        pytest.param([said(5), None], True, True, False, id="a-null-value-is-dropped-anyway"),
    ],
)
def test_the_last_word_on_a_document(log: list[bytes | str | None], deleted: bool, forgotten: bool, revived: bool) -> None:
    records = [
        InRecord("d", 0, offset, KEY, None, {FORGET: b"6"}) if value == FORGETTING else InRecord("d", 0, offset, KEY, value)  # type: ignore[arg-type]
        for offset, value in enumerate(log)
    ]
    last = last_words(records)[KEY]
    assert (last.deleted, last.forgotten, last.value is not None) == (deleted, forgotten, revived)


def test_a_forgetting_is_no_event_for_a_re_index() -> None:
    events = NewestEvents()
    for offset, (value, headers) in enumerate(
        [(said(6, "delete"), {}), (None, {FORGET: b"6"}), (said(7), {}), (None, {FORGET: b"6"})]
    ):
        events.take(InRecord("d", 0, offset, KEY, value, headers))
    assert (events.found[KEY].revision, events.found[KEY].op) == (7, "upsert")
