"""`docdelta sync`: send what changed in a folder."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from streams.cli import options
from streams.cli.exits import FAILED, OK
from streams.cli.output import note, print_json, progress_bar, say
from streams.cli.sending import event_json, tell, tenant_of
from streams.connectors.directory import DirectoryConnector, SyncReport
from streams.connectors.sync_plan import SyncPlan
from streams.lanes.choice import Lane, lane_for
from streams.words import counted


def sync(
    context: typer.Context,
    folder: Annotated[Path, typer.Argument(help="Folder of documents; site.yaml may say more about each.", show_default=False)],
    tenant: options.Tenant = "",
    delete: Annotated[bool, typer.Option("--delete", help="Also end documents whose files are gone.")] = False,
    force: Annotated[bool, typer.Option("--force", help="With --delete: even when more than half are gone.")] = False,
    everything: Annotated[bool, typer.Option("--all", help="Send unchanged files too, under their known revisions.")] = False,
    ref: Annotated[bool, typer.Option("--ref", help="Send files that are too large for an event by reference.")] = False,
    lane: options.LaneChoice = "auto",
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Only say what would be sent.")] = False,
    state: Annotated[
        Path | None,
        typer.Option("--state", help="State file. Default: in .docdelta/sync, by tenant and folder.", show_default=False),
    ] = None,
    json: options.Json = False,
) -> int:
    """Send what changed in a folder since the last sync: new, edited and (with --delete) removed files.

    What was sent is remembered in a state file, so a sync of an unchanged folder sends nothing. Losing the state file is harmless.

    More than a handful of changes go through the bulk lane, which lets live edits go first; --lane says otherwise.

    Example:  docdelta sync docs --tenant acme --delete

    Example:  docdelta sync docs --tenant acme --delete --dry-run
    """
    invocation = options.invocation(context)
    settings = invocation.settings_to_send()
    connector = DirectoryConnector(
        folder,
        tenant_of(tenant, invocation),
        state,
        by_reference=ref,
        max_bytes=settings.parser.max_document_bytes,
    )
    with connector.owned():
        plan = connector.plan(everything=everything, delete=delete, force=force)
        chosen = lane_for(plan.size, lane)
        report = SyncReport()
        if plan.size and not dry_run:
            from streams.connectors.sender import KafkaSender

            sender = KafkaSender(settings.kafka, lane=chosen)
            with progress_bar("sending", plan.size) as bar:
                report = connector.execute(plan, sender, lambda document_id: bar.advance())
    if json:
        print_json({**plan_json(plan, report), "lane": chosen})
    else:
        _tell(plan, report, dry_run, chosen)
    return FAILED if plan.refused or plan.held or report.failed else OK


def plan_json(plan: SyncPlan, report: SyncReport) -> dict[str, object]:
    """Return a plan and what became of it as `docdelta sync --json` prints it."""
    return {
        "planned": [
            {"document_id": each.file.document_id, "revision": each.revision, "reason": each.reason} for each in plan.upserts
        ],
        "planned_deletes": [{"document_id": each.document_id, "revision": each.revision} for each in plan.deletes],
        "sent": [event_json(change) for change in report.confirmed],
        "unchanged": len(plan.unchanged),
        "missing": list(plan.missing),
        "held": list(plan.held),
        "held_reason": plan.held_reason,
        "refused": [{"document_id": each.document_id, "reason": each.reason} for each in (*plan.refused, *report.failed)],
    }


def _tell(plan: SyncPlan, report: SyncReport, dry_run: bool, lane: Lane) -> None:
    if dry_run:
        for upsert in plan.upserts:
            say(f"would send {upsert.file.document_id} revision {upsert.revision} ({upsert.reason})")
        for delete in plan.deletes:
            say(f"would delete {delete.document_id} revision {delete.revision}")
    for change in report.confirmed:
        tell(change, json=False)
    for refusal in (*plan.refused, *report.failed):
        note(f"not sent: {refusal.document_id}: {refusal.reason}")
    if plan.held:
        note(f"{counted(len(plan.held), 'delete')} held back: {plan.held_reason}")
    if plan.missing:
        missing = counted(len(plan.missing), "document is", "documents are")
        note(f"{missing} gone from the folder; sync with --delete to end what is gone")
    verb = "to send" if dry_run else "sent"
    by = ", by the bulk lane: behind live edits" if plan.size and lane == "bulk" else ""
    note(f"{plan.size if dry_run else len(report.confirmed)} {verb}, {len(plan.unchanged)} unchanged{by}")
