"""`docdelta dev`: everything on this machine, a folder kept in sync until Ctrl-C."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Annotated, Literal

import typer

from streams import telemetry
from streams.cli import options
from streams.cli.policies import DEFAULT_POLICY, read_policy
from streams.connectors.directory import DirectoryConnector
from streams.embedded.dev_file import read_dev_file
from streams.errors import UsageError
from streams.settings import load_settings


def dev(
    context: typer.Context,
    folder: Annotated[Path, typer.Argument(help="Folder of Markdown, HTML and text files.")] = Path("."),
    tenant: Annotated[str, typer.Option("--tenant", "-t", help="Tenant the documents belong to.")] = "demo",
    policy: options.Policy = DEFAULT_POLICY,
    kafka: Annotated[str, typer.Option("--kafka", help="tansu (from PyPI, in memory) or apache (needs Java and Maven).")] = "tansu",
    data: Annotated[Path, typer.Option("--data", help="Where the index and the logs lie.")] = Path(".docdelta/dev"),
    force: Annotated[
        bool, typer.Option("--force", help="End documents that are gone at the start even when more than half are.")
    ] = False,
) -> int:
    """Run broker, index, model and worker on this machine, and keep a folder in sync until Ctrl-C.

    Prints a line for every change. While it runs, other commands in this folder reach it without settings.

    Example:  docdelta dev docs        then, in another terminal:  docdelta search "how do I return a parcel" --tenant demo
    """
    if kafka not in ("tansu", "apache"):
        raise UsageError(f"--kafka {kafka}: use tansu or apache")
    settings = load_settings(options.invocation(context).config)
    telemetry.begin(settings.otel.endpoint, "docdelta-dev")
    connector = DirectoryConnector(folder, tenant, data / "sync-state.json", max_bytes=settings.parser.max_document_bytes)
    running = read_dev_file()
    if running is not None and running.folder == str(connector.root):
        raise UsageError(
            f"docdelta dev keeps {folder} in sync already (process {running.pid}), and other commands in this folder reach it; "
            "to start it anew, stop that one with Ctrl-C first"
        )
    from streams.cli.dev_session import DevSession  # brings Faust, the broker and the model with it
    from streams.logs import configure_logs

    configure_logs("warning" if settings.log_level == "info" else settings.log_level, settings.log_format)
    kind: Literal["apache", "tansu"] = "apache" if kafka == "apache" else "tansu"
    with connector.owned():
        return asyncio.run(DevSession(settings, connector, read_policy(policy), data, kind, force).run())
