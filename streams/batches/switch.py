"""switch and rollback: readers move from one batch to another in one step. A plan over ledger and alias, and its execution.

Order of effects, and what a kill between two of them leaves (running the command again, from anywhere, ends it):
  ① claim: batch `active`, the one before it `warm`     [batches] is ahead of the alias: readers still see the old batch, whole
  ② one create_alias onto the existing alias            as wanted
  ③ read back alias and ledger; back to ② if another operator moved the ledger meanwhile

The ledger decides before the alias moves, so the alias never follows an operator who was outrun.
"""

from __future__ import annotations

import asyncio
from dataclasses import dataclass

from schemas.batch import BatchRecord
from streams.batches.ledger import Clerk, Ledger, when, with_state
from streams.crash_points import reached
from streams.errors import NotPrepared, Unavailable
from streams.ports import VectorIndex

_ROUNDS = 20
"""How often two operators may overtake each other before this one gives up; each round is two reads and a write."""


@dataclass(frozen=True, slots=True)
class SwitchPlan:
    """From which batch to which. `claim` None: the ledger says so already, only the alias is left to be moved (or nothing)."""

    alias: str
    target: BatchRecord
    before: BatchRecord | None
    claim: BatchRecord | None
    alias_target: str | None

    @property
    def done(self) -> bool:
        """True when readers see the target already."""
        return self.claim is None and self.alias_target == self.target.collection

    def __str__(self) -> str:
        if self.done:
            by = f" by {self.target.by}" if self.target.by else ""
            return f"readers of {self.alias} see {self.target.batch} already, since {when(self.target.updated_at)}{by}"
        if self.claim is None:
            return f"batch {self.target.batch} is active, alias {self.alias} still points at {self.alias_target}: it will be moved"
        kept = f"; {self.before.batch} is kept warm" if self.before is not None else ""
        return f"alias {self.alias} moves to {self.target.collection}{kept}"


def plan_switch(ledger: Ledger, batch: str, alias_target: str | None) -> SwitchPlan:
    """Return how readers come to see `batch`. NotPrepared when there is no such batch, or it holds nothing to be served."""
    target = ledger.batches.get(batch)
    if target is None:
        raise NotPrepared(f"batch {batch} does not exist; there are: {ledger.alive()}")
    if target.state in ("proposed", "retired"):
        raise NotPrepared(f"batch {batch} is {target.state} since {when(target.updated_at)}: nothing of it can be served")
    before = ledger.served(target.alias)
    if target.state == "active":
        return SwitchPlan(target.alias, target, None, None, alias_target)
    replaces = before.batch if before is not None else ""
    claim = with_state(target, state="active", replaces=replaces, warm_since=None, build_rate=None)
    return SwitchPlan(target.alias, target, before, claim, alias_target)


def plan_rollback(ledger: Ledger, alias: str, alias_target: str | None) -> SwitchPlan:
    """Return how readers come back to the batch that was served before. NotPrepared when it is not kept warm any more."""
    served = ledger.served(alias)
    if served is None:
        raise NotPrepared(f"no batch is served under alias {alias}")
    back = ledger.batches.get(served.replaces)
    if back is None or back.state != "warm":
        state = f"{served.replaces} is {back.state}" if back is not None else "none was served before it"
        raise NotPrepared(f"there is no way back from {served.batch}: {state}; roll the earlier policy out again")
    return plan_switch(ledger, back.batch, alias_target)


async def execute_switch(plan: SwitchPlan, ledger: Ledger, clerk: Clerk, index: VectorIndex) -> BatchRecord:
    """Carry the switch out and return the batch that is served then. Raises Outrun; safe to run twice."""
    if plan.claim is not None:
        ledger = await asyncio.to_thread(clerk.claim, ledger, plan.claim)
        reached("switch.claimed")
    for _ in range(_ROUNDS):
        served = ledger.served(plan.alias)
        if served is None:
            raise NotPrepared(f"no batch is served under alias {plan.alias}")
        if await index.alias_target(plan.alias) != served.collection:
            await index.set_alias(plan.alias, served.collection)
            reached("switch.pointed")
        ledger = await asyncio.to_thread(clerk.read)
        now = ledger.served(plan.alias)
        if now is not None and now.batch == served.batch and await index.alias_target(plan.alias) == served.collection:
            return now
    raise Unavailable(f"alias {plan.alias} and [batches] did not come to agree; run docdelta switch again")
