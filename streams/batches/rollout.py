"""rollout: a policy becomes a batch that is built beside the served one. A plan over the ledger, and its execution in steps.

Order of effects, and what a kill between two of them leaves (running the command again goes on from there, on any machine):
  ① claim: batch `proposed`; its names are taken           topics are missing; nobody hosts it
  ② topics of the batch                                    empty topics; nobody hosts it
  ③ claim: batch `building`, with what stood at launch     workers build it; nobody watches
  ④ follow, gate, claim `ready`                            a finished build, not served
  ⑤ switch (switch.py)
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime

from chunking.policy import ChunkPolicy
from schemas.batch import BatchRecord, LaunchRecord
from streams.batches.ledger import Clerk, Ledger, when, with_state
from streams.batches.record import base_name, batch_record, generation_of, refuse_other_content
from streams.crash_points import reached
from streams.errors import NotPrepared

BUILDING = ("proposed", "building", "ready")


@dataclass(frozen=True, slots=True)
class RolloutPlan:
    """What `docdelta rollout` does. `record`: the batch as it stands or would be proposed; `served`: the batch it replaces."""

    record: BatchRecord
    served: BatchRecord
    new: bool
    """True when the batch must be proposed; False when an earlier run began it, or it is kept warm, or served already."""

    @property
    def done(self) -> bool:
        """True when the policy is served already."""
        return self.record.batch == self.served.batch

    def __str__(self) -> str:
        record = self.record
        if self.done:
            return f"batch {record.batch} is served already, since {when(record.updated_at)}"
        if self.new:
            again = f"; {base_name(record)} was used before, names are never reused" if record.batch != base_name(record) else ""
            return f"batch {record.batch} will be built beside {self.served.batch}{again}"
        if record.state == "warm":
            since = when(record.warm_since or record.updated_at)
            return f"batch {record.batch} is kept warm since {since}; it must pass the gate again"
        return f"batch {record.batch} is {record.state} since {when(record.updated_at)}, by {record.by or 'nobody named'}; going on"


def plan_rollout(
    policy: ChunkPolicy,
    policy_yaml: str,
    ledger: Ledger,
    alias: str,
    now: datetime,
    build_rate: float | None = None,
) -> RolloutPlan:
    """Return what a rollout of `policy` means now.

    NotPrepared: nothing is served under the alias yet; the policy's name and version stand for other content (with the difference);
    another build is under way (with who and since when).
    """
    served = ledger.served(alias)
    if served is None:
        raise NotPrepared(f"no batch is served under alias {alias} yet: run docdelta init --policy FILE first")
    mine = [batch for batch in ledger.in_order() if batch.alias == alias and batch.policy_fingerprint == policy.fingerprint]
    wanted = batch_record(policy, policy_yaml, "proposed", alias, now)
    refuse_other_content(wanted, ledger.in_order())
    alive = next((batch for batch in reversed(mine) if batch.state != "retired"), None)
    if alive is not None:
        return RolloutPlan(alive, served, new=False)
    for other in ledger.in_order():
        if other.alias == alias and other.state in BUILDING:
            raise NotPrepared(
                f"batch {other.batch} is {other.state} since {when(other.updated_at)}, by {other.by or 'nobody named'}: "
                f"switch to it, or give it up with docdelta retire {other.batch}; one build at a time"
            )
    record = batch_record(policy, policy_yaml, "proposed", alias, now, generation=generation_of(wanted, ledger.in_order()))
    return RolloutPlan(with_state(record, replaces=served.batch, parsers=served.parsers, build_rate=build_rate), served, new=True)


@dataclass(frozen=True, slots=True)
class Launcher:
    """What execution needs of the world. Both may be called again and then change nothing more."""

    create_topics: Callable[[BatchRecord], None]
    launch: Callable[[BatchRecord], LaunchRecord]
    """Notes what stands now, given the served batch."""


def execute_rollout(plan: RolloutPlan, clerk: Clerk, launcher: Launcher, ledger: Ledger) -> Ledger:
    """Bring the batch to `building`, from wherever an earlier run left it. Returns the ledger. Raises Outrun."""
    name = plan.record.batch
    if plan.new:
        ledger = clerk.claim(ledger, plan.record)
        reached("rollout.proposed")
    if ledger.batches[name].state == "proposed":
        launcher.create_topics(ledger.batches[name])
        reached("rollout.topics")
        launch = launcher.launch(plan.served)
        ledger = clerk.claim(ledger, with_state(ledger.batches[name], state="building", launch=launch))
        reached("rollout.building")
    return ledger
