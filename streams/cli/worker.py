"""`docdelta worker`: the production worker."""

from __future__ import annotations

import asyncio
from typing import Annotated

import typer

from streams.cli import options
from streams.settings import load_settings


def worker(
    context: typer.Context,
    only: Annotated[
        str | None,
        typer.Option(
            "--only", help="Host one part: parser, or batch:ID. Default: the parser and every live batch.", show_default=False
        ),
    ] = None,
) -> int:
    """Parse, chunk, embed and index what arrives, until SIGTERM or Ctrl-C; then drain, commit and leave within 10 seconds.

    Start as many as there is work for: they share the partitions. Needs the topics and a batch (docdelta init).

    Example:  docdelta --config production.toml worker

    Example:  docdelta worker --only parser
    """
    from streams.logs import configure_logs
    from streams.worker import run_worker

    settings = load_settings(options.invocation(context).config)
    configure_logs(settings.log_level, settings.log_format)
    return asyncio.run(run_worker(settings, only))
