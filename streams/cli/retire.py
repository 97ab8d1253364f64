"""`docdelta retire`: a batch that nobody is served from leaves nothing behind."""

from __future__ import annotations

import asyncio
from typing import Annotated

import typer

from streams.batches.retire import execute_retire
from streams.cli.batch_commands import Batch, DryRun, Yes, acting_site, confirmed
from streams.cli.exits import FAILED, OK
from streams.cli.output import note, say


def retire(
    context: typer.Context,
    batch: Batch,
    force: Annotated[bool, typer.Option("--force", help="Do not wait for the end of the grace period.")] = False,
    yes: Yes = False,
    dry_run: DryRun = False,
) -> int:
    """Remove a batch: its collection, consumer group, topics, and local state on every worker. Its name is never used again.

    Refused while an alias points at its collection, and, without --force, while it is kept warm for a rollback.

    Example:  docdelta retire default-v1-0a1b2c3d
    """
    return asyncio.run(_retire(context, batch, force, yes, dry_run))


async def _retire(context: typer.Context, name: str, force: bool, yes: bool, dry_run: bool) -> int:
    async with acting_site(context) as site:
        ledger = await site.ledger()
        plan = await site.plan_retire(ledger, name, force)
        say(str(plan))
        if dry_run:
            return OK
        if not confirmed(f"remove {name}?", yes):
            note("nothing is removed; say --yes to do it")
            return FAILED
        await execute_retire(plan, ledger, site.clerk, site.index, site.remover)
        say(f"{name} is gone; workers that are down remove its local state when they start")
    return OK
