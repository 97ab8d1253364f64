"""Options that several commands share, each written once, and the settings a command runs with."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import typer

from streams import telemetry
from streams.settings import Settings, load_settings

Json = Annotated[bool, typer.Option("--json", help="Print JSON for programs instead of a table.")]
Tenant = Annotated[
    str,
    typer.Option("--tenant", "-t", help="Tenant. Default: that of the docdelta dev running in this folder.", show_default=False),
]
Workers = Annotated[
    list[str] | None,
    typer.Option(
        "--worker",
        help="Address of a worker's metrics, such as http://worker-1:9464; may be given several times. "
        "Default: one on this machine, where there is one.",
        show_default=False,
    ),
]
LaneChoice = Annotated[
    str,
    typer.Option(
        "--lane", help="live: at once. bulk: behind live edits. auto: bulk for more than 20 changes.", metavar="auto|live|bulk"
    ),
]
PreviewTenant = Annotated[str, typer.Option("--tenant", "-t", help="Tenant; it enters the chunk ids.")]
PreviewId = Annotated[
    str, typer.Option("--id", help="Document id; it enters the chunk ids. Default: the file's name.", show_default=False)
]
Policy = Annotated[str, typer.Option("--policy", "-p", help="A policy file, or the name of one in deploy/policies.")]
MediaType = Annotated[
    str, typer.Option("--media-type", help="Media type, such as text/markdown. Default: by the file's name.", show_default=False)
]
Title = Annotated[str, typer.Option("--title", help="Title. Default: what the parser finds.", show_default=False)]
Language = Annotated[str, typer.Option("--language", help="Language tag: zh-CN, en.", show_default=False)]
Kind = Annotated[str, typer.Option("--kind", help="Kind of document; policy rules may look at it.", show_default=False)]
Labels = Annotated[list[str] | None, typer.Option("--label", help="Label; may be given several times.", show_default=False)]


@dataclass(frozen=True, slots=True)
class Invocation:
    """What was given before the command's name."""

    config: Path | None = None

    def settings(self) -> Settings:
        """Return the settings: environment over file over, where neither names broker or index, a `docdelta dev` running here."""
        from streams.embedded.dev_file import with_dev_file

        return with_dev_file(load_settings(self.config))

    def settings_to_send(self) -> Settings:
        """Return the same for a command that sends events: their spans go where `otel.endpoint` says."""
        settings = self.settings()
        telemetry.begin(settings.otel.endpoint, "docdelta-cli")
        return settings


def invocation(context: typer.Context) -> Invocation:
    """Return what was given before the command's name."""
    found = context.obj
    return found if isinstance(found, Invocation) else Invocation()
