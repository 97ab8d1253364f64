"""retire: a batch that nobody is served from leaves nothing behind. A plan over ledger and alias, and its execution.

Order of effects, and what a kill between two of them leaves (running the command again ends it):
  ① claim: batch `retired`      workers stop its app and remove its local state; a worker that starts later does so too
  ② wait until no worker is a member of its group: none may still write
  ③ drop the collection         refused by the index while an alias points at it
  ④ delete the consumer group
  ⑤ delete its topics: changes and changelog
  ⑥ end the pause of its stage, if there is one: it would be shown, and alerted, for ever
The record stays: the name is never used again.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime, timedelta

from schemas.batch import BatchRecord
from streams.batches.ledger import Clerk, Ledger, when, with_state
from streams.crash_points import reached
from streams.errors import NotPrepared
from streams.ports import VectorIndex
from streams.words import counted


@dataclass(frozen=True, slots=True)
class RetirePlan:
    """What goes. `claim` None: an earlier run was stopped on its way, the rest is cleared."""

    batch: BatchRecord
    claim: BatchRecord | None
    topics: tuple[str, ...]
    group: str
    points: int | None
    """Points that go with the collection; None: it is gone already."""
    lost: str

    def __str__(self) -> str:
        points = "gone already" if self.points is None else f"{counted(self.points, 'point')}"
        return (
            f"batch {self.batch.batch} ({self.batch.state}) goes: collection {self.batch.collection} ({points}), "
            f"group {self.group}, topics {', '.join(self.topics)}, local state on every worker; {self.lost}"
        )


def plan_retire(
    ledger: Ledger,
    batch: str,
    aliases: dict[str, str],
    points: int | None,
    now: datetime,
    grace_seconds: float,
    names: tuple[str, tuple[str, ...]],
    force: bool = False,
) -> RetirePlan:
    """Return what retiring a batch removes. aliases: alias to collection. names: (group, topics) of the batch.

    NotPrepared: no such batch; it is served, by the ledger or by an alias (`force` does not help); its grace period runs
    (`force` does).
    """
    found = ledger.batches.get(batch)
    if found is None:
        raise NotPrepared(f"batch {batch} does not exist; there are: {ledger.alive()}")
    holding = sorted(alias for alias, collection in aliases.items() if collection == found.collection)
    if found.state == "active" or holding:
        how = f"alias {', '.join(holding)} points at its collection" if holding else "it is the active one"
        raise NotPrepared(f"batch {batch} is being served: {how}; switch to another batch first")
    lost = _lost(found, ledger)
    if found.state == "warm" and found.warm_since is not None and not force:
        over = found.warm_since + timedelta(seconds=grace_seconds)
        if now < over:
            raise NotPrepared(f"batch {batch} is kept warm until {when(over)}; with --force it goes now, and {lost}")
    claim = None if found.state == "retired" else with_state(found, state="retired", build_rate=None)
    return RetirePlan(found, claim, names[1], names[0], points, lost)


def _lost(batch: BatchRecord, ledger: Ledger) -> str:
    served = ledger.served(batch.alias)
    if batch.state == "warm" and served is not None and served.replaces == batch.batch:
        return f"the way back from {served.batch} is lost: going back means building it again"
    if batch.state in ("proposed", "building", "ready"):
        return f"what was built since {when(batch.launch.at if batch.launch else batch.created_at)} is lost"
    return "nothing that is served is lost"


@dataclass(frozen=True, slots=True)
class Remover:
    """What execution needs of the broker. Each may be called again and then changes nothing more."""

    wait_until_left: Callable[[str], None]
    """Returns when a group has no members; raises NotPrepared when they stay."""
    delete_group: Callable[[str], None]
    delete_topics: Callable[[tuple[str, ...]], None]
    end_pause: Callable[[str], None]
    """Ends the pause of a batch's stage."""


async def execute_retire(plan: RetirePlan, ledger: Ledger, clerk: Clerk, index: VectorIndex, remover: Remover) -> None:
    """Remove what the plan says. Raises Outrun before anything is removed; safe to run twice."""
    if plan.claim is not None:
        await asyncio.to_thread(clerk.claim, ledger, plan.claim)
        reached("retire.claimed")
    await asyncio.to_thread(remover.wait_until_left, plan.group)
    reached("retire.left")
    await index.drop_collection(plan.batch.collection)
    reached("retire.dropped")
    await asyncio.to_thread(remover.delete_group, plan.group)
    reached("retire.group")
    await asyncio.to_thread(remover.delete_topics, plan.topics)
    await asyncio.to_thread(remover.end_pause, plan.batch.batch)
