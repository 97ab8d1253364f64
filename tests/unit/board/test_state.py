"""The page's aggregates: true to the receipts, bounded whatever passes, and nothing is searched for to be shown."""

from __future__ import annotations

import json
import sys
from collections import OrderedDict
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from schemas.batch import BatchRecord, EmbeddingRecord, LaunchRecord
from schemas.dead_letter import DeadLetter
from schemas.held_change import HeldChange
from schemas.receipt import Outcome, Receipt
from streams.board import state as limits
from streams.board.lag_book import LagBook
from streams.board.state import BoardState
from streams.board.troubles import Surroundings
from streams.board.view import SHOWN_LETTERS, SHOWN_TENANTS, view
from streams.topics import TopicNames

BEGIN = datetime(2026, 11, 30, 8, 0, tzinfo=UTC)
NOW = BEGIN.timestamp() + 3000


def receipt(
    document: str, revision: int = 1, outcome: Outcome = "indexed", seconds: float = 1.0, after: float = 0.0, **more: object
) -> Receipt:
    settled = BEGIN + timedelta(seconds=after + seconds)
    fields = {
        "tenant_id": "acme",
        "document_id": document,
        "revision": revision,
        "batch": "v1",
        "stage": "indexer",
        "outcome": outcome,
        "event_id": f"{document}@{revision}",
        "received_at": settled - timedelta(seconds=seconds),
        "settled_at": settled,
    }
    return Receipt.model_validate(fields | more)


def letter(document: str, revision: int | None = 1, offset: int = 0, batch: str = "", tenant: str = "acme") -> DeadLetter:
    return DeadLetter(
        topic="docdelta.documents",
        partition=0,
        offset=offset,
        key=None,
        value="e30=",
        stage="indexer" if batch else "parser",
        batch=batch,
        error="PoisonRecord",
        reason="unreadable markup",
        tenant_id=tenant if document else "",
        document_id=document,
        revision=revision,
        failed_at=BEGIN,
    )


def held(tenant: str, document: str) -> HeldChange:
    place = {"partition": 0, "offset": 1, "since": BEGIN, "value": None}
    return HeldChange(tenant_id=tenant, document_id=document, revision=1, op="delete", reason="breaker", why="60 %", **place)


def batch(name: str, state: str = "active", launch: datetime | None = None) -> BatchRecord:
    return BatchRecord(
        batch=name,
        state=state,  # type: ignore[arg-type]
        policy_yaml="",
        policy_fingerprint="",
        collection=name,
        embedding=EmbeddingRecord(model="m", dimensions=4),
        alias="docdelta",
        created_at=BEGIN,
        updated_at=BEGIN,
        launch=LaunchRecord(at=launch) if launch else None,
    )


def take(state: BoardState, *receipts: Receipt) -> list[bool]:
    return [state.take_receipt(each, NOW, NOW) for each in receipts]


def page(state: BoardState, now: float = NOW) -> dict[str, object]:
    return view(state, LagBook(TopicNames()), Surroundings(), {}, now)


def test_a_repeat_counts_once_and_another_outcome_of_the_same_event_counts() -> None:
    state = BoardState()
    first = receipt("a", added=3, embedded=3)
    assert take(state, first, first, receipt("a", outcome="dead_lettered"), first) == [True, False, True, False]
    assert (state.total.indexed, state.total.dead_lettered, state.total.computed) == (1, 1, 3)


def test_embeddings_are_split_as_the_metrics_split_them() -> None:
    state = BoardState()
    take(state, receipt("a", kept=5, updated=2, added=4, removed=1, embedded=1, borrowed=2))
    take(state, receipt("b", outcome="unchanged", batch="", stage="parser", kept=9))
    total = state.total
    assert (total.computed, total.borrowed, total.avoided) == (1, 2, 8)
    assert (total.kept, total.updated, total.added, total.removed) == (5, 2, 4, 1)
    assert total.settled == 2


