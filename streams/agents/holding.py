"""Holding: what of [documents] is kept back, because a tenant is paused or its breaker is open, and how it goes on later.

Order of effects, within the parser's ① (see parse_document.py), and what a crash in between leaves:
  an event is kept back
    ① trip, where it is the one too many: the breaker's record is in [controls]
         crash here: the record comes again, the breaker is open, and it is held
    ② the event, whole, in [held]
    ③ receipt "held", and "stale" for an older event of the document that was held until now
         crash here, or before: ② and ③ are repeated with the same content, or the event passes by what was decided meanwhile; the
         release of what ② left finds the same event again and clears it
    ④ the mark in the document's row of `seen`; nothing else of the row changes, so that the last good revision counts on
  a document's event passes, or is dropped by a decision
    ⓪ where it is counted: the row says that it passes, and when. So it counts from here on, and passes again if the breaker trips
      before it is remembered
         crash here: whoever comes next counts it, also before it comes again
    ① what the parser does with it
    ② tombstone in [held], where the event that was held is this one, or is older
         crash here: both are repeated
    ③ the row without the mark
  What is newer and can't be parsed takes nobody's place: what is held stays so, and is asked as it was (`outlived`).

The owner of a partition is the only one who writes its part of [held]. Commands send held events again through [documents], so that
order by document holds and nothing can be lost between two writers.
"""

from __future__ import annotations

import base64
from collections.abc import Callable, Collection
from dataclasses import dataclass, replace
from typing import Protocol

from schemas.codec import encode
from schemas.control import Control, Counted, Figures
from schemas.document_change import DocumentChange
from schemas.held_change import HeldChange, HeldReason
from schemas.record import document_key
from streams.agents.refusals import About, Outbox
from streams.controls.counts import Counts
from streams.controls.release import Standing
from streams.controls.state import Controls
from streams.crash_points import reached
from streams.ports import InRecord
from streams.steps import breaker
from streams.steps.limits import Limits
from streams.steps.settle_change import UNSEEN, AlreadySettled, Effect, HeldMark, Seen, ToEnd, ToParse, effect_of, settle_change

EPOCH_LETTERS = 8
Settled = ToParse | ToEnd | AlreadySettled


class View(Protocol):
    """What a worker knows of [controls]: all of it, up to a moment ago."""

    @property
    def now(self) -> Controls:
        """Return what is in force."""
        ...

    async def know(self, release: str) -> None:
        """Return when all is known that was said before this release was first seen here. Raises Stopping."""
        ...

    async def know_topics(self) -> None:
        """Return when `now` knows which topics [documents] and [bulk] are now, as far as the broker tells. Raises Stopping."""
        ...


@dataclass(frozen=True, slots=True)
class Pass:
    """Let it pass. `counting`: it is one of these, and its row has to say so first. `covered`: it is not to be counted at all."""

    counting: Counted | None = None
    covered: bool = False


@dataclass(frozen=True, slots=True)
class Keep:
    """Keep it back."""

    reason: HeldReason
    why: str


@dataclass(frozen=True, slots=True)
class Drop:
    """Let it go: a person decided against it."""

    why: str


@dataclass(frozen=True, slots=True)
class Settle:
    """Another event of the document, which is held, has settled it."""

    outcome: AlreadySettled


@dataclass(frozen=True, slots=True)
class Nothing:
    """Its outcome is out, and nothing has changed since."""


Answer = Pass | Keep | Drop | Settle | Nothing


