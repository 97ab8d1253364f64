"""`docdelta reindex`: have documents go through every stage again, from what the log holds of them."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Annotated

import typer

from streams.batches.ledger import clerk_of
from streams.batches.parser_versions import note_reindexed
from streams.cli import options
from streams.cli.batch_commands import DryRun, Yes, confirmed, die_as_told
from streams.cli.documents_named import document_named, meant_otherwise
from streams.cli.exits import FAILED, OK
from streams.cli.output import note, print_json, progress_bar, say
from streams.errors import UsageError
from streams.repair.reindex import Counts, Selection, reindex_documents
from streams.settings import Settings
from streams.words import counted


def reindex(
    context: typer.Context,
    documents: Annotated[
        list[str] | None, typer.Argument(help="TENANT/DOCUMENT, or ids beside --tenant.", show_default=False)
    ] = None,
    tenant: Annotated[
        str, typer.Option("--tenant", "-t", help="All documents of this tenant, or the tenant of those named.", show_default=False)
    ] = "",
    all_: Annotated[bool, typer.Option("--all", help="All documents of all tenants.")] = False,
    rate: Annotated[float, typer.Option("--rate", min=0, help="At most so many documents a second. 0: no limit.")] = 0.0,
    lane: Annotated[str, typer.Option("--lane", help="auto: a tenant or all go behind live edits. live, bulk: as told.")] = "auto",
    resume: Annotated[str, typer.Option("--resume", help="Go on with a run that was stopped.", show_default=False)] = "",
    dry_run: DryRun = False,
    yes: Yes = False,
    json: options.Json = False,
) -> int:
    """Send the newest event of documents through every stage again, at its own revision.

    They are parsed anew and compared with the index itself. What the index lost comes back, what nobody names goes; chunks whose
    vector is in place are not embedded. An edit made meanwhile wins. Deletes are sent as deletes. Exit code 1: a document that was
    named has no event in the log.

    Example:  docdelta reindex acme/policies/refund.md

    Example:  docdelta reindex --tenant acme --rate 50
    """
    die_as_told()
    invocation = options.invocation(context)
    settings = invocation.settings_to_send()
    if documents:
        if all_:
            raise UsageError("name documents, or --all: not both")
        selection = Selection(documents=tuple(document_named(each, tenant, invocation) for each in documents))
    else:
        selection = Selection(tenant=tenant, everything=all_)
    if resume and not resume.isalnum():
        raise UsageError(f"--resume {resume!r}: the name of a run, as it was printed")
    topic = topic_for(settings, selection, lane)
    what = "all documents" if all_ else f"all documents of tenant {tenant}" if not documents else ""
    if what and not dry_run and not confirmed(f"re-index {what}?", yes):
        note("nothing is sent; say --yes to do it, --dry-run to count")
        return FAILED
    done = 0
    with progress_bar("re-indexing") as bar:

        def advance(confirmed_so_far: int) -> None:
            nonlocal done
            bar.advance(confirmed_so_far - done)
            done = confirmed_so_far

        if what and not dry_run:
            note("a run that is stopped goes on with --resume and the name below")
        counts = reindex_documents(settings, selection, resume, dry_run, rate, advance, topic, lambda run: note(f"run {run}"))
    if all_ and not dry_run:
        note_reindexed(clerk_of(settings, lambda: datetime.now(UTC)))
    if json:
        print_json(counts_json(counts, dry_run))
    else:
        _tell(counts, dry_run)
    for missing in counts.missing:
        note(f"{missing}: no event of it in the log; send it again (docdelta put, docdelta sync)")
    for argument, named in zip(documents or (), selection.documents, strict=True):
        if not tenant and "/".join(named) in counts.missing and (hint := meant_otherwise("docdelta reindex", argument, named)):
            note(hint)
    return FAILED if counts.missing else OK


def topic_for(settings: Settings, selection: Selection, lane: str) -> str:
    """Return where events are sent: behind live edits when there may be many, where the installation has that lane."""
    from streams.kafka.client import cluster_topics, make_admin
    from streams.lanes.choice import HANDFUL, lane_for, topic_of

    chosen = lane_for(len(selection.documents) or HANDFUL + 1, lane)
    topic = topic_of(chosen, settings.topics)
    if chosen == "bulk" and lane == "auto" and topic not in cluster_topics(make_admin(settings.kafka)):
        return settings.topics.documents
    return topic


def counts_json(counts: Counts, dry_run: bool) -> dict[str, object]:
    """Return what a run did as --json prints it."""
    return {
        "run": counts.run,
        "dry_run": dry_run,
        "sent": counts.sent,
        "upserts": counts.upserts,
        "deletes": counts.deletes,
        "sent_before": counts.before,
        "unreadable": counts.unreadable,
        "mended": counts.mended,
        "missing": list(counts.missing),
        "topic": counts.topic,
    }


def _tell(counts: Counts, dry_run: bool) -> None:
    verb = "would be sent" if dry_run else f"sent to {counts.topic}"
    say(f"{counted(counts.sent, 'document')} {verb}: {counted(counts.upserts, 'upsert')}, {counted(counts.deletes, 'delete')}")
    if counts.before:
        say(f"{counts.before:,} were sent before by run {counts.run}")
    if counts.unreadable:
        say(f"{counted(counts.unreadable, 'record')} can't be read: docdelta dead-letters list")
    if counts.mended:
        say(f"{counted(counts.mended, 'document was', 'documents were')} edited meanwhile; the edit stays the last word")
