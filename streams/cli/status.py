"""`docdelta status`: where everything stands, and what is red."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Sequence
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Annotated

import typer

from schemas.batch import BatchRecord
from streams.cli import options
from streams.cli.exits import FAILED, OK
from streams.cli.output import note, print_json, say, stderr, stdout, table
from streams.cli.reading_index import reading_index
from streams.controls.standing import pauses_in_words
from streams.errors import DocdeltaError, Unavailable
from streams.reading.status import IndexView, Status, read_status, view_index
from streams.reading.waiting import Waiting
from streams.settings import Settings, load_settings
from streams.words import counted

if TYPE_CHECKING:
    from streams.board.glance import Glance
    from streams.board.scrape import AskWorkers
    from streams.board.troubles import Trouble
    from streams.board.workers import WorkerFacts

_OFFSETS = ("partition", "committed", "end", "uncommitted")
TOLD_ABOVE = {"paused", "breaker_open"}
"""Red states that have lines of their own, with more in them."""


def status(
    context: typer.Context,
    fast: Annotated[
        bool, typer.Option("--fast", help="Don't count documents and chunks (reads the manifests to their end).")
    ] = False,
    worker: options.Workers = None,
    watch: Annotated[
        int, typer.Option("--watch", help="Look again after so many seconds: shows what stands still or rises.", min=0, max=3600)
    ] = 0,
    json: options.Json = False,
) -> int:
    """Show batches with their documents and chunks, lag per group and partition, the document that waits longest, dead letters,
    and red states, each with its cause and the one action that mends it, as the dashboard does.

    *chunks* is what the manifests say, *points* what the index holds; once lag is 0 the two agree. *uncommitted* is lag by what is
    committed: for up to a minute after a worker started, what is done still counts. A build's lag keeps nobody waiting.

    What only a worker knows is asked of its metrics: one on this machine, or those named with --worker. What could not be seen is
    said.

    Exit code 1: a part is missing.

    Example:  docdelta status

    Example:  docdelta status --worker http://worker-1:9464 --worker http://worker-2:9464 --watch 120

    Example:  docdelta status --json | jq .troubles
    """
    from streams.reading.batches import read_batches

    invocation = options.invocation(context)
    settings = invocation.settings()
    batches = read_batches(settings)
    view = asyncio.run(_view(settings, [batch.collection for batch in batches]))
    seen = _look(settings, batches, view, _addresses(settings, invocation, worker or []), bool(worker), not fast, watch)
    found, now = seen.status, datetime.now(UTC)
    reds, audits, unseen = seen.troubles(now.timestamp()), seen.audits(now.timestamp()), seen.unseen()
    if json:
        print_json({**found.as_json(now), "troubles": [_json_of(each) for each in reds], "audits": audits, "unseen": unseen})
    else:
        _tell(found, now)
        for line in audits:
            say(line)
        _tell_troubles(reds, unseen)
    for line in (*found.problems, *found.parser_changes):
        note(line)
    return FAILED if found.problems else OK


def _addresses(settings: Settings, invocation: options.Invocation, named: Sequence[str]) -> list[str]:
    """Return where workers are asked: those named, or that of a `docdelta dev` running here, or the port of one on this machine."""
    from streams.embedded.dev_file import dev_file_in_use

    if named:
        return list(named)
    running = dev_file_in_use(load_settings(invocation.config))
    if running is not None:
        return [running.metrics_url] if running.metrics_url else []
    port = settings.worker.metrics_port
    return [f"http://127.0.0.1:{port}"] if port else []


def _look(
    settings: Settings,
    batches: list[BatchRecord],
    view: IndexView,
    addresses: list[str],
    sure: bool,
    count_documents: bool,
    watch: int,
) -> Glance:
    """Look once, or with `watch` twice; workers always twice, since some of what they tell is what has risen."""
    from streams.board.glance import Glance, Look, book_of
    from streams.board.scrape import over_http

    ask, began = over_http(addresses, sure), time.monotonic()

    def workers() -> Look:
        return Look(tuple(addresses), tuple(asyncio.run(_asked(ask))))

    before, readings = workers(), []
    if watch:
        first = read_status(settings, batches, view, count_documents=False)
        readings.append((first.reading, first.members, time.time()))
        with stderr().status(f"looking again in {watch} s"):
            time.sleep(watch)
    with stderr().status("reading topics"):
        found = read_status(settings, batches, view, count_documents=count_documents)
    readings.append((found.reading, found.members, time.time()))
    book = book_of(settings.topics, batches, readings)
    seconds = time.monotonic() - began if watch else 0.0
    return Glance(found, view, book, before, workers(), seconds, settings.handover_grace_seconds, settings.topics)


async def _asked(ask: AskWorkers) -> Sequence[WorkerFacts]:
    return await ask()


async def _view(settings: Settings, collections: list[str]) -> IndexView:
    """Return what the index says, or why it could not be asked: the broker's side of a status is worth having alone."""
    try:
        async with reading_index(settings) as index:
            return await view_index(index, settings.qdrant.alias, collections)
    except DocdeltaError as error:
        return IndexView(None, {}, str(error), away=isinstance(error, Unavailable))


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
    letters = f"{found.dead_letters:,} (docdelta dead-letters list)" if found.dead_letters else "0"
    say(f"\nuncommitted lag {found.lag:,}{apart}; oldest unsynced: {_waiting(found.oldest, now)}; dead letters {letters}")


def _tell_troubles(found: Sequence[Trouble], unseen: Sequence[str]) -> None:
    from streams.board.words import in_words

    for each in found:
        if each.kind not in TOLD_ABOVE:
            cause, action = in_words(each)
            command = "" if each.command == "docdelta status" else each.command  # that is here
            say(f"\n{each.level}: {cause}\n  {action}" + (f"  {command}" if command else ""))
    if unseen:
        say("")
    for line in unseen:
        say(f"not seen from here: {line}")


def _json_of(trouble: Trouble) -> dict[str, object]:
    from streams.board.words import in_words

    cause, action = in_words(trouble)
    since = datetime.fromtimestamp(trouble.since, UTC).isoformat() if trouble.since is not None else None
    return {
        "kind": trouble.kind,
        "level": trouble.level,
        "facts": dict(trouble.facts),
        "cause": cause,
        "action": action,
        "command": trouble.command or None,
        "since": since,
    }


def _waiting(waiting: Waiting | None, now: datetime) -> str:
    if waiting is None:
        return "none"
    age = f" for {(now - waiting.since).total_seconds():,.0f} s" if waiting.since else ""
    return f"{waiting.tenant_id}/{waiting.document_id}{age} ({waiting.topic}[{waiting.partition}] at {waiting.offset})"
