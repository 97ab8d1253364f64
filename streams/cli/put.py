"""`docdelta put`: send files as new revisions of documents."""

from __future__ import annotations

import os
import unicodedata
import uuid
from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Annotated

import typer

from schemas.document_change import DocumentChange
from streams import telemetry
from streams.cli import options
from streams.cli.exits import FAILED, OK
from streams.cli.files import FileFacts, known_media_type, read_bytes
from streams.cli.sending import checked, revision_now, send_all, tenant_of
from streams.connectors.content import change_of, content_of, fits, reference_to, too_large
from streams.errors import UsageError


def put(
    context: typer.Context,
    files: Annotated[list[Path], typer.Argument(help="Files to send.", show_default=False)],
    tenant: options.Tenant = "",
    document_id: Annotated[
        str | None, typer.Option("--id", help="Document id; with one file only. Default: the path as given.", show_default=False)
    ] = None,
    revision: Annotated[
        int | None, typer.Option("--revision", help="Revision. Default: the time now in microseconds.", show_default=False)
    ] = None,
    media_type: options.MediaType = "",
    title: options.Title = "",
    language: options.Language = "",
    kind: options.Kind = "",
    label: options.Labels = None,
    source_uri: Annotated[
        str, typer.Option("--source-uri", help="Address to cite. Default: the document id.", show_default=False)
    ] = "",
    ref: Annotated[bool, typer.Option("--ref", help="Send files that are too large for an event by reference.")] = False,
    json: options.Json = False,
) -> int:
    """Send files as new revisions of documents; returns when the broker has confirmed them.

    The larger revision is the newer one, whatever order events arrive in. A document that `docdelta sync` looks after is best left
    to it: two authorities over one revision number get in each other's way.

    Example:  docdelta put refund.md --tenant acme --id policy-refund --title "Refund policy"

    Example:  docdelta put docs/*.md --tenant acme --language zh-CN
    """
    invocation = options.invocation(context)
    owner = tenant_of(tenant, invocation)
    if document_id is not None and len(files) > 1:
        raise UsageError("--id names one document; give one file with it")
    facts = FileFacts(media_type, title, language, kind, tuple(label or ()))
    number = revision_now() if revision is None else revision
    checked("--revision", number)
    ids = [default_id(path) if document_id is None else document_id for path in files]
    changes = [_change(path, owner, each, number, facts, source_uri, ref) for path, each in zip(files, ids, strict=True)]
    _refuse_twins(changes)
    from streams.connectors.sender import KafkaSender  # a client of the broker: not before all that was given is checked

    settings = invocation.settings()
    telemetry.begin(settings.otel.endpoint, "docdelta-cli")
    return FAILED if send_all(changes, KafkaSender(settings.kafka), json) else OK


def default_id(path: Path) -> str:
    """Return the document id of a file: its path from the current folder, or its name where it lies elsewhere."""
    relative = Path(os.path.relpath(path))
    inside = not path.is_absolute() and ".." not in relative.parts
    return unicodedata.normalize("NFC", relative.as_posix() if inside else path.name)


def _change(
    path: Path, tenant: str, document_id: str, revision: int, facts: FileFacts, source_uri: str, ref: bool
) -> DocumentChange:
    checked("--id", document_id)
    data = read_bytes(path)
    media_type = known_media_type(path, facts.media_type)
    change = change_of(
        tenant_id=tenant,
        document_id=document_id,
        revision=revision,
        op="upsert",
        media_type=media_type,
        content=content_of(data, media_type),
        title=facts.title,
        source_uri=source_uri or document_id,
        language=facts.language,
        kind=facts.kind,
        labels=facts.labels,
        occurred_at=datetime.now(UTC),
        event_id=uuid.uuid4().hex,
    )
    if fits(change):
        return change
    if not ref:
        raise UsageError(too_large(path, len(data)))
    return change.model_copy(update={"content": reference_to(path, data)})


def _refuse_twins(changes: Sequence[DocumentChange]) -> None:
    seen: set[str] = set()
    for change in changes:
        if change.document_id in seen:
            raise UsageError(f"two of the files have the document id {change.document_id!r}; send them one by one with --id")
        seen.add(change.document_id)