def test_freshness_is_of_the_served_batch_and_not_of_what_a_build_replays() -> None:
    state = BoardState()
    state.take_batches([batch("v1"), batch("v2", "building", launch=BEGIN + timedelta(seconds=100))], "docdelta")
    take(state, receipt("a", seconds=2), receipt("b", seconds=4, after=60), receipt("c", seconds=600, batch="v2", after=20))
    take(state, receipt("d", seconds=3, batch="v2", after=200))
    found = page(state)["freshness"]
    assert isinstance(found, dict)
    assert (found["batch"], found["timed"], found["longest"], found["settled_hour"]) == ("v1", 2, 4.0, 4)
    assert sum(minute.timed for minute in state.rows["v2"].hour.last(NOW)) == 1, "what came after launch counts for the build"
    assert page(state, NOW + 7200)["freshness"]["timed"] == 0  # type: ignore[index]


def test_a_quantile_is_off_by_a_class_at_most() -> None:
    state = BoardState()
    state.take_batches([batch("v1")], "docdelta")
    take(state, *[receipt(f"d{n}", seconds=0.1 * (n + 1)) for n in range(100)])
    found = page(state)["freshness"]
    assert isinstance(found, dict)
    assert 5.0 <= found["hour_p50"] <= 5.0 * 1.13
    assert 9.9 <= found["hour_p99"] <= 10.0
    assert found["longest"] == 10.0


@pytest.mark.parametrize(
    ("healing", "open_after"),
    [
        pytest.param(receipt("a", 2), 0, id="a-newer-revision-heals"),
        pytest.param(receipt("a", 1), 0, id="the-same-revision-sent-again-heals"),
        pytest.param(receipt("a", 0), 1, id="an-older-one-does-not"),
        pytest.param(receipt("a", 2, outcome="stale"), 1, id="a-late-one-does-not"),
        pytest.param(receipt("b", 2), 1, id="another-document-does-not"),
        pytest.param(receipt("a", 2, seconds=1, after=-10), 1, id="what-was-before-does-not"),
    ],
)
def test_a_letter_is_open_until_its_document_gets_through(healing: Receipt, open_after: int) -> None:
    state = BoardState()
    state.take_letter(letter("a"), 0, 7)
    take(state, healing)
    assert state.open_letters == open_after
    assert state.letters_written == 1


def test_a_letter_of_a_batch_heals_in_that_batch_or_with_its_end() -> None:
    state = BoardState()
    state.take_batches([batch("v1"), batch("v2", "building")], "docdelta")
    state.take_letter(letter("a", batch="v2", offset=1), 0, 1)
    state.take_letter(letter("b", batch="v2", offset=2), 0, 2)
    take(state, receipt("a", 2), receipt("b", 2, batch="v2"))
    assert [each.document for each in state.newest_letters(9)] == [("acme", "a")]
    state.take_batches([batch("v1"), batch("v2", "retired")], "docdelta")
    assert state.open_letters == 0


def test_a_closing_counts_in_whatever_order_it_comes() -> None:
    for closing_first in (True, False):
        state = BoardState()
        if closing_first:
            state.close_letter("0-7")
        state.take_letter(letter("", revision=None), 0, 7)
        if not closing_first:
            assert state.open_letters == 1
            state.close_letter("0-7")
        assert state.open_letters == 0
        assert not state.troubled


def test_a_letter_that_repeats_another_is_that_one() -> None:
    state = BoardState()
    state.take_letter(letter("a", offset=3), 0, 7)
    state.take_letter(letter("a", offset=3), 0, 8)
    assert (state.open_letters, state.letters_written) == (1, 1)


