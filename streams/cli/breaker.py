"""`docdelta breaker`: deletes that are too many at once are held until a person decides."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Annotated

import typer

from schemas.control import Verdict
from streams.cli import options
from streams.cli.batch_commands import DryRun, Yes, confirmed, die_as_told
from streams.cli.exits import FAILED, OK
from streams.cli.output import note, print_json, say, stdout, table
from streams.words import counted

app = typer.Typer(
    help="""Deletes beyond a share of a tenant's documents are held: list them, let them pass, or drop them.

    Example:  docdelta breaker list

    Example:  docdelta breaker reject acme --reason "the share was not mounted"
    """,
    no_args_is_help=True,
)

TenantName = Annotated[str, typer.Argument(help="Tenant, as docdelta breaker list shows it.", show_default=False)]
Reason = Annotated[str, typer.Option("--reason", help="Why; kept with the decision.", show_default=False)]
Wait = Annotated[float, typer.Option("--wait", min=0, help="Seconds to wait until workers have done it.")]


@app.command("list")
def list_(context: typer.Context, json: options.Json = False) -> int:
    """List the tenants whose breaker is open: since when, what was counted, how many events are held.

    Example:  docdelta breaker list --json | jq '.[].tenant_id'
    """
    from streams.controls.standing import read_standing

    found = read_standing(options.invocation(context).settings()).breakers()
    if json:
        print_json([each.as_json() for each in found])
        return OK
    if not found:
        say("no breaker is open, and nothing is held by one")
        return OK
    lines = table("tenant", "state", "since", "held", "why", "examples", numbers=("held",), fold=("why", "examples"))
    for each in found:
        since = f"{each.open_since:%Y-%m-%d %H:%M:%S}" if each.open_since else "-"
        row = each.as_json()
        lines.add_row(each.tenant, row["state"], since, f"{len(each.held):,}", each.why, ", ".join(row["examples"]))
    stdout().print(lines)
    return OK


@app.command()
def approve(
    context: typer.Context, tenant: TenantName, reason: Reason = "", yes: Yes = False, dry_run: DryRun = False, wait: Wait = 60
) -> int:
    """Let the held events of a tenant pass. Interrupted, it is run again.

    It covers what stands in [documents] or waits in [bulk] now, and nothing that is sent later: that is counted anew, from nothing.

    Example:  docdelta breaker approve acme
    """
    return _rule(context, tenant, "approve", reason, yes, dry_run, wait)


@app.command()
def reject(
    context: typer.Context, tenant: TenantName, reason: Reason = "", yes: Yes = False, dry_run: DryRun = False, wait: Wait = 60
) -> int:
    """Drop the held events of a tenant; its documents stay served. Interrupted, it is run again.

    Deletes that stand in [documents] or wait in [bulk] now are dropped as well, held or not; what is sent later is counted anew.

    Example:  docdelta breaker reject acme --reason "the share was not mounted"
    """
    return _rule(context, tenant, "reject", reason, yes, dry_run, wait)


def _rule(context: typer.Context, tenant: str, verdict: Verdict, reason: str, yes: bool, dry_run: bool, wait: float) -> int:
    from streams.controls.desk import desk_of

    die_as_told()
    desk = desk_of(options.invocation(context).settings_to_send(), lambda: datetime.now(UTC))
    plan = desk.plan(tenant, verdict, reason)
    say(str(plan))
    if dry_run:
        return OK
    if not confirmed(f"{verdict} for tenant {tenant}?", yes):
        note("nothing is decided; say --yes to do it")
        return FAILED
    left = desk.rule(plan, wait)
    if left:
        waiting = counted(left, "event waits", "events wait")
        note(f"{waiting} for a worker, and for nothing else; or run docdelta breaker {verdict} {tenant} again")
        return FAILED
    say("done: nothing of the tenant is held")
    return OK
