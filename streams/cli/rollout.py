"""`docdelta rollout`: a new policy beside the one that is served, proven, then switched to in one step."""

from __future__ import annotations

import asyncio
import sys
import time
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Annotated

import typer

from schemas.batch import BatchRecord
from streams.batches.gate import Verdict
from streams.batches.ledger import Ledger, outrun_by
from streams.batches.progress import follow_build
from streams.batches.rollout import RolloutPlan, execute_rollout, plan_rollout
from streams.batches.site import Site
from streams.batches.switch import execute_switch, plan_switch
from streams.cli.batch_commands import DryRun, acting_site, confirmed
from streams.cli.exits import FAILED, OK
from streams.cli.output import note, say
from streams.cli.policies import NamedPolicy, read_policy
from streams.errors import NotPrepared, UsageError
from streams.evaluation.golden import load_golden

SAY_SECONDS = 5.0
"""Into a pipe, progress is a line so often."""
GATE_SECONDS = 3.0
"""Between two looks of the gate while it waits."""
QUIET_SECONDS = 8.0
"""Without a step for so long, a build is put before the gate although its commits are behind."""


def rollout(
    context: typer.Context,
    policy: Annotated[str, typer.Argument(help="A policy file, or the name of one in deploy/policies.", show_default=False)],
    golden: Annotated[
        Path | None, typer.Option("--golden", help="Golden questions: recall must not fall.", show_default=False)
    ] = None,
    auto: Annotated[bool, typer.Option("--auto", help="Switch without asking once the gate is passed.")] = False,
    dry_run: DryRun = False,
    rate: Annotated[
        float | None,
        typer.Option("--rate", help="Documents a second a worker may take for the build. Change it with docdelta pace.", min=0.01),
    ] = None,
    timeout: Annotated[float, typer.Option("--timeout", help="Give up waiting after so many seconds. 0: never.", min=0)] = 0,
) -> int:
    """Build a policy's batch beside the served one, while editors go on; prove it; switch readers to it in one step.

    May be stopped at any point and run again, from any machine: it goes on where the batch stands. Workers pick the batch up by
    themselves. The old batch is kept warm, so docdelta rollback takes readers back at once.

    Example:  docdelta rollout my-policy.yaml --golden golden.yaml
    """
    if golden is not None and not golden.is_file():
        raise UsageError(f"--golden {golden}: no such file")
    if golden is not None:
        load_golden(golden)  # a fault in it is told now, not when the build is through
    wish = Wish(golden, auto, dry_run, rate, timeout)
    return asyncio.run(_rollout(context, read_policy(policy), wish))


@dataclass(frozen=True, slots=True)
class Wish:
    """How a rollout is to go: the options of the command. patience: seconds, 0 without end."""

    golden: Path | None = None
    auto: bool = False
    dry_run: bool = False
    rate: float | None = None
    patience: float = 0


async def _rollout(context: typer.Context, chosen: NamedPolicy, wish: Wish) -> int:
    async with acting_site(context) as site:
        return await roll_out(site, chosen, wish)


async def roll_out(site: Site, chosen: NamedPolicy, wish: Wish) -> int:
    """Roll a policy out on an installation, saying what happens. Returns the exit code."""
    ledger = await site.ledger()
    plan = plan_rollout(chosen.policy, chosen.text, ledger, site.alias, datetime.now(UTC), wish.rate)
    say(str(plan))
    if plan.done:
        return await _switch(site, ledger, plan.record.batch, wish.dry_run)
    if plan.new or wish.dry_run:
        await _preview(site, plan)
    if wish.dry_run:
        return OK
    ledger = await asyncio.to_thread(execute_rollout, plan, site.clerk, site.launcher, ledger)
    verdict = await _until_passed(site, ledger.batches[plan.record.batch], wish)
    say(f"gate of {plan.record.batch}:\n{verdict}")
    ledger = await site.ledger()
    if not verdict.passed:
        note(f"{plan.record.batch} is not switched to, readers stay on {plan.served.batch}; mend it and run the command again")
        return FAILED
    ledger = await site.mark_ready(ledger, plan.record.batch, verdict)
    if not confirmed(f"switch {site.alias} to {plan.record.batch}?", wish.auto):
        note(f"{plan.record.batch} is ready; switch with: docdelta switch {plan.record.batch}")
        return OK
    return await _switch(site, ledger, plan.record.batch, dry_run=False)