def test_a_document_is_listed_once_however_many_of_its_events_are_refused() -> None:
    state = BoardState()
    for offset, (document, revision) in enumerate([("a", 1), ("b", 1), ("a", 2), ("", None), ("a", 3)]):
        state.take_letter(letter(document, revision, offset), 0, offset)
    assert [(each.id, count) for each, count in state.newest_refused(9)] == [("0-4", 3), ("0-3", 1), ("0-1", 1)]
    assert [(row["id"], row["letters"]) for row in page(state)["letters"]["shown"]] == [("0-4", 3), ("0-3", 1), ("0-1", 1)]  # type: ignore[index]
    assert [(row["document"], row["letters"]) for row in page(state)["worst"]] == [("a", 3), ("b", 1)]  # type: ignore[attr-defined]
    state.close_letter("0-4")
    assert [(each.id, count) for each, count in state.newest_refused(1)] == [("0-2", 2)]
    take(state, receipt("a", 2))
    assert [each.document for each, _ in state.newest_refused(9)] == [None, ("acme", "b")]
    assert state.open_letters == sum(count for _, count in state.newest_refused(9)) == 2


def test_a_held_change_is_held_until_it_is_taken_back() -> None:
    state = BoardState()
    state.take_held("acme", "a", held("acme", "a"))
    state.take_held("acme", "a", held("acme", "a"))
    assert (state.held_changes, state.held_by) == (1, {"acme": 1})
    state.take_held("acme", "a", None)
    state.take_held("acme", "never", None)
    assert (state.held_changes, state.held_by, dict(state.troubled)) == (0, {}, {})


def test_the_clock_of_a_worker_that_is_ahead_does_not_hide_what_comes() -> None:
    state = BoardState()
    take(state, receipt("a", after=86_400), receipt("b", after=2990))
    assert page(state)["freshness"]["settled_hour"] == 2  # type: ignore[index]


