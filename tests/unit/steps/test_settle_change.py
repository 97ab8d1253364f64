"""The front door's table: what becomes of a change, given what was seen of its document."""

from __future__ import annotations

import hashlib
import json
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from schemas.document_change import Content, DocumentChange
from streams.errors import PoisonRecord
from streams.steps.settle_change import (
    AlreadySettled,
    Seen,
    ToEnd,
    ToParse,
    change_fingerprint,
    failed,
    passed_before,
    settle_change,
)


def upsert(revision: int, text: str = "five", event: str = "", **more: Any) -> DocumentChange:
    return DocumentChange(
        tenant_id="a", document_id="d1", revision=revision, op="upsert", content=Content(text=text), event_id=event, **more
    )


def delete(revision: int, event: str = "") -> DocumentChange:
    return DocumentChange(tenant_id="a", document_id="d1", revision=revision, op="delete", event_id=event)


def seen(change: DocumentChange) -> Seen:
    return Seen(change.revision, change_fingerprint(change), change.op == "delete", event_id=change.event_id)


FIVE = upsert(5, event="e5")


@pytest.mark.parametrize(
    ("change", "before", "decision", "outcome"),
    [
        pytest.param(FIVE, None, ToParse, None, id="first-revision-is-parsed"),
        pytest.param(delete(5), None, ToEnd, None, id="delete-of-an-unknown-document-is-passed-on"),
        pytest.param(upsert(6, "six"), seen(upsert(7, "seven")), AlreadySettled, "stale", id="IN-13-older-revision-is-stale"),
        pytest.param(upsert(5, event="e9"), seen(FIVE), AlreadySettled, "unchanged", id="IN-13-same-revision-again"),
        pytest.param(FIVE, seen(FIVE), AlreadySettled, None, id="same-event-again-has-its-outcome-already"),
        pytest.param(upsert(7), seen(FIVE), AlreadySettled, "unchanged", id="same-content-under-a-newer-revision"),
        pytest.param(upsert(7, title="new"), seen(FIVE), ToParse, None, id="IN-04-new-metadata-is-a-change"),
        pytest.param(upsert(7, "seven"), seen(FIVE), ToParse, None, id="new-content-is-parsed"),
        pytest.param(delete(8), seen(upsert(7)), ToEnd, None, id="newer-delete-ends"),
        pytest.param(delete(9), seen(delete(8)), AlreadySettled, "unchanged", id="KA-03-a-second-delete-changes-nothing"),
        pytest.param(upsert(7, "seven"), seen(delete(8)), AlreadySettled, "stale", id="IN-13-late-upsert-after-delete"),
        pytest.param(upsert(8, "eight"), seen(delete(8)), AlreadySettled, "stale", id="delete-wins-at-its-revision"),
        pytest.param(delete(5), seen(FIVE), ToEnd, None, id="delete-at-the-same-revision-wins"),
        pytest.param(upsert(9), seen(delete(8)), ToParse, None, id="re-creation-is-parsed"),
        pytest.param(FIVE, failed(seen(FIVE)), ToParse, None, id="a-failed-revision-may-be-replayed"),
        pytest.param(upsert(6), failed(seen(FIVE)), ToParse, None, id="same-content-is-parsed-again-after-a-failure"),
        pytest.param(upsert(4), failed(seen(FIVE)), AlreadySettled, "stale", id="nothing-older-than-a-failed-revision-is-written"),
        pytest.param(upsert(5, reindex=True), seen(FIVE), ToParse, None, id="reindex-parses-again"),
        pytest.param(upsert(4, reindex=True), seen(FIVE), AlreadySettled, "stale", id="reindex-does-not-bring-old-text-back"),
    ],
)
def test_a_change_is_settled_by_what_was_seen(
    change: DocumentChange, before: Seen | None, decision: type, outcome: str | None
) -> None:
    settled = settle_change(change, before)
    assert type(settled) is decision
    if isinstance(settled, AlreadySettled):
        assert settled.outcome == outcome


def test_one_revision_with_two_contents_is_the_senders_mistake() -> None:
    with pytest.raises(PoisonRecord, match="revision 5 was already seen with other content"):
        settle_change(upsert(5, "other"), seen(FIVE))


def test_a_fingerprint_ignores_who_when_and_key_order() -> None:
    """IN-08: volatile fields and the order of keys are no change."""
    one = upsert(5, attributes={"a": 1, "b": 2}, event="x")
    two = upsert(6, attributes={"b": 2, "a": 1}, event="y")
    assert change_fingerprint(one) == change_fingerprint(two)
    assert change_fingerprint(one) != change_fingerprint(upsert(5, attributes={"a": 1, "b": 3}))


def test_what_was_seen_survives_its_bytes() -> None:
    memory = failed(seen(FIVE))
    assert Seen.from_bytes(memory.to_bytes()) == memory


def test_what_was_last_passed_on_outlives_revisions_that_were_not() -> None:
    passed = seen(FIVE)
    assert passed.last_passed == 5
    unchanged = passed_before(replace(passed, revision=6), passed)
    unreadable = passed_before(failed(replace(passed, revision=7)), unchanged)
    assert [unchanged.last_passed, unreadable.last_passed] == [5, 5]
    assert [Seen.from_bytes(row.to_bytes()) for row in (unchanged, unreadable)] == [unchanged, unreadable]
    assert failed(passed).last_passed is None
    assert passed_before(passed, passed) == passed, "rows of most documents are as they were"


SCALARS = st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(st.characters(exclude_categories=["Cs"]))
WORDS = st.text(st.characters(exclude_categories=["Cs"]).filter(lambda letter: letter != "\0"))


@given(WORDS, WORDS, st.dictionaries(WORDS, SCALARS | st.lists(SCALARS, max_size=3).map(tuple), max_size=4))
def test_a_fingerprint_is_the_digest_of_what_pythons_own_json_writes(text: str, title: str, attributes: dict[str, Any]) -> None:
    """Rows of earlier releases hold that digest: an unchanged page must stay unchanged, whoever writes its JSON."""
    change = upsert(5, text, title=title, attributes=attributes)
    said = change.model_dump(mode="json", exclude={"revision", "occurred_at", "event_id", "reindex"})
    canonical = json.dumps(said, sort_keys=True, ensure_ascii=False, separators=(",", ":"))
    assert change_fingerprint(change) == hashlib.sha256(canonical.encode()).hexdigest()
    assert settle_change(change, seen(change)) == settle_change(change, seen(change), change_fingerprint(change))
