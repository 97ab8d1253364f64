"""What the log says of a document: its newest event, and what it said before it ended, whatever order the events came in."""

from __future__ import annotations

from typing import Literal

from hypothesis import given
from hypothesis import strategies as st

from schemas.codec import encode
from schemas.document_change import Content, DocumentChange
from schemas.record import document_key
from streams.ports import InRecord
from streams.repair.newest import NewestEvents

KEY = document_key("acme", "d")
EVENTS = st.lists(st.tuples(st.integers(1, 5), st.sampled_from(["upsert", "delete"])), min_size=1, max_size=8)


def fold(*said: tuple[int, Literal["upsert", "delete"]] | None) -> NewestEvents:
    events = NewestEvents()
    for offset, each in enumerate(said):
        value = None
        if each is not None:
            content = Content(text="a page") if each[1] == "upsert" else None
            change = DocumentChange(tenant_id="acme", document_id="d", revision=each[0], op=each[1], content=content)
            value = encode(change)
        events.take(InRecord("documents", 0, offset, KEY, value))
    return events


@given(EVENTS)
def test_before_its_end_is_the_newest_upsert_that_is_left(said: list[tuple[int, Literal["upsert", "delete"]]]) -> None:
    events = fold(*said)
    newest, before = events.found[KEY], events.before_end.get(KEY)
    assert newest.revision == max(revision for revision, _ in said)
    upserts = [revision for revision, op in said if op == "upsert"]
    if newest.op == "upsert" or not upserts:
        assert before is None
    else:
        assert before is not None
        assert (before.revision, before.op) == (max(upserts), "upsert")
        assert said[before.offset] == (before.revision, "upsert")


def test_a_null_value_ends_what_was_before_it() -> None:
    events = fold((1, "upsert"), None, (1, "upsert"))
    assert (events.found[KEY].op, events.found[KEY].revision, events.before_end[KEY].offset) == ("delete", 1, 2)
    assert fold(None).before_end == {}
