"""`docdelta why`: where one document stands, and why."""

from __future__ import annotations

import asyncio
from typing import Annotated

import typer

from schemas.receipt import Receipt
from streams.cli import options
from streams.cli.exits import FAILED, OK
from streams.cli.output import note, print_json, say, stderr, stdout, table
from streams.cli.preview import one_line
from streams.cli.reading_index import reading_index
from streams.cli.sending import checked, tenant_of
from streams.errors import DocdeltaError
from streams.reading.why import InIndex, Why, read_points, read_why
from streams.settings import Settings


def why(
    context: typer.Context,
    document: Annotated[str, typer.Argument(help="Document id.", show_default=False)],
    tenant: options.Tenant = "",
    json: options.Json = False,
) -> int:
    """Show where a document stands and why: newest revision seen, last receipt of each batch, chunks, refusals and what to do.

    Exit code 1 when its newest revision was refused or is held, or nothing of it was ever seen.

    Example:  docdelta why policies/refund.md --tenant acme
    """
    invocation = options.invocation(context)
    owner = tenant_of(tenant, invocation)
    checked("--id", document)
    settings = invocation.settings()
    indexed, problems = asyncio.run(_indexed(settings, owner, document))
    with stderr().status("reading topics"):
        found = read_why(settings, owner, document, indexed, problems)
    if json:
        print_json(found.as_json())
    else:
        _tell(found)
    for problem in problems:
        note(problem)
    return FAILED if problems or found.state in ("dead_lettered", "held", "unknown") else OK


async def _indexed(settings: Settings, tenant: str, document: str) -> tuple[InIndex | None, tuple[str, ...]]:
    """Return the document's points, and why they could not be read. The broker's side of the answer is worth having alone."""
    try:
        async with reading_index(settings) as index:
            return await read_points(index, settings.qdrant.alias, tenant, document), ()
    except DocdeltaError as error:
        return None, (str(error),)


def _tell(found: Why) -> None:
    say(f"{found.tenant_id}/{found.document_id}: {found.state}. {found.explanation}")
    if found.seen is not None:
        place = f"partition {found.seen.partition}, offset {found.seen.offset}"
        say(f"newest event: {found.seen.op} revision {found.seen.revision} ({place})")
    if found.receipts:
        receipts = table(
            "batch", "revision", "outcome", "kept", "added", "updated", "removed", "embedded", "reason", fold=("reason",)
        )
        for receipt in found.receipts:
            receipts.add_row(*_cells(receipt))
        stdout().print(receipts)
    if found.indexed is not None and found.indexed.chunks:
        chunks = table("#", "chunk", "kind", "revision", "text", numbers=("#", "revision"), fold=("text",))
        for ordinal, payload in enumerate(found.indexed.chunks):
            text = one_line(str(payload.get("text", "")), 70)
            chunks.add_row(str(ordinal), payload["chunk_id"][:12], str(payload.get("kind", "")), str(payload["revision"]), text)
        stdout().print(chunks)
    for letter in found.dead_letters:
        say(f"dead letter: {letter.topic}[{letter.partition}] at {letter.offset}, {letter.stage}: {letter.error}: {letter.reason}")


def _cells(receipt: Receipt) -> list[str]:
    figures = [str(number) for number in (receipt.kept, receipt.added, receipt.updated, receipt.removed, receipt.embedded)]
    return [receipt.batch or "(parser)", str(receipt.revision), receipt.outcome, *figures, receipt.reason]
