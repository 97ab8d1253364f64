"""`docdelta delete`: end documents."""

from __future__ import annotations

import uuid
from datetime import UTC, datetime
from typing import Annotated

import typer

from schemas.document_change import DocumentChange
from streams import telemetry
from streams.cli import options
from streams.cli.exits import FAILED, OK
from streams.cli.sending import checked, revision_now, send_all, tenant_of


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
    return FAILED if send_all(changes, KafkaSender(settings.kafka), json) else OK
