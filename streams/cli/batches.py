"""`docdelta batches`: every batch, where it stands in its life, and what it holds."""

from __future__ import annotations

import asyncio
from typing import Annotated, Any

import typer

from streams.batches.ledger import Ledger, when
from streams.cli import options
from streams.cli.exits import FAILED, OK
from streams.cli.output import note, print_json, say, stdout, table
from streams.cli.reading_index import reading_index
from streams.reading.status import BatchStatus, IndexView, Status, read_status, view_index

_NUMBERS = ("documents", "chunks", "points", "lag", "MB")


def batches(
    context: typer.Context,
    all_: Annotated[bool, typer.Option("--all", "-a", help="Retired ones too.")] = False,
    json: options.Json = False,
) -> int:
    """List batches: state, documents and chunks by their manifests, points in the index, lag, alias, size of the vectors.

    Exit code 1: [batches] and the alias do not say the same (a switch was stopped half-way).

    Example:  docdelta batches
    """
    from streams.batches.ledger import read_ledger

    settings = options.invocation(context).settings()
    ledger = read_ledger(settings)

    async def view() -> IndexView:
        async with reading_index(settings) as index:
            return await view_index(index, settings.qdrant.alias, [batch.collection for batch in ledger.in_order()])

    status = read_status(settings, ledger.in_order(), asyncio.run(view()))
    shown = [_row(each, status, settings.topics.batch_group(each.record.batch)) for each in status.batches]
    shown = [row for row in shown if all_ or row["state"] != "retired"]
    if json:
        print_json({"batches": shown, "alias": status.alias, "build_problems": list(status.build_problems)})
    else:
        made = table("batch", "state", "since", "by", "documents", "chunks", "points", "lag", "alias", "MB", numbers=_NUMBERS)
        for row in shown:
            made.add_row(*("-" if row[name] is None else f"{row[name]:,}" if name in _NUMBERS else str(row[name]) for name in row))
        stdout().print(made)
    for words in () if json else status.build_problems:
        say(words)
    problem = _disagreement(ledger, status)
    if problem:
        note(problem)
    if not shown and not json:
        say("no batch yet: run docdelta init --policy FILE")
    return FAILED if problem else OK


def _row(each: BatchStatus, status: Status, group: str) -> dict[str, Any]:
    record = each.record
    lag = next((found.lag for found in status.groups if found.group == group), None)
    return {
        "batch": record.batch,
        "state": record.state,
        "since": when(record.warm_since or record.updated_at),
        "by": record.by,
        "documents": each.held.documents if each.held else None,
        "chunks": each.held.chunks if each.held else None,
        "points": each.points,
        "lag": lag,
        "alias": status.alias if each.served else "",
        "MB": None if each.points is None else round(each.points * record.embedding.dimensions * 4 / 1e6, 1),
    }


def _disagreement(ledger: Ledger, status: Status) -> str:
    served = ledger.served(status.alias)
    pointed = next((each.record.batch for each in status.batches if each.served), None)
    if served is None or served.batch == pointed:
        return ""
    points = f"alias {status.alias} points at {pointed or 'nothing'}"
    return f"batch {served.batch} is active, {points}: run docdelta switch {served.batch}"
