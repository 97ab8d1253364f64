"""Counts: of each partition and tenant, the documents that are there, and those that went or changed lately. Kept as events pass.

A function of the rows of table `seen`: `load` counts them anew, `change` follows one row, and both come to the same. So a record
that comes again changes nothing, and a restart forgets nothing. Time is the events' own (`Seen.at`), in slices of 1/SLICES of the
window; within a partition it does not go back (`time_of`), or a sender whose clock is behind would count nowhere. Where this
machine's own clock was ahead and is set back, time goes on from what it says now; what was counted ahead counts until it is past.
"""

from __future__ import annotations

import math
import time
from collections import Counter, defaultdict
from collections.abc import Callable, Collection, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field

from schemas.control import Counted, Figures
from schemas.held_change import HeldReason
from streams.steps.settle_change import Seen

SLICES = 60


@dataclass(slots=True)
class Slices:
    """A count by slice of time. Slices far behind the newest are let go, once and for all."""

    counts: dict[int, int] = field(default_factory=dict)
    _floor: int = 0

    def add(self, number: int, sign: int, current: int) -> None:
        """Count one more or one less in a slice. `current`: the one that this machine's clock is in."""
        if number < self._floor:
            return
        self.counts[number] = self.counts.get(number, 0) + sign
        if not self.counts[number]:
            del self.counts[number]
        elif len(self.counts) > 3 * SLICES:
            # Not by the newest slice alone: one of a clock that was ahead would let go of all that is now.
            self._floor = max(self._floor, min(max(self.counts), current) - 2 * SLICES)
            self.counts = {each: count for each, count in self.counts.items() if each >= self._floor}

    def since(self, first: int) -> int:
        """Return the count of a slice and all later ones."""
        return sum(count for number, count in self.counts.items() if number >= first)


@dataclass(slots=True)
class TenantCounts:
    """One tenant in one partition."""

    live: int = 0
    removed: dict[str, Slices] = field(default_factory=lambda: defaultdict(Slices))
    """Documents that are gone, by when they went; by epoch (`Seen.epoch`)."""
    changed: dict[str, Slices] = field(default_factory=lambda: defaultdict(Slices))
    """Documents that are there and were edited, by when they were last."""
    held: dict[HeldReason, int] = field(default_factory=dict)


@dataclass(slots=True)
class Counts:
    """All partitions that one worker owns, or owned."""

    window_seconds: float
    clock: Callable[[], float] = time.time
    """Seconds since 1970. Only to tell what lies ahead; the window is of the events' own time."""
    _partitions: dict[int, dict[str, TenantCounts]] = field(default_factory=dict)
    _in_hand: Counter[tuple[str, Counted]] = field(default_factory=Counter)
    """Events that were let pass and are not in their rows yet."""
    _newest: dict[int, float] = field(default_factory=dict)
    """Of each partition, the time of its newest event."""

    def begin(self, partition: int) -> None:
        """Start to count a partition from nothing."""
        self._partitions[partition] = defaultdict(TenantCounts)
        self._newest[partition] = 0.0

    def time_of(self, partition: int, told: float, now: float = math.inf) -> float:
        """Return when the next event of a partition counts: no earlier than those before it, whatever clock its sender has.

        now: what this machine's clock says. Events that are later than that were counted by a clock that was wrong.
        """
        newest = self._newest[partition] = max(told, min(self._newest.get(partition, 0.0), now))
        return newest

    def load(self, partition: int, rows: Iterable[tuple[bytes, bytes]]) -> None:
        """Add rows of a partition that was begun."""
        for key, value in rows:
            seen = Seen.from_bytes(value)
            self.time_of(partition, seen.at)
            self._count(partition, tenant_of(key), seen, 1)

    def change(self, partition: int, key: bytes, before: Seen | None, after: Seen) -> None:
        """Follow one row that was replaced."""
        tenant = tenant_of(key)
        if before is not None:
            self._count(partition, tenant, before, -1)
        self._count(partition, tenant, after, 1)

    def slice_of(self, at: float) -> int:
        """Return the slice in which a moment lies."""
        return int(at * SLICES // self.window_seconds)

    @contextmanager
    def in_hand(self, tenant: str, what: Counted) -> Iterator[None]:
        """Count an event that was let pass until its row says so."""
        self._in_hand[tenant, what] += 1
        try:
            yield
        finally:
            self._in_hand[tenant, what] -= 1
            if not self._in_hand[tenant, what]:
                del self._in_hand[tenant, what]

    def figures(self, tenant: str, what: Counted, at: float, epoch: str, owned: Collection[int]) -> Figures:
        """Return what there would be with one more event at `at`. What passed under another epoch is not counted.

        Counted over the window that ends at `at`; what is later than `at` is in it. Of the partitions `owned`, which must have been
        loaded: others may have changed elsewhere.
        """
        first = self.slice_of(at) - SLICES + 1
        live = counted = 0
        for partition in owned:
            counts = self._partitions.get(partition, {}).get(tenant)
            if counts is not None:
                live += counts.live
                slices = (counts.removed if what == "deletes" else counts.changed).get(epoch)
                counted += slices.since(first) if slices is not None else 0
        in_hand = self._in_hand[tenant, what]
        there = live + counted if what == "deletes" else live
        return Figures(
            counted=counted + in_hand + 1, documents=there, window_seconds=self.window_seconds, partitions=max(1, len(owned))
        )

    def held(self, owned: Collection[int]) -> dict[HeldReason, int]:
        """Return how many documents of these partitions have an event that is held, by reason."""
        found: dict[HeldReason, int] = {"breaker": 0, "paused": 0}
        for partition in owned:
            for counts in self._partitions.get(partition, {}).values():
                for reason, count in counts.held.items():
                    found[reason] += count
        return found

    def _count(self, partition: int, tenant: str, seen: Seen, sign: int) -> None:
        if partition not in self._partitions:
            self.begin(partition)
        counts, current = self._partitions[partition][tenant], self.slice_of(self.clock())
        if seen.live and not seen.ending:
            counts.live += sign
        if seen.held is not None:
            counts.held[seen.held.reason] = counts.held.get(seen.held.reason, 0) + sign
        if seen.at and (seen.deleted or seen.ending):
            counts.removed[seen.epoch].add(self.slice_of(seen.at), sign, current)
        elif seen.at and seen.changed and seen.live:
            counts.changed[seen.epoch].add(self.slice_of(seen.at), sign, current)


def tenant_of(key: bytes) -> str:
    """Return the tenant of a document's key."""
    return key.partition(b"/")[0].decode("utf-8", "replace")
