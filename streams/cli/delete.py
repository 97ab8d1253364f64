"""`docdelta delete`: end documents."""

from __future__ import annotations

import asyncio
import contextlib
import uuid
from collections.abc import Sequence
from datetime import UTC, datetime
from typing import Annotated

import typer

from schemas.document_change import DocumentChange
from streams import telemetry
from streams.cli import options
from streams.cli.exits import FAILED, OK
from streams.cli.sending import checked, revision_now, send_all, tenant_of
from streams.settings import Settings

LOOKED_UP = 20
"""So many documents are looked up in the index before they are deleted; of more, nothing is said."""
LOOK_SECONDS = 3.0


def delete(
    context: typer.Context,
    documents: Annotated[list[str], typer.Argument(help="Document ids, as put, sync and search print them.", show_default=False)],
    tenant: options.Tenant = "",
    revision: Annotated[
        int | None, typer.Option("--revision", help="Revision. Default: the time now in microseconds.", show_default=False)
    ] = None,
    json: options.Json = False,
) -> int:
    """Remove documents from the index; returns when the broker has confirmed the events.

    A delete is a revision like any other: events of an older revision that arrive later don't bring the document back.
    Whether there was anything to remove is said where the index can be asked.

    Example:  docdelta delete policy-refund --tenant acme
    """
    invocation = options.invocation(context)
    owner = tenant_of(tenant, invocation)
    number = revision_now() if revision is None else revision
    checked("--revision", number)
    for document_id in documents:
        checked("--id", document_id)
    changes = [
        DocumentChange(
            tenant_id=owner,
            document_id=document_id,
            revision=number,
            op="delete",
            occurred_at=datetime.now(UTC),
            event_id=uuid.uuid4().hex,
        )
        for document_id in dict.fromkeys(documents)
    ]
    from streams.connectors.sender import KafkaSender  # a client of the broker: not before all that was given is checked

    settings = invocation.settings()
    telemetry.begin(settings.otel.endpoint, "docdelta-cli")
    sender = KafkaSender(settings.kafka)
    there = {} if json else asyncio.run(_searchable(settings, owner, [change.document_id for change in changes]))
    known: dict[bool | None, str] = {True: "; it was searchable", False: "; nothing of it was searchable"}

    def said(change: DocumentChange) -> str:
        return known.get(there.get(change.document_id), "")

    return FAILED if send_all(changes, sender, json, said) else OK


async def _searchable(settings: Settings, tenant: str, documents: Sequence[str]) -> dict[str, bool]:
    """Return which documents have chunks in the index now; left out are those that it could not be asked about in time.

    The delete goes out all the same.
    """
    if not settings.qdrant.url or len(documents) > LOOKED_UP:
        return {}
    from streams.cli.reading_index import reading_index
    from streams.reading.why import read_points

    found: dict[str, bool] = {}
    with contextlib.suppress(Exception):  # whatever answers there, it is no reason not to delete
        async with asyncio.timeout(LOOK_SECONDS), reading_index(settings) as index:
            for document in documents:
                points = await read_points(index, settings.qdrant.alias, tenant, document)
                found[document] = bool(points and points.chunks)
    return found
