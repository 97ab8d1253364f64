"""`docdelta why`: where one document stands, and why."""

from __future__ import annotations

import asyncio
from typing import Annotated

import typer

from streams.cli import options
from streams.cli.documents_named import document_named, meant_otherwise, plain
from streams.cli.exits import FAILED, OK
from streams.cli.output import note, print_json, say, stderr, stdout, table
from streams.cli.reading_index import reading_index
from streams.errors import DocdeltaError
from streams.reading.why import InIndex, read_points
from streams.repair.timeline import Moment, Timeline, read_timeline
from streams.settings import Settings
from streams.words import counted

SHOWN_MOMENTS = 40
SHOWN_CHUNKS = 100


def why(
    context: typer.Context,
    document: Annotated[str, typer.Argument(help="TENANT/DOCUMENT, or the id beside --tenant.", show_default=False)],
    tenant: options.Tenant = "",
    json: options.Json = False,
) -> int:
    """Show the timeline of a document: events, what each stage and batch said of it, chunks, refusals, what stands in its way, and
    the one thing that would mend it. No text of the document is shown.

    Exit code 1 when its newest revision was refused or is held, or nothing of it was ever seen.

    Example:  docdelta why acme/policies/refund.md
    """
    invocation = options.invocation(context)
    owner, name = document_named(document, tenant, invocation)
    settings = invocation.settings()
    indexed, problems = asyncio.run(_indexed(settings, owner, name))
    with stderr().status("reading topics"):
        found = read_timeline(settings, owner, name, indexed, problems)
    if json:
        print_json(found.as_json())
    else:
        _tell(found)
    if found.why.state == "unknown" and not tenant and (hint := meant_otherwise("docdelta why", document, (owner, name))):
        note(hint)
    for problem in problems:
        note(problem)
    return FAILED if problems or found.why.state in ("dead_lettered", "held", "unknown") else OK


async def _indexed(settings: Settings, tenant: str, document: str) -> tuple[InIndex | None, tuple[str, ...]]:
    """Return the document's points, and why they could not be read. The broker's side of the answer is worth having alone."""
    try:
        async with reading_index(settings) as index:
            return await read_points(index, settings.qdrant.alias, tenant, document), ()
    except DocdeltaError as error:
        return None, (str(error),)


def _tell(found: Timeline) -> None:
    say(f"{found.why.tenant_id}/{found.why.document_id}: {found.why.state}. {plain(found.why.explanation)}")
    for stop in found.stops:
        say(plain(stop))
    say(f"to mend it: {found.fix}" if found.fix.command else str(found.fix))
    if found.moments:
        moments = table("when", "stage", "batch", "revision", "what", "figures", "reason", numbers=("revision",), fold=("reason",))
        for moment in found.moments[-SHOWN_MOMENTS:]:
            moments.add_row(*_cells(moment))
        say("")
        stdout().print(moments)
        if len(found.moments) > SHOWN_MOMENTS:
            note(f"{len(found.moments) - SHOWN_MOMENTS} earlier moments: --json shows them")
    if found.holdings:
        holdings = table(
            "batch",
            "state",
            "revision",
            "chunks",
            "missing",
            "left over",
            "",
            numbers=("revision", "chunks", "missing", "left over"),
        )
        for each in found.holdings:
            known = each.points is not None
            holdings.add_row(
                each.batch,
                each.state,
                "-" if each.revision is None else str(each.revision),
                str(len(each.chunk_ids)),
                str(len(each.missing)) if known else "-",
                str(len(each.left_over)) if known else "-",
                " ".join(word for word, true in (("deleted", each.deleted), ("suspect", each.suspect)) if true),
            )
        say("")
        stdout().print(holdings)
    _tell_chunks(found)
    ahead = [
        f"{each.group}{' (a build)' if each.build else ''}: {counted(each.records, 'record')} of {each.topic}[{each.partition}]"
        for each in found.in_front
        if each.records
    ]
    if ahead:
        say("\nin front of it: " + "; ".join(ahead))


def _tell_chunks(found: Timeline) -> None:
    indexed = found.why.indexed
    if indexed is None or not indexed.chunks:
        return
    chunks = table("#", "chunk", "kind", "revision", "tokens", "order key", numbers=("#", "revision", "tokens", "order key"))
    for ordinal, payload in enumerate(indexed.chunks[:SHOWN_CHUNKS]):
        cells = (payload.get("kind", ""), payload["revision"], payload.get("tokens", ""), payload.get("order_key", ""))
        chunks.add_row(str(ordinal), payload["chunk_id"][:16], *(plain(str(cell)) for cell in cells))
    say("")
    stdout().print(chunks)
    if len(indexed.chunks) > SHOWN_CHUNKS:
        note(f"{len(indexed.chunks) - SHOWN_CHUNKS} more chunks: --json shows them")


def _cells(moment: Moment) -> list[str]:
    when = f"{moment.at:%Y-%m-%d %H:%M:%S}" if moment.at else "-"
    revision = "-" if moment.revision is None else str(moment.revision)
    figures = " ".join(f"{name} {count}" for name, count in moment.figures.items())
    return [when, moment.stage, moment.batch, revision, plain(moment.what), figures, plain(moment.reason)]
