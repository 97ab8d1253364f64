"""Glance: the red states of now as one command can see them, by the page's own rules (troubles.py). Pure.

A page looks for as long as it is open; a command looks once, or twice with a pause between. What it can't see so is told, each
with the way to see it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from schemas.batch import BatchRecord
from streams.batches.hosts import refusals_by_group
from streams.board.lag_book import LagBook
from streams.board.troubles import STAND_SECONDS, Outage, Surroundings, Trouble, troubles
from streams.board.workers import WorkerFacts, audit_pass
from streams.controls.state import pause_names
from streams.lag import BUILDS, Reading
from streams.reading.status import IndexView, Status
from streams.topics import TopicNames


@dataclass(frozen=True, slots=True)
class Look:
    """One look at the workers: who was asked, and what each said."""

    asked: tuple[str, ...]
    """Addresses."""
    facts: tuple[WorkerFacts, ...]
    """Of those that answered, and of those that were named and did not."""


@dataclass(frozen=True, slots=True)
class Glance:
    """What was looked at. `book` has taken each reading of lag; `seconds` lie between the first look and the last."""

    status: Status
    index: IndexView
    book: LagBook
    before: Look
    after: Look
    seconds: float
    grace_seconds: float
    topics: TopicNames

    def troubles(self, now: float) -> list[Trouble]:
        """Return the red and amber states, most urgent first."""
        return troubles(_Records(self.status), self._around(now), now)

    def _around(self, now: float) -> Surroundings:
        status, standing = self.status, self.status.standing
        batches = [each.record for each in status.batches]
        asked = not self.index.problem
        return Surroundings(
            index=Outage(now, self.index.problem) if self.index.away else None,
            lag_at=self.book.at,
            grace_seconds=self.grace_seconds,
            groups=self.book.rows,
            tenants=self.book.tenants,
            alias_target=(self.index.alias_target or "") if asked else None,
            workers=self.after.facts,
            workers_before=self.before.facts,
            breakers={
                each.tenant: (len(each.held), each.open_since.timestamp()) for each in standing.breakers() if each.open_since
            },
            refused=refusals_by_group(batches, standing.controls, self.topics),
            paused=pause_names(standing.controls),
        )

    def audits(self, now: float) -> list[str]:
        """Return how far the continuous audit of each batch is, as far as workers were asked."""
        told = []
        for each in self.status.batches:
            found = audit_pass(self.after.facts, each.record.batch)
            if found is not None:
                left = f"; the round under way takes {found.left:,.0f} s more" if found.left else ""
                told.append(f"audit of {each.record.batch}: in full {max(0.0, now - found.since):,.0f} s ago{left}")
        return told

    def unseen(self) -> list[str]:
        """Return what this look could not see, each with how to see it. Nothing that a sound, idle installation hides."""
        told = []
        answered = sum(1 for each in self.after.facts if not each.problem)
        there = max((row.members or 0 for row in self.book.rows), default=0)
        if not answered:
            where = f" ({', '.join(self.after.asked)} gives no answer)" if self.after.asked else ""
            told.append(
                "inside of workers (whom they wait for, commits, recovery, the model, drift): none was asked"
                f"{where}; docdelta status --worker http://HOST:9464, once for each"
            )
        elif answered < there:
            told.append(
                f"inside of {there - answered} of {there} workers: name each with docdelta status --worker http://HOST:9464"
            )
        behind = any(row.lag for row in self.book.rows)
        wanted = STAND_SECONDS + self.grace_seconds
        if behind and self.seconds <= wanted:
            told.append(f"whether offsets stand still: docdelta status --watch {wanted + 1:.0f}, or docdelta dashboard")
        for each in self.status.batches:
            progress = self.book.progress.get(each.record.batch)
            if each.record.state in BUILDS and progress is not None and progress.passed >= progress.whole:
                told.append(f"whether build {each.record.batch} passes its gate: docdelta gate {each.record.batch}")
        return told


@dataclass(frozen=True, slots=True)
class _Records:
    status: Status

    @property
    def served(self) -> BatchRecord | None:
        records, alias = (each.record for each in self.status.batches), self.status.alias
        return next((record for record in records if record.state == "active" and record.alias == alias), None)

    @property
    def open_letters(self) -> int:
        return self.status.dead_letters

    @property
    def newest_reason(self) -> str:
        return self.status.newest_reason

    @property
    def held_changes(self) -> int:
        return len(self.status.standing.held)


LagAt = tuple[Reading, Mapping[str, int], float]
"""A reading of lag, the members of its groups, and when it was read."""


def book_of(topics: TopicNames, batches: Sequence[BatchRecord], readings: Sequence[LagAt]) -> LagBook:
    """Return what readings of lag come to, oldest first."""
    book = LagBook(topics)
    for reading, members, at in readings:
        book.take(reading, None, members, batches, at)
    return book
