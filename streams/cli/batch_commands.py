"""What the commands of a batch's life share: the installation they act on, and how a plan is confirmed."""

from __future__ import annotations

import os
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Annotated

import typer

from streams.batches.site import Site, site_of
from streams.cli import options
from streams.cli.reading_index import reading_index
from streams.crash_points import COMMAND_STEPS, VARIABLE, arm

DryRun = Annotated[bool, typer.Option("--dry-run", help="Only say what would be done.")]
Yes = Annotated[bool, typer.Option("--yes", "-y", help="Do it without asking.")]
Batch = Annotated[str, typer.Argument(help="Batch id, as docdelta batches lists it.", show_default=False)]


@asynccontextmanager
async def acting_site(context: typer.Context) -> AsyncIterator[Site]:
    """Give the installation of the command's settings, its index open."""
    die_as_told()
    settings = options.invocation(context).settings()
    async with reading_index(settings) as index:
        yield site_of(settings, index)


def die_as_told() -> None:
    """Have this command die at the step that the environment names, for the tests of deaths; nothing without it."""
    arm(os.environ.get(VARIABLE, ""), COMMAND_STEPS)


def confirmed(question: str, yes: bool) -> bool:
    """Return whether the operator agrees: `yes`, or asked on a terminal. Into a pipe nobody is asked: no."""
    if yes:
        return True
    return sys.stdin.isatty() and typer.confirm(question, default=False, err=True)
