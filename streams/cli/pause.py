"""`docdelta pause` and `docdelta resume`: a tenant's events are parked, or a stage takes no records, until it is over."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Annotated

import typer

from schemas.record import TENANT_PATTERN
from streams.cli import options
from streams.cli.batch_commands import die_as_told
from streams.cli.exits import FAILED, OK
from streams.cli.output import note, say
from streams.errors import NotPrepared, UsageError
from streams.settings import Settings

TenantName = Annotated[str, typer.Option("--tenant", "-t", help="Tenant whose events are parked.", show_default=False)]
Stage = Annotated[str, typer.Option("--stage", help="Stage that takes no records: parser, or batch:ID.", show_default=False)]


def pause(
    context: typer.Context,
    tenant: TenantName = "",
    stage: Stage = "",
    reason: Annotated[str, typer.Option("--reason", help="Why; shown by status.", show_default=False)] = "",
) -> int:
    """Pause a tenant or a stage, for all workers, also those that start later. Ends with docdelta resume.

    A paused tenant's events are parked, the newest of each document; what is served stays, and other tenants go on. A paused stage
    takes no records: they wait on the broker, and workers stay alive and ready.

    Example:  docdelta pause --tenant acme --reason "import runs wild"

    Example:  docdelta pause --stage batch:default-v2-0a1b2c3d
    """
    from streams.controls.desk import desk_of

    settings = options.invocation(context).settings()
    _one_of(tenant, stage)
    _must_exist(settings, stage)
    before = desk_of(settings, lambda: datetime.now(UTC)).pause(tenant or None, stage, reason)
    name = f"tenant {tenant}" if tenant else f"stage {stage}"
    if before is not None:
        say(f"{name} is paused already, since {before.at:%Y-%m-%d %H:%M:%S} by {before.by}")
        return OK
    say(f"{name} is paused; workers follow within seconds")
    return OK


def resume(
    context: typer.Context,
    tenant: TenantName = "",
    stage: Stage = "",
    wait: Annotated[float, typer.Option("--wait", min=0, help="Seconds to wait until parked events are taken.")] = 60,
) -> int:
    """End a pause. Parked events go on as they came. Interrupted, it is run again.

    Example:  docdelta resume --tenant acme
    """
    from streams.controls.desk import desk_of

    die_as_told()
    settings = options.invocation(context).settings_to_send()
    _one_of(tenant, stage)
    was, left = desk_of(settings, lambda: datetime.now(UTC)).resume(tenant or None, stage, wait)
    name = f"tenant {tenant}" if tenant else f"stage {stage}"
    say(f"{name} goes on" if was else f"{name} was not paused")
    if left:
        note(f"{left:,} parked events wait for a worker; they go on by themselves, or run docdelta resume --tenant {tenant} again")
        return FAILED
    return OK


def _one_of(tenant: str, stage: str) -> None:
    if bool(tenant) == bool(stage):
        raise UsageError("name one of --tenant and --stage")
    if tenant and not TENANT_PATTERN.fullmatch(tenant):
        raise UsageError(f"--tenant {tenant!r} can't be a tenant: letters, digits, '.', '_' and '-', at most 64")
    if stage and stage != "parser" and stage.removeprefix("batch:") in (stage, ""):
        raise UsageError(f"--stage {stage!r}: use parser or batch:ID")


def _must_exist(settings: Settings, stage: str) -> None:
    from streams.reading.batches import read_batches

    name = stage.removeprefix("batch:")
    if name != stage and name not in {batch.batch for batch in read_batches(settings)}:
        raise NotPrepared(f"there is no batch {name}: docdelta batches lists them")