async def _preview(site: Site, plan: RolloutPlan) -> None:
    from streams.batches.gather import read_planned
    from streams.batches.record import policy_as_read_here

    planned = await asyncio.to_thread(read_planned, site.settings, plan.served.batch)
    documents = sum(not document.deleted for document in planned.values())
    if policy_as_read_here(plan.served).fingerprint != plan.served.policy_fingerprint:
        note(f"{plan.served.batch} was built by a release that cuts otherwise: \"now\" is what this release would make of it")
    found = await site.preview(plan.served, plan.record)
    for line in found.lines(documents, await _embedding_speed(site, plan.record)):
        say(line)


async def _embedding_speed(site: Site, batch: BatchRecord) -> float | None:
    """Return chunks a second of the batch's model on this machine, or None where it is not here."""
    from streams.batches.record import policy_of
    from streams.embedders import open_embedder

    try:
        embedder = await asyncio.to_thread(open_embedder, site.settings.embedder, policy_of(batch).embedding)
    except NotPrepared as error:
        note(f"this machine can't embed with {policy_of(batch).embedding.model}, and nothing is built where workers can't: {error}")
        return None
    texts = [f"{number} " + "a passage of the usual length, to see how quick the model is here. " * 6 for number in range(16)]
    began = time.monotonic()
    await embedder.embed(texts)
    return len(texts) / max(time.monotonic() - began, 1e-6)


async def _until_passed(site: Site, batch: BatchRecord, wish: Wish) -> Verdict:
    """Follow the build and return the gate's word: as soon as it passes, can't pass any more, or the time is over."""
    deadline = time.monotonic() + wish.patience if wish.patience else None
    said_at, gate_at, said = 0.0, 0.0, ""
    settled: Verdict | None = None
    quick = sys.stderr.isatty()
    async for look in follow_build(site.settings, batch):
        now = time.monotonic()
        if settled is not None:
            say(f"{batch.batch}: {look}")
            return settled
        if look.given_up and look.hosts is not None:
            raise NotPrepared(f"{look.hosts.problem}; then run the command again")
        over = deadline is not None and now > deadline
        if now - said_at > (1.0 if quick else SAY_SECONDS) and str(look) != said:
            said, said_at = str(look), now
            note(f"{batch.batch}: {look}")
        is_there = not look.left and look.lag <= site.settings.batches.max_lag
        is_quiet = look.documents > 0 and look.stalled > QUIET_SECONDS  # all may be done and not committed yet: the gate knows
        if over or ((is_there or is_quiet) and now >= gate_at):
            ledger = await site.ledger()
            _still_mine(ledger, batch)
            verdict = await site.gate(ledger.batches[batch.batch], ledger, wish.golden)
            if verdict.passed or over or not verdict.may_pass:
                settled = verdict  # the figures of the next look are newer than the gate's
                continue
            for line in verdict.lines:
                if not line.passed:
                    note(f"{batch.batch} waits: {line.name}: {line.figure}")
            gate_at = time.monotonic() + (GATE_SECONDS if is_there else QUIET_SECONDS)
    raise AssertionError("unreachable: a build is followed without end")


def _still_mine(ledger: Ledger, batch: BatchRecord) -> None:
    """Raise Outrun when another operator has retired the batch meanwhile."""
    now = ledger.batches.get(batch.batch)
    if now is None or now.state == "retired":
        raise outrun_by(now or batch)


async def _switch(site: Site, ledger: Ledger, name: str, dry_run: bool) -> int:
    switch = plan_switch(ledger, name, await site.index.alias_target(site.alias))
    say(str(switch))
    if switch.done or dry_run:
        return OK
    served = await execute_switch(switch, ledger, site.clerk, site.index)
    say(f"readers see {served.batch} now; back with: docdelta rollback")
    return OK
