"""`docdelta gate`: what still stands between a batch and its readers."""

from __future__ import annotations

import asyncio
from dataclasses import asdict
from pathlib import Path
from typing import Annotated

import typer

from streams.cli import options
from streams.cli.batch_commands import Batch, acting_site
from streams.cli.exits import FAILED, OK
from streams.cli.output import print_json, say


def gate(
    context: typer.Context,
    batch: Batch,
    golden: Annotated[
        Path | None, typer.Option("--golden", help="Golden questions: recall must not fall.", show_default=False)
    ] = None,
    json: options.Json = False,
) -> int:
    """Hold a batch against the gate, line by line with figures. Changes nothing. Exit code 1: it is not passed.

    Example:  docdelta gate default-v2-0a1b2c3d
    """
    return asyncio.run(_gate(context, batch, golden, json))


async def _gate(context: typer.Context, name: str, golden: Path | None, json: bool) -> int:
    async with acting_site(context) as site:
        ledger = await site.ledger()
        verdict = await site.gate(site.batch(ledger, name), ledger, golden)
    if json:
        print_json({"batch": name, "passed": verdict.passed, "lines": [asdict(line) for line in verdict.lines]})
    else:
        say(str(verdict))
    return OK if verdict.passed else FAILED
