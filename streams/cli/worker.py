"""`docdelta worker`: the production worker."""

from __future__ import annotations

import asyncio
import os
from typing import Annotated, NoReturn

import typer

from streams import telemetry
from streams.cli import options
from streams.errors import UsageError
from streams.settings import load_settings


def worker(
    context: typer.Context,
    only: Annotated[
        str | None,
        typer.Option(
            "--only", help="Host one part: parser, or batch:ID. Default: the parser and every live batch.", show_default=False
        ),
    ] = None,
) -> NoReturn:
    """Parse, chunk, embed and index what arrives, until SIGTERM or Ctrl-C; then drain, commit and leave within 10 seconds.

    Start as many as there is work for: they share the partitions. Needs the topics and a batch (docdelta init).

    Example:  docdelta --config production.toml worker

    Example:  docdelta worker --only parser
    """
    from streams.arenas import use_few_arenas
    from streams.crash_points import VARIABLE, arm
    from streams.kafka.client import cluster_topics, make_admin
    from streams.logs import configure_logs

    if only is not None and only != "parser" and (not only.startswith("batch:") or only == "batch:"):
        raise UsageError(f"--only {only}: use parser or batch:ID")
    settings = load_settings(options.invocation(context).config)
    use_few_arenas()  # before there are threads
    # Asked before Faust and the models are loaded, so that a wrong address is told within 10 seconds on a slow machine too.
    cluster_topics(make_admin(settings.kafka))
    from streams.run_worker import run_worker

    configure_logs(settings.log_level, settings.log_format)
    arm(os.environ.get(VARIABLE, ""))
    telemetry.begin(settings.otel.endpoint, "docdelta-worker")
    asyncio.run(run_worker(settings, only))
