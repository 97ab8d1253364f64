"""`docdelta rollback`: back to the batch that was served before."""

from __future__ import annotations

import asyncio
from typing import Annotated

import typer

from streams.batches.record import collection_spec, policy_of
from streams.batches.site import Site
from streams.batches.switch import execute_switch, plan_rollback
from streams.cli.batch_commands import DryRun, acting_site
from streams.cli.exits import OK
from streams.cli.output import say
from streams.errors import NotPrepared
from streams.words import counted


def rollback(
    context: typer.Context,
    dry_run: DryRun = False,
    force: Annotated[bool, typer.Option("--force", help="Go back even to a batch that lags.")] = False,
) -> int:
    """Take readers back to the batch served before, at once: it was kept warm, so it holds every edit made since.

    Only what takes no time is checked: the collection is that batch's, and the batch does not lag.

    Example:  docdelta rollback
    """
    return asyncio.run(_rollback(context, dry_run, force))


async def _rollback(context: typer.Context, dry_run: bool, force: bool) -> int:
    async with acting_site(context) as site:
        return await roll_back(site, dry_run, force)


async def roll_back(site: Site, dry_run: bool = False, force: bool = False) -> int:
    """Take readers of an installation back, saying what happens. Returns the exit code."""
    ledger = await site.ledger()
    plan = plan_rollback(ledger, site.alias, await site.index.alias_target(site.alias))
    say(str(plan))
    target = plan.target
    if await site.index.collection_spec(target.collection) != collection_spec(target, policy_of(target)):
        raise NotPrepared(f"collection {target.collection} is gone or not batch {target.batch}'s: roll its policy out again")
    limit = site.settings.batches.max_lag
    lag = await site.lag(target, enough=limit)
    if lag > limit and not force:
        raise NotPrepared(
            f"batch {target.batch} is {counted(lag, 'record')} behind, limit {limit:,}: wait for its workers, "
            "or use --force, and readers miss these edits until it has caught up"
        )
    if dry_run:
        return OK
    served = await execute_switch(plan, ledger, site.clerk, site.index)
    before = plan.before.batch if plan.before else ""
    say(f"readers see {served.batch} now (lag {lag}); forward again with: docdelta switch {before}")
    return OK
