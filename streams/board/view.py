"""What the page is sent: the state as JSON, in sections, each of bounded size. Pure.

Times are seconds since 1970; the page counts ages itself, so that a section changes only when its facts do.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from schemas.batch import LIVE_STATES
from streams.board.figures import Minute, quantile
from streams.board.lag_book import GroupRow, LagBook
from streams.board.state import BatchRow, BoardState, Held, Letter, Slow
from streams.board.troubles import Surroundings, Trouble, troubles
from streams.board.workers import audit_pass
from streams.reading.waiting import Waiting

SHOWN_TROUBLES = 30
SHOWN_WORST = 15
SHOWN_LETTERS = 20
SHOWN_TENANTS = 25
SHOWN_BATCHES = 12
SHOWN_GROUPS = 14
SHOWN_SLOW = 5
NOW_MINUTES = 5
"""What freshness "now" looks back on."""
Section = Any
Points = Mapping[str, int]


def view(state: BoardState, book: LagBook, around: Surroundings, points: Points, now: float) -> dict[str, Section]:
    """Return the page's sections. `points`: of each collection, as far as the index told."""
    return {
        "freshness": _freshness(state, book, around, now),
        "troubles": _troubles(troubles(state, around, now)),
        "lag": [_group(row) for row in book.rows[:SHOWN_GROUPS]],
        "batches": _batches(state, book, around, points),
        "worst": _worst(state, book, now),
        "letters": _letters(state),
        "tenants": _tenants(state, book),
        "totals": {**state.total.as_json(), "settled": state.total.settled},
    }


def _freshness(state: BoardState, book: LagBook, around: Surroundings, now: float) -> Section:
    served = state.served
    row = (state.rows.get(served.batch) if served else None) or BatchRow()
    minutes, all_minutes = row.hour.last(now), state.hour.last(now)
    recent = minutes[-NOW_MINUTES:]
    waits = [group.since for group in book.rows if group.since is not None and group.is_live]
    return {
        "caught_up": around.caught_up,
        "batch": served.batch if served else None,
        "p50": _rounded(quantile(recent, 0.5)),
        "p99": _rounded(quantile(recent, 0.99)),
        "hour_p50": _rounded(quantile(minutes, 0.5)),
        "hour_p99": _rounded(quantile(minutes, 0.99)),
        "longest": _rounded(max((minute.longest for minute in minutes if minute.timed), default=None)),
        "timed": sum(minute.timed for minute in minutes),
        "oldest_since": min(waits, default=None),
        "settled_hour": sum(minute.settled for minute in all_minutes),
        "settled_recent": sum(minute.settled for minute in all_minutes[-NOW_MINUTES:]),
        "lag": sum(group.lag for group in book.rows if group.is_live),
        "bulk": sum(group.lag for group in book.rows if group.lane == "bulk"),
        "lag_at": book.at,
        "first_minute": minutes[0].number,
        "minutes": [_minute(each, whole) for each, whole in zip(minutes, all_minutes, strict=True)],
    }


def _minute(minute: Minute, whole: Minute) -> list[float | None]:
    return [whole.settled, _rounded(minute.quantile(0.5)), _rounded(minute.quantile(0.99))]


def _troubles(found: list[Trouble]) -> Section:
    shown = [
        {"kind": each.kind, "level": each.level, "facts": dict(each.facts), "command": each.command, "since": each.since}
        for each in found[:SHOWN_TROUBLES]
    ]
    return {"shown": shown, "hidden": len(found) - len(shown)}


def _group(row: GroupRow) -> Section:
    return {
        "group": row.group,
        "batch": row.batch,
        "lane": row.lane,
        "lag": row.lag,
        "since": row.since,
        "members": row.members,
        "partitions": [[part.topic, part.partition, part.end, part.lag, part.since] for part in row.partitions],
        "hidden": row.hidden,
    }


