"""`docdelta pace`: how fast a build may go, changed while it runs."""

from __future__ import annotations

import asyncio
from typing import Annotated

import typer

from streams.batches.ledger import with_state
from streams.cli.batch_commands import Batch, acting_site
from streams.cli.exits import OK
from streams.cli.output import say
from streams.errors import NotPrepared, UsageError


def pace(
    context: typer.Context,
    batch: Batch,
    rate: Annotated[str, typer.Argument(help="Documents a second that each worker may take, or off.", show_default=False)],
) -> int:
    """Limit how fast a batch is built, while it is built. Live work goes first in any case.

    Example:  docdelta pace default-v2-0a1b2c3d 5
    """
    try:
        wanted = None if rate == "off" else float(rate)
    except ValueError as error:
        raise UsageError(f"rate {rate!r}: give documents a second, such as 5 or 0.5, or off") from error
    if wanted is not None and not 0 < wanted < float("inf"):
        raise UsageError(f"rate {rate}: must be above 0; to stop a build for good, retire it")
    return asyncio.run(_pace(context, batch, wanted))


async def _pace(context: typer.Context, name: str, rate: float | None) -> int:
    async with acting_site(context) as site:
        ledger = await site.ledger()
        batch = site.batch(ledger, name)
        if batch.state not in ("proposed", "building", "ready"):
            raise NotPrepared(f"batch {name} is {batch.state}; only a build has a pace")
        await asyncio.to_thread(site.clerk.claim, ledger, with_state(batch, build_rate=rate))
    how = "as fast as live work lets it" if rate is None else f"at up to {rate:g} documents a second a worker"
    say(f"batch {name} is built {how}")
    return OK
