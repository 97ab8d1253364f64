"""Claims about the line table of changes: columns in place in every script, times and totals right."""

from __future__ import annotations

import io
from datetime import UTC, datetime, timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st
from rich.cells import cell_len
from rich.console import Console

from schemas.receipt import Outcome, Receipt
from streams.cli.change_table import ChangeTable, change_line, fitted, seconds_to_searchable

BEGAN = datetime(2026, 1, 1, tzinfo=UTC)


def receipt(
    document: str = "a.md",
    outcome: Outcome = "indexed",
    *,
    milliseconds: int | None = 120,
    received: int | None = None,
    deleted: bool = False,
    reason: str = "",
    **figures: int,
) -> Receipt:
    return Receipt(
        tenant_id="acme",
        document_id=document,
        revision=7,
        batch="b",
        stage="indexer",
        outcome=outcome,
        deleted=deleted,
        reason=reason,
        occurred_at=BEGAN if received is None else None,
        received_at=None if received is None else BEGAN + timedelta(milliseconds=received),
        settled_at=None if milliseconds is None else BEGAN + timedelta(milliseconds=milliseconds),
        **figures,
    )


def printed(*receipts: Receipt) -> list[str]:
    stream = io.StringIO()
    table = ChangeTable(Console(file=stream, width=40))
    for each in receipts:
        table.add(each)
    return stream.getvalue().splitlines()


def test_a_line_has_the_figures_under_their_names() -> None:
    heading, line = printed(receipt(kept=10, added=1, updated=2, removed=3, embedded=4))
    for name, number in {"kept": 10, "added": 1, "updated": 2, "removed": 3, "embedded": 4}.items():
        end = heading.index(name) + len(name)
        assert line[:end].split()[-1] == str(number)
    assert line.endswith("120 ms")


def test_lines_are_not_folded_however_narrow_the_console() -> None:
    assert len(printed(receipt(), receipt("b.md"))) == 3


@given(st.text(max_size=60), st.integers(1, 40))
def test_a_fitted_text_takes_exactly_its_cells(text: str, width: int) -> None:
    assert cell_len(fitted(text, width)) == width


@pytest.mark.parametrize("document", ["a.md", "政策/退款与退货办法.zh.md", "x" * 80, "手册" * 40])
def test_every_line_is_as_wide_as_the_heading(document: str) -> None:
    heading, line = printed(receipt(document))
    assert cell_len(line) == cell_len(heading)


@pytest.mark.parametrize(
    ("given", "seconds"),
    [
        pytest.param(receipt(milliseconds=1500), 1.5, id="from-the-event"),
        pytest.param(receipt(milliseconds=1500, received=500), 1.0, id="from-the-receipt-where-the-event-has-no-time"),
        pytest.param(receipt(milliseconds=-20), 0.0, id="clocks-apart-never-give-less-than-nothing"),
        pytest.param(receipt(milliseconds=None), None, id="not-settled"),
    ],
)
def test_the_time_to_searchable(given: Receipt, seconds: float | None) -> None:
    assert seconds_to_searchable(given) == seconds


def test_a_refusal_prints_its_reason_below() -> None:
    assert "unreadable markup" in printed(receipt(outcome="dead_lettered", reason="unreadable markup"))[2]


def test_a_delete_is_called_deleted() -> None:
    assert " deleted " in change_line(receipt(deleted=True, removed=3))


def test_totals_count_what_each_document_has_now() -> None:
    table = ChangeTable(Console(file=io.StringIO()))
    table.add(receipt("a", added=5, embedded=5))
    table.add(receipt("b", added=2, embedded=2))
    table.add(receipt("a", kept=4, added=1, removed=1, embedded=1))
    table.add(receipt("a", "unchanged", kept=5))
    table.add(receipt("b", removed=2, deleted=True))
    assert table.totals() == "5 chunks in 1 document, 8 embedded by 5 events"


@pytest.mark.parametrize("event_id", ["e1#3-17#replay", "e1#reindex-0a1b2c"])
def test_an_event_that_was_sent_again_is_timed_from_when_it_was(event_id: str) -> None:
    old = receipt(milliseconds=5_000).model_copy(update={"received_at": BEGAN + timedelta(milliseconds=4_900)})
    assert seconds_to_searchable(old) == 5.0
    assert seconds_to_searchable(old.model_copy(update={"event_id": event_id})) == pytest.approx(0.1)