@dataclass(frozen=True, slots=True)
class Event:
    """One event at the door: its record, where it first stood, what it says, and what its document's row would have of it."""

    record: InRecord
    standing: Standing
    change: DocumentChange
    row: Seen | None
    decision: Settled
    at: float
    """When it reached [documents], seconds since 1970."""

    @property
    def mark(self) -> HeldMark | None:
        """The document's event that is held."""
        return self.row.held if self.row is not None else None

    @property
    def is_the_held_one(self) -> bool:
        """Whether it is the one that is held, sent again by a release."""
        return self.mark is not None and self.mark.offset == self.standing.offset

    @property
    def outlived(self) -> bool:
        """Whether it was held while a newer one came that could not be parsed: it is still the last that can go."""
        return self.row is not None and self.is_the_held_one and self.row.failed and self.row.revision > self.change.revision

    @property
    def took_its_place(self) -> bool:
        """Whether a release sends it, and the mark is of an event before it: a worker died between ② and ④ of keeping it."""
        return bool(self.standing.release) and self.mark is not None and self.mark.offset < self.standing.offset

    @property
    def is_passing(self) -> bool:
        """Whether there was room for it once: it may be out already, and its row counts."""
        return self.row is not None and self.row.passing == self.standing.offset and self.effect is not None

    @property
    def effect(self) -> Effect | None:
        """What it takes away."""
        return effect_of(self.decision, self.row)


