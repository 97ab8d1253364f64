"""`docdelta status`: where everything stands."""

from __future__ import annotations

import asyncio
from datetime import UTC, datetime
from typing import Annotated

import typer

from streams.cli import options
from streams.cli.exits import FAILED, OK
from streams.cli.output import note, print_json, say, stderr, stdout, table
from streams.cli.reading_index import reading_index
from streams.controls.standing import pauses_in_words
from streams.errors import DocdeltaError
from streams.reading.status import IndexView, Status, read_status, view_index
from streams.reading.waiting import Waiting
from streams.settings import Settings
from streams.words import counted

_OFFSETS = ("partition", "committed", "end", "uncommitted")


def status(
    context: typer.Context,
    fast: Annotated[
        bool, typer.Option("--fast", help="Don't count documents and chunks (reads the manifests to their end).")
    ] = False,
    json: options.Json = False,
) -> int:
    """Show batches with their documents and chunks, lag per group and partition, the document that waits longest, dead letters.

    *chunks* is what the manifests say, *points* what the index holds; once lag is 0 the two agree. *uncommitted* is lag by what is
    committed: for up to a minute after a worker started, what is done still counts. A build's lag keeps nobody waiting.

    Exit code 1: a part is missing.

    Example:  docdelta status

    Example:  docdelta status --json | jq .lag
    """
    from streams.reading.batches import read_batches

    settings = options.invocation(context).settings()
    batches = read_batches(settings)
    view = asyncio.run(_view(settings, [batch.collection for batch in batches]))
    with stderr().status("reading topics"):
        found = read_status(settings, batches, view, count_documents=not fast)
    now = datetime.now(UTC)
    if json:
        print_json(found.as_json(now))
    else:
        _tell(found, now)
    for line in (*found.problems, *found.parser_changes):
        note(line)
    return FAILED if found.problems else OK


async def _view(settings: Settings, collections: list[str]) -> IndexView:
    """Return what the index says, or why it could not be asked: the broker's side of a status is worth having alone."""
    try:
        async with reading_index(settings) as index:
            return await view_index(index, settings.qdrant.alias, collections)
    except DocdeltaError as error:
        return IndexView(None, {}, str(error))


def _tell(found: Status, now: datetime) -> None:
    batches = table("batch", "state", "served", "documents", "chunks", "points", "model", numbers=("documents", "chunks", "points"))
    for each in found.batches:
        held = each.held
        batches.add_row(
            each.record.batch,
            each.record.state,
            "yes" if each.served else "",
            f"{held.documents:,}" if held else "-",
            f"{held.chunks:,}" if held else "-",
            f"{each.points:,}" if each.points is not None else "-",
            each.record.embedding.model,
        )
    stdout().print(batches)
    groups = table("group", "topic", "partition", "committed", "end", "uncommitted", numbers=_OFFSETS)
    for group in sorted(found.groups, key=lambda group: group.lane == "build"):
        for part in group.partitions:
            committed = "-" if part.committed is None else str(part.committed)
            groups.add_row(group.group, part.topic, str(part.partition), committed, str(part.end), str(part.lag))
    say("")
    stdout().print(groups)
    for line in pauses_in_words(found.standing.controls):
        say(f"\n{line}")
    for breaker in found.standing.breakers():
        advice = f"docdelta breaker approve|reject {breaker.tenant}" if breaker.open_since else "see docdelta breaker list"
        kept = counted(len(breaker.held), "event is", "events are")
        say(f"\nbreaker of tenant {breaker.tenant}: {breaker.why}; {kept} held: {advice}")
    for problem in found.build_problems:
        say(f"\n{problem} (what is served goes on)")
    parts = [f"{found.build_lag:,} of it builds"] if found.build_lag else []
    parts += [f"{found.bulk_lag:,} of it waits in the bulk lane"] if found.bulk_lag else []
    apart = "".join(f", {part}" for part in parts)
    say(
        f"\nuncommitted lag {found.lag:,}{apart}; oldest unsynced: {_waiting(found.oldest, now)}; dead letters {found.dead_letters}"
    )


def _waiting(waiting: Waiting | None, now: datetime) -> str:
    if waiting is None:
        return "none"
    age = f" for {(now - waiting.since).total_seconds():,.0f} s" if waiting.since else ""
    return f"{waiting.tenant_id}/{waiting.document_id}{age} ({waiting.topic}[{waiting.partition}] at {waiting.offset})"
