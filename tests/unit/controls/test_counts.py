"""Counts of the breaker: what is kept as events pass equals a recount of the table, and nothing is held below the share."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from schemas.control import Figures
from streams.controls.counts import SLICES, Counts
from streams.steps.breaker import SMALLEST, trips
from streams.steps.limits import Limits
from streams.steps.settle_change import HeldMark, Seen
from tests.support.desk import desk_over
from tests.support.pipeline import Pipeline, sections
from tests.support.ports import SteppingClock

WINDOW = 3600.0


@st.composite
def rows(draw: Any) -> Seen:
    """Return any row that the parser may leave."""
    mark = draw(
        st.none()
        | st.builds(
            HeldMark, st.sampled_from(["breaker", "paused"]), st.just(9), st.just(""), st.booleans(), st.just("e"), st.just(4)
        )
    )
    return Seen(
        draw(st.sampled_from([-1, 0, 5])),
        draw(st.sampled_from(["x", "y"])),
        deleted=draw(st.booleans()),
        at=draw(st.sampled_from([0.0, 1.9e9, 1.9e9 + 59, 1.9e9 + 61, 1.9e9 + 3000, 1.9e9 + 3601, 1.9e9 + 9000])),
        changed=draw(st.booleans()),
        epoch=draw(st.sampled_from(["", "0a"])),
        passing=draw(st.sampled_from([-1, 4])),
        held=mark,
        dropped=draw(st.sampled_from([-1, 0, 7])),
    )


KEYS = st.sampled_from([b"a/x", b"a/y", b"b/x", b"a/z/1"])


@given(st.lists(st.tuples(st.sampled_from([0, 1]), KEYS, rows()), max_size=40))
def test_whatever_came_counts_equal_a_recount_of_the_table(history: list[tuple[int, bytes, Seen]]) -> None:
    kept, tables = Counts(WINDOW), {0: dict[bytes, Seen](), 1: dict[bytes, Seen]()}
    for partition, key, row in history:
        for _ in range(2):  # delivered twice
            kept.change(partition, key, tables[partition].get(key), row)
            tables[partition][key] = row
    again = Counts(WINDOW)
    for partition, table in tables.items():
        again.begin(partition)
        again.load(partition, [(key, row.to_bytes()) for key, row in table.items()])
    for owned in ({0}, {1}, {0, 1}, set[int]()):
        assert kept.held(owned) == again.held(owned)
        for tenant in ("a", "b", "nobody"):
            for epoch in ("", "0a"):
                for at in (1.9e9 + 9000, 1.9e9 + 12_000):
                    for what in ("deletes", "changes"):
                        mine = kept.figures(tenant, what, at, epoch, owned)  # type: ignore[arg-type]
                        assert mine == again.figures(tenant, what, at, epoch, owned)  # type: ignore[arg-type]


@given(rows())
def test_a_row_survives_and_one_of_an_earlier_release_is_readable(row: Seen) -> None:
    assert Seen.from_bytes(row.to_bytes()) == (
        row if row.at or row.changed or row.held or row.passing >= 0 or row.dropped >= 0 else replace(row, epoch="")
    )
    assert Seen.from_bytes(b'[3, "f", true, false, "e", 7]') == Seen(3, "f", True, False, "e", 7)


def test_what_is_older_than_the_window_does_not_count_and_the_rest_does() -> None:
    counts = Counts(WINDOW)
    for number, at in enumerate((1000.0, 1000.0 + WINDOW / 2, 1000.0 + WINDOW)):
        counts.change(0, f"a/{number}".encode(), None, Seen(1, "f", deleted=True, at=at))
    counts.change(0, b"a/live", None, Seen(1, "f"))
    assert counts.figures("a", "deletes", 1000.0 + WINDOW + 1, "", {0}) == Figures(counted=3, documents=3, window_seconds=WINDOW)


def test_counts_of_a_tenant_that_deletes_a_little_for_years_stay_small() -> None:
    counts = Counts(WINDOW)
    for number in range(20_000):
        counts.change(0, f"a/{number}".encode(), None, Seen(1, "f", deleted=True, at=1e9 + number * WINDOW / SLICES))
    assert len(counts._partitions[0]["a"].removed[""].counts) <= 3 * SLICES
    assert counts.figures("a", "deletes", 1e9 + 20_000 * WINDOW / SLICES, "", {0}).counted == SLICES


def _deletes(counts: Counts, first: int, number: int, told: float, now: float) -> None:
    for each in range(first, first + number):
        at = counts.time_of(0, told, now)
        counts.change(0, f"a/{each}".encode(), None, Seen(1, "f", deleted=True, at=at))


def test_a_clock_that_was_an_hour_ahead_for_days_and_is_set_back_leaves_a_window_that_counts() -> None:
    now = [1.9e9]
    counts = Counts(WINDOW, lambda: now[0])
    ahead = 3 * 86_400.0
    for number in range(400):  # every ten minutes something goes, by a clock that is three days ahead
        wrong = 1.9e9 + ahead + number * 600
        _deletes(counts, number, 1, wrong, wrong)
    now[0] = 1.9e9 + 400 * 600
    _deletes(counts, 1000, 40, now[0], now[0])
    at = counts.time_of(0, now[0], now[0])
    assert at == now[0], "time goes on from what the clock says now"
    assert counts.figures("a", "deletes", at, "", {0}).counted >= 41, "what goes now is counted, and what lies ahead with it"


def test_a_clock_that_is_set_back_an_hour_forgets_nothing_that_went_in_the_last_one() -> None:
    counts = Counts(WINDOW, lambda: 1.9e9)
    _deletes(counts, 0, 30, 1.9e9 + 3600, 1.9e9 + 3600)
    at = counts.time_of(0, 1.9e9, 1.9e9)
    assert counts.figures("a", "deletes", at, "", {0}).counted == 31


def test_a_clock_that_is_set_forward_begins_another_window_and_no_more() -> None:
    counts = Counts(WINDOW, lambda: 1.9e9 + 7200)
    _deletes(counts, 0, 30, 1.9e9, 1.9e9)
    at = counts.time_of(0, 1.9e9 + 7200, 1.9e9 + 7200)
    assert counts.figures("a", "deletes", at, "", {0}).counted == 1


@given(st.integers(0, 500), st.integers(1, 500), st.integers(1, 300), st.sampled_from([0.1, 0.5, 1.0]), st.integers(1, 8))
def test_it_never_trips_below_the_share_nor_below_the_minimum(
    counted: int, documents: int, minimum: int, share: float, owned: int
) -> None:
    figures = Figures(counted=counted, documents=documents, window_seconds=WINDOW, partitions=owned)
    if trips(Limits(share=share, minimum=minimum), "deletes", figures, 8):
        assert counted >= share * documents
        assert counted >= minimum * owned / 8
        assert counted >= min(SMALLEST, minimum)
    elif owned == 8:
        assert counted < share * documents or counted < max(minimum, min(SMALLEST, minimum))


async def _history(steps: list[tuple[int, int]]) -> None:
    pipeline = Pipeline(breaker=Limits(share=0.5, minimum=4))
    for number in range(6):
        pipeline.send(f"d{number}", 1, sections(f"d{number}"))
    await pipeline.drain()
    for revision, (action, number) in enumerate(steps, 2):
        if action < 4:
            pipeline.send(f"d{number}", revision, None)
        elif action < 7:
            pipeline.send(f"d{number}", revision, sections(f"d{number} {revision}"))
        elif action == 7:
            pipeline.rewind(3)
            pipeline.restart()
        elif desk_over(pipeline).controls().open_breaker("A"):
            desk = desk_over(pipeline)
            desk.rule(desk.plan("A", "approve" if action == 8 else "reject", ""), 0)
        await pipeline.drain()
        recount = Counts(pipeline.holding.counts.window_seconds)
        recount.load(0, pipeline.seen.values.items())
        for epoch in {pipeline.holding.epoch("A"), ""}:
            at = SteppingClock().moment.timestamp() + 60
            assert pipeline.holding.counts.figures("A", "deletes", at, epoch, {0}) == recount.figures(
                "A", "deletes", at, epoch, {0}
            )
        assert pipeline.holding.counts.held({0}) == recount.held({0})
        assert recount.held({0})["breaker"] == len(desk_over(pipeline).held())
        live = [number for number in range(6) if await pipeline.ids(f"d{number}")]
        rows_ = [Seen.from_bytes(value) for value in pipeline.seen.values.values()]
        assert len(live) == sum(row.live for row in rows_)


@given(st.lists(st.tuples(st.integers(0, 9), st.integers(0, 5)), max_size=25))
def test_in_any_history_counts_held_and_served_agree(steps: list[tuple[int, int]]) -> None:

    asyncio.run(_history(steps))
