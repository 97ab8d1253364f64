"""Controls: [controls] read in order: what is paused, whose breaker is open, and what was decided of whom.

A pure fold. The order of records of different keys does not matter, and neither does compaction: the last record of each key is all
there is to know.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from datetime import datetime

from schemas.batch import BUILD_STATES, BatchRecord
from schemas.codec import decode
from schemas.control import Control, Counted, Decision
from streams.ports import InRecord
from streams.steps.settle_change import Effect

KEPT_DECISIONS = 64
"""Decisions of a tenant that are remembered, those that followed one of the same kind not counted: what an older one covered, they
cover too. What only one covered that is forgotten is judged by the next."""


@dataclass(frozen=True, slots=True)
class Open:
    """A tenant's breaker that is open, with the tripping that stands for all of them."""

    tenant: str
    since: datetime
    """When the first partition tripped."""
    trips: tuple[Control, ...]
    """By partition."""

    @property
    def first(self) -> Control:
        """The tripping that came first."""
        return min(self.trips, key=lambda trip: (trip.at, trip.partition or 0))

    @property
    def holds_changes(self) -> bool:
        """Whether changes of documents that are there are held as well as deletes."""
        return any(trip.what == "changes" for trip in self.trips)


@dataclass(slots=True)
class Controls:
    """What is in force. Changed by `apply` alone."""

    pauses: dict[bytes, Control] = field(default_factory=dict)
    """By Kafka key."""
    decided: dict[str, tuple[Decision, ...]] = field(default_factory=dict)
    """Tenant to what was decided, newest last."""
    refusals: dict[bytes, Control] = field(default_factory=dict)
    """Builds that a worker can't host, by Kafka key; see `refusals_of`."""
    topic_id: str = ""
    """Id of the topic [documents] as it is now; empty: not known. Set by whoever asks the broker, not by `apply`."""
    bulk_topic_id: str = ""
    """The same of [bulk]."""
    _tripped: dict[str, dict[int, Control]] = field(default_factory=dict)

    def apply(self, record: InRecord) -> None:
        """Take the next record. Raises UndecodableRecord, with nothing changed."""
        key = record.key or b""
        if record.value is None:
            self._take_back(key)
            return
        control = decode(record.value, Control)
        if control.kind == "pause":
            self.pauses[control.key] = control
        elif control.kind == "refused":
            self.refusals[control.key] = control
        elif control.kind == "decided" and control.tenant_id is not None:
            self.decided[control.tenant_id] = control.decisions
        elif control.tenant_id is not None and control.partition is not None:
            trips = self._tripped.setdefault(control.tenant_id, {})
            before, newest = trips.get(control.partition), self.newest_decision(control.tenant_id)
            known = newest.id if newest is not None else ""

            def rank(trip: Control) -> tuple[bool, datetime]:
                return trip.decision == known, trip.at  # what knows the newest decision goes first, whatever a clock says

            if before is None or rank(before) <= rank(control):  # its writer applies it before it comes back from the broker
                trips[control.partition] = control

    def _take_back(self, key: bytes) -> None:
        self.pauses.pop(key, None)
        self.refusals.pop(key, None)
        kind, _, rest = key.decode("utf-8", "replace").partition("/")
        if kind == "breaker":
            tenant, _, partition = rest.partition("/")
            if partition.isdecimal():
                self._tripped.get(tenant, {}).pop(int(partition), None)
            else:
                self.decided.pop(tenant, None)

    def pause_of_tenant(self, tenant: str) -> Control | None:
        """Return the pause of a tenant, or None."""
        return self.pauses.get(f"pause/tenant/{tenant}".encode()) if self.pauses else None

    def pause_of_stage(self, stage: str) -> Control | None:
        """Return the pause of ``parser`` or of ``batch:<id>``, or None."""
        return self.pauses.get(f"pause/stage/{stage}".encode()) if self.pauses else None

    def refusals_of(self, batch: BatchRecord) -> tuple[Control, ...]:
        """Return who can't host a batch as it stands now, oldest first: nothing for one that is no build (any more)."""
        if batch.state not in BUILD_STATES:
            return ()
        mine = (each for each in self.refusals.values() if each.stage == f"batch:{batch.batch}" and each.claim == batch.claim)
        return tuple(sorted(mine, key=lambda each: (each.at, each.by)))

    def open_breaker(self, tenant: str) -> Open | None:
        """Return the tenant's breaker where it is open: where it tripped knowing all that was decided."""
        trips = self._tripped.get(tenant)
        if not trips:
            return None
        newest = self.newest_decision(tenant)
        counting = [trips[number] for number in sorted(trips) if trips[number].decision == (newest.id if newest else "")]
        return Open(tenant, min(trip.at for trip in counting), tuple(counting)) if counting else None

    def open_breakers(self) -> list[Open]:
        """Return all that are open, by tenant."""
        found = [self.open_breaker(tenant) for tenant in sorted(self._tripped)]
        return [each for each in found if each is not None]

    def newest_decision(self, tenant: str) -> Decision | None:
        """Return what was decided last of a tenant, or None."""
        decided = self.decided.get(tenant)
        return decided[-1] if decided else None

    def decision_on(
        self, tenant: str, partition: int, offset: int, effect: Effect, waited: tuple[int, int] | None = None
    ) -> Decision | None:
        """Return what was decided of an event that first stood at this offset of [documents]; None: nothing that covers it.

        waited: the partition and offset of [bulk] where it stood before. One on deletes says nothing of a change: a later one on
        changes may.
        """
        for decision in self.decided.get(tenant, ()):
            there = _may_be_one(decision.topic_id, self.topic_id) and offset < decision.ends.get(partition, 0)
            if waited is not None and _may_be_one(decision.bulk_topic_id, self.bulk_topic_id):
                there |= waited[1] < decision.bulk_ends.get(waited[0], 0)
            if there and concerns(decision.what, effect):
                return decision
        return None

    def with_decision(self, tenant: str, decision: Decision, by: str) -> Control:
        """Return the record that adds a decision to a tenant's."""
        before = self.decided.get(tenant, ())
        if before and (before[-1].verdict, before[-1].what) == (decision.verdict, decision.what):
            before = before[:-1]  # the newer one covers all that it did
        kept = (*before, decision)[-KEPT_DECISIONS:]
        return Control(kind="decided", at=decision.at, tenant_id=tenant, by=by, decisions=kept)


def _may_be_one(one: str, other: str) -> bool:
    """Return whether two ids may be of one topic: offsets say nothing of a topic that was deleted and made again."""
    return not one or not other or one == other


def concerns(what: Counted, effect: Effect) -> bool:
    """Return whether what is counted and held under this name includes such an effect."""
    return effect == "removal" or what == "changes"


def fold(records: Iterable[InRecord]) -> Controls:
    """Return the controls that the records, in offset order, amount to."""
    controls = Controls()
    for record in records:
        controls.apply(record)
    return controls


def pause_names(controls: Controls) -> tuple[str, ...]:
    """Return what is paused as the commands take it: ``--tenant acme``, ``--stage parser``."""
    parts = (key.decode("utf-8", "replace").split("/", 2) for key in controls.pauses)
    return tuple(f"--{kind} {name}" for _, kind, name in parts)
