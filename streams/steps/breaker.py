"""May an event of a tenant pass? Pure: what it would take away, what was decided, what is open, and how much went already.

In this order:
  takes nothing away (a new document, a re-check, an end of what is not there)   passes
  a decision covers it                                                           passes uncounted, or is dropped
  the tenant's breaker is open                                                   is held
  it is one too many                                                             the breaker trips, and it is held
  otherwise                                                                      passes, and is counted

**What is counted.** A worker sees the partitions it owns, k of N. Documents are spread over partitions by a hash of their key, so
the share within the partitions of one worker is near the tenant's, the nearer the more documents there are; a minimum keeps chance
out: `minimum` scaled by k/N, but never under SMALLEST. A tenant of a few documents a partition, spread over many workers, is
therefore not guarded; on one worker the counts are the tenant's own.

**Documents that were there** are those that are there now and those that went within the window. What went and came back did not.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from schemas.control import Counted, Figures
from streams.controls.state import Controls, concerns
from streams.steps.limits import Limits
from streams.steps.settle_change import Effect
from streams.words import counted

SMALLEST = 10
"""Events in the counted partitions below which no share means anything."""


@dataclass(frozen=True, slots=True)
class Passes:
    """Nothing is in the way. `covered`: by a decision, so it is not counted."""

    covered: bool = False


@dataclass(frozen=True, slots=True)
class Held:
    """An open breaker is in the way."""


@dataclass(frozen=True, slots=True)
class Dropped:
    """A person decided against it: who, when."""

    by: str


@dataclass(frozen=True, slots=True)
class Counts:
    """Nothing is in the way yet, if there is room (`trips`)."""

    what: Counted


Answer = Passes | Held | Dropped | Counts


def look(
    limits: Limits,
    controls: Controls,
    tenant: str,
    place: tuple[int, int],
    effect: Effect | None,
    waited: tuple[int, int] | None = None,
) -> Answer:
    """Return whether an event may pass. `place`: partition and offset of [documents] where it first stood; `waited`: of [bulk]."""
    if effect is None or not limits.enabled:
        return Passes()
    decision = controls.decision_on(tenant, *place, effect, waited)
    if decision is not None:
        return Passes(covered=True) if decision.verdict == "approve" else Dropped(decision.by)
    breaker = controls.open_breaker(tenant)
    if breaker is not None and concerns("changes" if breaker.holds_changes else "deletes", effect):
        return Held()
    if effect == "change" and not limits.churn_share:
        return Passes()
    return Counts("deletes" if effect == "removal" else "changes")


def trips(limits: Limits, what: Counted, figures: Figures, all_partitions: int) -> bool:
    """Return whether these figures, the event in question included, are too much."""
    share = limits.share if what == "deletes" else limits.churn_share
    least = max(min(SMALLEST, limits.minimum), math.ceil(limits.minimum * figures.partitions / all_partitions))
    return figures.counted >= least and figures.counted >= share * figures.documents


def in_words(what: Counted, figures: Figures, all_partitions: int) -> str:
    """Return the figures as a person reads them."""
    verb = "deleted" if what == "deletes" else "changed"
    where = "" if figures.partitions == all_partitions else f" in {figures.partitions} of {all_partitions} partitions"
    among = f"{figures.counted:,} of {counted(figures.documents, 'document')}{where} ({figures.share:.0%})"
    return f"{among} were {verb} within {figures.window_seconds:,.0f} s"