def _history(chunks: int, a_document: int, tenants: int) -> Iterator[Receipt]:
    for number in range(chunks // a_document):
        after = 2900 * number / (chunks // a_document)
        yield receipt(
            f"d{number}", tenant_id=f"t{number % tenants}", added=a_document, embedded=a_document, title="x" * 500, after=after
        )


class _Touched(OrderedDict[Any, Any]):
    """A dictionary that counts the entries that are looked at."""

    count = 0

    def __getitem__(self, key: Any) -> Any:
        _Touched.count += 1
        return super().__getitem__(key)

    def get(self, key: Any, default: Any = None) -> Any:
        _Touched.count += 1
        return super().get(key, default)

    def __iter__(self) -> Iterator[Any]:
        return self._counted(super().__iter__())

    def __reversed__(self) -> Iterator[Any]:
        return self._counted(super().__reversed__())

    def values(self) -> Any:
        return _Values(self)

    def items(self) -> Any:
        raise AssertionError("nothing that is shown needs all of it")

    def _counted(self, entries: Iterator[Any]) -> Iterator[Any]:
        for each in entries:
            _Touched.count += 1
            yield each


class _Values:
    def __init__(self, entries: _Touched) -> None:
        self._entries = entries

    def __iter__(self) -> Iterator[Any]:
        return (OrderedDict.__getitem__(self._entries, key) for key in self._entries)

    def __reversed__(self) -> Iterator[Any]:
        return (OrderedDict.__getitem__(self._entries, key) for key in reversed(self._entries))


def _grown(letters: int, tenants: int, documents: int) -> BoardState:
    """Return a state with so much behind it, and a chunk of twenty for each document."""
    state = BoardState()
    state.take_batches([batch("v1")], "docdelta")
    for number in range(letters):
        state.take_letter(letter(f"bad{number}", offset=number, tenant=f"t{number % tenants}"), 0, number)
        state.take_held(f"t{number % tenants}", f"held{number}", held(f"t{number % tenants}", f"held{number}"))
    for each in _history(20 * documents, 20, tenants):
        state.take_receipt(each, NOW, NOW)
    return state


def _work(state: BoardState) -> tuple[int, int, int]:
    """Return what one view of the page costs: entries looked at, lines of code run, bytes sent."""
    for name, value in vars(state).items():
        if isinstance(value, dict):
            setattr(state, name, _Touched(value))
    lines, _Touched.count = 0, 0

    def traced(frame: Any, event: str, argument: Any) -> Any:
        nonlocal lines
        lines += event == "line"
        return traced

    sys.settrace(traced)
    try:
        found = page(state)
    finally:
        sys.settrace(None)
    return _Touched.count, lines, len(json.dumps(found, ensure_ascii=False).encode())


def test_a_view_costs_the_same_however_much_there_is() -> None:
    """10,000 letters and as many held changes, 1,000 tenants, 1,000,000 chunks, against a hundredth of it: counted, not timed."""
    small, large = _work(_grown(100, 50, 500)), _work(_grown(10_000, 1_000, 50_000))
    assert large[0] <= small[0] <= 500, "entries of what is kept"
    assert large[1] <= 1.02 * small[1], "lines of code"
    assert large[2] <= 1.1 * small[2], "bytes: longer numbers, not more of them"


def _sizes(state: BoardState) -> dict[str, int]:
    """Return how many things the state remembers, by attribute."""
    return {name: len(value) for name, value in vars(state).items() if hasattr(value, "__len__")}


def test_a_million_chunks_ten_thousand_letters_a_thousand_tenants_fit_in_a_bounded_page() -> None:
    state = BoardState()
    state.take_batches([batch("v1")], "docdelta")
    for number in range(10_000):
        state.take_letter(letter(f"bad{number}", offset=number, tenant=f"t{number % 1000}"), 0, number)
    for each in _history(1_000_000, 20, 1000):
        state.take_receipt(each, NOW, NOW)
    assert state.total.added == state.total.computed == 1_000_000
    assert state.total.indexed == 50_000
    assert state.open_letters == state.letters_written == 10_000
    assert len(state.tenants) == 1000
    found = page(state)
    assert len(json.dumps(found, ensure_ascii=False).encode()) < 64_000
    letters, tenants = found["letters"], found["tenants"]
    assert isinstance(letters, dict)
    assert isinstance(tenants, dict)
    assert letters["open"] == 10_000
    assert len(letters["shown"]) == SHOWN_LETTERS
    assert len(tenants["shown"]) == SHOWN_TENANTS
    assert tenants["others"]["indexed"] == 50_000 - sum(each["indexed"] for each in tenants["shown"])
    assert tenants["hidden"] == 1000 - SHOWN_TENANTS


def test_what_is_remembered_stays_within_its_limits(monkeypatch: pytest.MonkeyPatch) -> None:
    """The same laws with small limits: nothing grows beyond them, and what is not known any more is still counted."""
    for name, limit in {
        "KNOWN_RECEIPTS": 200,
        "OPEN_LETTERS": 50,
        "CLOSED_LETTERS": 5000,
        "KNOWN_TENANTS": 20,
        "KNOWN_TITLES": 30,
    }.items():
        monkeypatch.setattr(limits, name, limit)
    state = BoardState()
    for number in range(1000):
        state.take_letter(letter(f"bad{number}", offset=number, tenant=f"t{number % 300}"), 0, number)
        tenant, document = f"h{number % 40}", f"h{number}"
        state.take_held(tenant, document, held(tenant, document))
    for each in _history(10_000, 1, 300):
        state.take_receipt(each, NOW, NOW)
    before = _sizes(state)
    for number, each in enumerate(_history(10_000, 1, 300)):
        state.take_receipt(each.model_copy(update={"event_id": f"again{number}"}), NOW, NOW)
    assert _sizes(state) == before, "twice as much is not more to remember"
    assert state.open_letters == 1000
    assert state.held_changes == 1000
    assert (before["letters"], before["held"], before["tenants"]) == (50, 50, 20)
    assert sum(state.troubled.values()) == 100
    assert state.total.indexed == 20_000
    counted = sum(row.tally.indexed for row in state.tenants.values()) + state.other_tenants.indexed
    assert counted == 20_000
    assert page(state)["tenants"]["others"]["indexed"] == state.other_tenants.indexed  # type: ignore[index]
