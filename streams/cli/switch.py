"""`docdelta switch`: readers move to a batch in one step."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Annotated

import typer

from streams.batches.site import Site
from streams.batches.switch import execute_switch, plan_switch
from streams.cli.batch_commands import Batch, DryRun, acting_site
from streams.cli.exits import FAILED, OK
from streams.cli.output import note, say


def switch(
    context: typer.Context,
    batch: Batch,
    golden: Annotated[
        Path | None, typer.Option("--golden", help="Golden questions: recall must not fall.", show_default=False)
    ] = None,
    dry_run: DryRun = False,
) -> int:
    """Move readers to a batch, if it passes the gate. The one before is kept warm.

    Example:  docdelta switch default-v2-0a1b2c3d
    """
    return asyncio.run(_switch(context, batch, golden, dry_run))


async def _switch(context: typer.Context, name: str, golden: Path | None, dry_run: bool) -> int:
    async with acting_site(context) as site:
        return await switch_to(site, name, golden, dry_run)


async def switch_to(site: Site, name: str, golden: Path | None = None, dry_run: bool = False) -> int:
    """Move readers of an installation to a batch, saying what happens. Returns the exit code."""
    ledger = await site.ledger()
    plan = plan_switch(ledger, name, await site.index.alias_target(site.alias))
    say(str(plan))
    if plan.done:
        return OK
    if plan.claim is not None:  # else the gate was passed when it was claimed
        verdict = await site.gate(plan.target, ledger, golden)
        say(f"gate of {name}:\n{verdict}")
        if not verdict.passed:
            note(f"{name} is not switched to")
            return FAILED
    if dry_run:
        return OK
    served = await execute_switch(plan, ledger, site.clerk, site.index)
    say(f"readers see {served.batch} now; back with: docdelta rollback")
    return OK