def _batches(state: BoardState, book: LagBook, around: Surroundings, points: Points) -> Section:
    records = sorted(state.batches.values(), key=lambda batch: (batch.state in LIVE_STATES, batch.updated_at), reverse=True)
    made = []
    for record in records[:SHOWN_BATCHES]:
        row = state.rows.get(record.batch) or BatchRow()
        progress, gate = book.progress.get(record.batch), around.gates.get(record.batch)
        made.append(
            {
                "batch": record.batch,
                "state": record.state,
                "served": state.served is not None and state.served.batch == record.batch,
                "since": record.updated_at.timestamp(),
                "by": record.by,
                "model": record.embedding.model,
                "points": points.get(record.collection),
                "passed": progress.passed if progress else None,
                "whole": progress.whole if progress else None,
                "tally": row.tally.as_json(),
                "audit": _audit(around, record.batch),
                "gate": None
                if gate is None
                else {
                    "at": gate.at,
                    "problem": gate.problem,
                    "lines": [[line.name, line.passed, line.figure, line.advice, line.waits] for line in gate.lines],
                },
            }
        )
    return {"shown": made, "hidden": len(records) - len(made)}


def _audit(around: Surroundings, batch: str) -> Section:
    found = audit_pass(around.workers, batch)
    return None if found is None else {"since": found.since, "left": round(found.left)}


def _worst(state: BoardState, book: LagBook, now: float) -> Section:
    found = [_held(each) for each in state.newest_held(SHOWN_WORST // 2)]
    found += [_refused(state, each, count) for each, count in state.newest_refused(SHOWN_WORST) if each.document]
    if book.oldest is not None:
        found.insert(0, _waiting(book.oldest))
    return found[: SHOWN_WORST - SHOWN_SLOW] + [_slow(each) for each in state.slow(now, SHOWN_SLOW)]


def _held(held: Held) -> Section:
    words = {"kind": "held", "reason": held.why, "since": held.since, "seconds": None, "action": "why", "letter": None}
    return {"tenant": held.tenant, "document": held.document, "title": held.title, **words}


def _refused(state: BoardState, letter: Letter, count: int) -> Section:
    tenant, document = letter.document or ("", "")
    words = {"kind": "refused", "reason": letter.entry.reason, "since": letter.at, "seconds": None}
    action = {"action": "replay", "letter": letter.id, "letters": count}
    return {"tenant": tenant, "document": document, "title": state.title(letter.document), **words, **action}


def _waiting(waiting: Waiting) -> Section:
    since = waiting.since.timestamp() if waiting.since else None
    words = {"kind": "waiting", "reason": f"{waiting.group}: {waiting.topic}[{waiting.partition}]@{waiting.offset}", "since": since}
    action = {"seconds": None, "action": "why", "letter": None}
    return {"tenant": waiting.tenant_id, "document": waiting.document_id, "title": "", **words, **action}


def _slow(slow: Slow) -> Section:
    words = {"kind": "slow", "reason": slow.batch, "since": slow.minute * 60, "seconds": _rounded(slow.seconds)}
    return {"tenant": slow.tenant, "document": slow.document, "title": slow.title, **words, "action": "why", "letter": None}


def _letters(state: BoardState) -> Section:
    shown = [
        {
            "id": each.id,
            "letters": count,
            "tenant": each.document[0] if each.document else "",
            "document": each.document[1] if each.document else "",
            "title": state.title(each.document),
            "stage": each.entry.stage,
            "batch": each.entry.batch,
            "error": each.entry.error,
            "reason": each.entry.reason,
            "revision": each.entry.revision,
            "source": f"{each.entry.topic}[{each.entry.partition}]@{each.entry.offset}",
            "at": each.at,
        }
        for each, count in state.newest_refused(SHOWN_LETTERS)
    ]
    return {"open": state.open_letters, "written": state.letters_written, "shown": shown}


def _tenants(state: BoardState, book: LagBook) -> Section:
    rows = state.shown_tenants(SHOWN_TENANTS)
    others = state.total
    for _, row, _ in rows:
        others = others.less(row.tally)
    shown = [
        {
            "tenant": name,
            "open": trouble,
            "waits_since": book.tenants.get(name),
            "last": row.last,
            **row.tally.as_json(),
            "settled": row.tally.settled,
        }
        for name, row, trouble in rows
    ]
    hidden = len(state.tenants) - len(shown)
    return {"shown": shown, "others": {**others.as_json(), "settled": others.settled}, "hidden": hidden}


def _rounded(seconds: float | None) -> float | None:
    return None if seconds is None else round(seconds, 3)