@dataclass(frozen=True, slots=True)
class Holding:
    """The parser's door: who may pass, and what is remembered of those who may not."""

    outbox: Outbox
    controls: View
    counts: Counts
    limits: Limits
    owned: Callable[[], Collection[int]]
    """Partitions whose counts are this worker's own."""
    partitions: int
    """Of [documents], all of them."""
    by: str
    """Who this worker is."""

    async def look(self, event: Event) -> Answer:
        """Return what is to be done with an event. Trips the breaker where it is one too many."""
        mark, standing = event.mark, event.standing
        if event.is_passing:
            return Pass()
        if standing.release:
            if mark is not None and standing.offset < mark.offset:
                return Nothing()  # a newer one is held since, and this one was settled as stale then
            await self.controls.know(standing.release)
        elif mark is not None and event.record.offset <= mark.offset and not isinstance(event.decision, AlreadySettled):
            return Nothing()  # delivered again
        answer = await self._ask(event)
        if isinstance(answer, Keep) and mark is not None:
            if event.is_the_held_one:
                return Nothing() if mark.reason == answer.reason else answer
            if event.change.revision <= mark.revision:
                settled = settle_change(event.change, mark.as_seen)
                return Settle(settled) if isinstance(settled, AlreadySettled) else answer
        return answer

    async def _ask(self, event: Event) -> Answer:
        tenant, now = event.change.tenant_id, self.controls.now
        if isinstance(event.decision, AlreadySettled):
            return Pass()
        pause = now.pause_of_tenant(tenant)
        if pause is not None:
            said = f" ({pause.reason})" if pause.reason else ""
            return Keep("paused", f"the tenant is paused by {pause.by}{said}; docdelta resume --tenant {tenant}")
        if event.change.reindex and self._is_decided_against(event):
            return Drop("a person decided against it before (docdelta breaker reject); the document stays as it is")
        answer = breaker.look(self.limits, now, tenant, event.standing.place, event.effect, event.standing.waited)
        if isinstance(answer, breaker.Dropped) or (isinstance(answer, breaker.Passes) and answer.covered):
            # Covered by offsets; these say nothing of a topic that was deleted and made again since it was decided.
            await self.controls.know_topics()
            answer = breaker.look(self.limits, now, tenant, event.standing.place, event.effect, event.standing.waited)
        if isinstance(answer, breaker.Passes):
            return Pass(covered=answer.covered)
        if isinstance(answer, breaker.Dropped):
            return Drop(f"{answer.by} decided against it (docdelta breaker reject); the document stays as it is")
        if isinstance(answer, breaker.Counts):
            figures = self.counts.figures(tenant, answer.what, event.at, self.epoch(tenant), self.owned())
            if not breaker.trips(self.limits, answer.what, figures, self.partitions):
                return Pass(counting=answer.what)
            await self._trip(tenant, event.standing.partition, answer.what, figures)
        opened = now.open_breaker(tenant)
        words = opened.first.reason if opened is not None else "its breaker is open"
        return Keep("breaker", f"{words}; decide with docdelta breaker approve {tenant}, or reject {tenant}")

    def _is_decided_against(self, event: Event) -> bool:
        """Return whether an event would take away what a person has kept: the same was rejected, or is held and will be dropped.

        Asked of events that are sent again by us (`reindex`, `audit --repair`): they say what the log says, and nobody's will anew.
        """
        row, mark, revision = event.row, event.mark, event.change.revision
        if row is None or event.effect is None:
            return False
        if mark is None or revision > mark.revision:
            return revision <= row.dropped
        decision = self.controls.now.decision_on(event.change.tenant_id, event.standing.partition, mark.offset, event.effect)
        return revision <= row.dropped or (decision is not None and decision.verdict == "reject")

    def epoch(self, tenant: str) -> str:
        """Return what a row of this tenant is to be counted under."""
        decided = self.controls.now.newest_decision(tenant)
        return decided.id[:EPOCH_LETTERS] if decided is not None else ""

    async def _trip(self, tenant: str, partition: int, what: Counted, figures: Figures) -> None:
        decided = self.controls.now.newest_decision(tenant)
        trip = Control(
            kind="tripped",
            at=self.outbox.now(),
            tenant_id=tenant,
            partition=partition,
            what=what,
            figures=figures,
            reason=breaker.in_words(what, figures, self.partitions),
            by=self.by,
            decision=decided.id if decided is not None else "",
        )
        topic, key, value = self.outbox.topics.controls, trip.key, encode(trip)
        await self.outbox.publish(topic, key, value)
        reached("breaker.tripped")
        self.controls.now.apply(InRecord(topic, 0, -1, key, value))

    async def keep(self, event: Event, keep: Keep, about: About) -> Seen:
        """Do ② and ③ of keeping an event back, and return the row for ④."""
        change, record = event.change, event.record
        held = HeldChange(
            tenant_id=change.tenant_id,
            document_id=change.document_id,
            revision=change.revision,
            op=change.op,
            event_id=change.event_id,
            title=change.title,
            reason=keep.reason,
            why=keep.why,
            since=about.received_at or self.outbox.now(),
            partition=event.standing.partition,
            offset=event.standing.offset,
            value=None if record.value is None else base64.b64encode(record.value).decode("ascii"),
            headers={name: text for name, value in record.headers.items() if (text := _text(value)) is not None},
        )
        key = document_key(change.tenant_id, change.document_id)
        await self.outbox.publish(self.outbox.topics.held, key, encode(held))
        reached("parser.held")
        await self.outbox.settle(self.outbox.receipt(about, "held", keep.why))
        if event.mark is not None and not event.is_the_held_one:
            await self._settle_overtaken(event.change, event.mark)
        reached("parser.told")
        assert not isinstance(event.decision, AlreadySettled)
        said = event.decision.seen
        mark = HeldMark(keep.reason, said.revision, said.fingerprint, said.deleted, said.event_id, event.standing.offset)
        return replace(event.row or Seen(UNSEEN, ""), held=mark)

    async def let_go(self, event: Event, row: Seen | None) -> Seen | None:
        """Do ② after an event has passed or was dropped, and return the row for ③. `row`: what the parser would remember of it."""
        mark = event.mark
        newer = row is not None and mark is not None and row.revision > mark.revision and not row.failed
        overtaken = mark is not None and not event.is_the_held_one and (newer or event.took_its_place)
        if overtaken and mark is not None:
            await self._settle_overtaken(event.change, mark)
        if not (event.standing.release or overtaken):
            return row if row is None or mark is None else replace(row, held=mark)
        key = document_key(event.change.tenant_id, event.change.document_id)
        await self.outbox.publish(self.outbox.topics.held, key, None)
        reached("parser.released")
        if mark is None:
            return row
        return replace(row or event.row or Seen(UNSEEN, ""), held=None)

    async def _settle_overtaken(self, change: DocumentChange, mark: HeldMark) -> None:
        about = About(change.tenant_id, change.document_id, mark.revision, mark.event_id)
        await self.outbox.settle(self.outbox.receipt(about, "stale", f"revision {change.revision} came while it was held"))


def _text(value: bytes) -> str | None:
    try:
        return value.decode("utf-8")
    except UnicodeDecodeError:
        return None
