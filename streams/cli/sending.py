"""What `put`, `delete` and `sync` share: the tenant, the revision of now, and how a sent event is told."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence

from pydantic import TypeAdapter, ValidationError

from schemas.document_change import DocumentChange
from schemas.record import DocumentId, Revision, TenantId
from streams.cli.options import Invocation
from streams.cli.output import note, print_json_line, progress_bar, say
from streams.connectors.base import ChangeSender
from streams.errors import DocdeltaError, UsageError
from streams.settings import load_settings

_CHECKS: dict[str, TypeAdapter[object]] = {
    "--tenant": TypeAdapter(TenantId),
    "--id": TypeAdapter(DocumentId),
    "--revision": TypeAdapter(Revision),
}


def checked(option: str, value: object) -> None:
    """Raise UsageError naming the option when its value can't stand in an event."""
    try:
        _CHECKS[option].validate_python(value)
    except ValidationError as error:
        raise UsageError(f"{option} {value!r}: {error.errors()[0]['msg'].removeprefix('Value error, ')}") from error


def tenant_of(given: str, invocation: Invocation) -> str:
    """Return the tenant: the one given, or that of a `docdelta dev` running in this folder. Raises UsageError without either."""
    from streams.embedded.dev_file import dev_file_in_use

    running = None if given else dev_file_in_use(load_settings(invocation.config))
    tenant = given or (running.tenant if running else "")
    if not tenant:
        raise UsageError("which tenant? give --tenant NAME")
    checked("--tenant", tenant)
    return tenant


def revision_now() -> int:
    """Return the present time in microseconds since 1970: a revision above any that this clock gave before."""
    return time.time_ns() // 1_000


def event_json(change: DocumentChange) -> dict[str, object]:
    """Return a sent event as the commands print it with --json."""
    return {
        "tenant_id": change.tenant_id,
        "document_id": change.document_id,
        "revision": change.revision,
        "op": change.op,
        "event_id": change.event_id,
    }


def tell(change: DocumentChange, json: bool, known: str = "") -> None:
    """Print one confirmed event. `known`: what else can be said of its document, behind the line."""
    if json:
        print_json_line(event_json(change))
    else:
        what = "sent the delete of" if change.op == "delete" else "sent"
        say(f"{what} {change.tenant_id}/{change.document_id} revision {change.revision}{known}")


def send_all(
    changes: Sequence[DocumentChange], sender: ChangeSender, json: bool, known: Callable[[DocumentChange], str] = lambda change: ""
) -> int:
    """Send changes, print each as it is confirmed, and return how many were not taken (each named on stderr)."""
    failed = 0
    with progress_bar("sending", len(changes)) as bar:

        def confirmed(change: DocumentChange, error: DocdeltaError | None) -> None:
            nonlocal failed
            bar.advance()
            if error is None:
                tell(change, json, known(change))
            else:
                failed += 1
                note(f"not sent: {change.tenant_id}/{change.document_id}: {error}")

        sender.send(changes, confirmed)
    return failed
