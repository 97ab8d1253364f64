"""Order: the last record of a document in [documents] says its newest revision, or comes to say it.

Compaction keeps the last record of a key, not the newest revision. A late event (a webhook tried again, a change that waited in
[bulk] behind a live edit, an old event sent again by a command) stands behind the newest one: the parser lets it go as stale, but
the log would forget the newest. So the parser, which alone knows, says the newest once more, with the header `AGAIN`: byte for
byte where it was an upsert, which is read back from where it stood; a delete is made anew.

Nothing is locked. Who says it again may be outrun by a newer event: then what was said is late itself, and is met as such. It ends
when what comes last in the log is what is remembered. Order of effects: after outcome and row, before the offset may advance; a
crash before it brings the late record again, a crash after it says the same twice.

Not kept: an upsert that compaction took away before the parser reached the late event (`min.compaction.lag.ms` of the topics is how
long that takes at least). Then [parsed] is still right, and a warning says which document its source must send again.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, replace

import structlog

from schemas.codec import UndecodableRecord, decode, encode
from schemas.document_change import AGAIN, DocumentChange
from schemas.record import split_document_key
from streams import metrics
from streams.crash_points import reached
from streams.ports import InRecord
from streams.steps.settle_change import Seen, change_fingerprint

log = structlog.get_logger(__name__)
KEPT_HEADERS = ("traceparent", "tracestate")


@dataclass(frozen=True, slots=True)
class Order:
    """What it takes to say an event again."""

    recall: Callable[[InRecord, int], Awaitable[InRecord | None]]
    """(a record, offset) to the record that stands at that offset of its partition; None where it is gone. Unavailable."""
    say: Callable[[InRecord, bytes, Mapping[str, bytes]], Awaitable[None]]
    """(a record, value, headers): append it to the same partition under its key. PoisonRecord, Unavailable, Stopping."""

    async def say_newest(self, late: InRecord, row: Seen) -> None:
        """Put the newest event of a document behind `late`. Raises as its ports do; to be repeated from the beginning."""
        key = late.key or b""
        if row.deleted:
            tenant, document = split_document_key(key)
            end = DocumentChange(tenant_id=tenant, document_id=document, revision=row.revision, op="delete", event_id=row.event_id)
            value, headers = encode(end), {}
        else:
            newest = await self.recall(late, row.offset) if row.offset >= 0 else None
            if newest is None or newest.value is None or newest.key != key or not says(newest.value, row):
                metrics.ORDER_LOST.inc()
                log.warning(
                    "the newest event of a document is gone from the log, behind a late one: the index is right; before a "
                    "re-index its source must send it again",
                    key=key.decode("utf-8", "replace"),
                    revision=row.revision,
                    partition=late.partition,
                    late=late.offset,
                )
                return
            value, headers = newest.value, {name: newest.headers[name] for name in KEPT_HEADERS if name in newest.headers}
        await self.say(late, value, {**headers, AGAIN: str(late.offset).encode()})
        reached("parser.repeated")
        metrics.ORDER_MENDED.inc()


def is_said_again(record: InRecord) -> bool:
    """Return whether a record is one that was said again."""
    return record.value is not None and AGAIN in record.headers


def says(value: bytes, row: Seen) -> bool:
    """Return whether an event's bytes say what a row remembers."""
    try:
        return agrees(decode(value, DocumentChange), row)
    except UndecodableRecord:
        return False


def agrees(change: DocumentChange, row: Seen, fingerprint: str = "") -> bool:
    """Return whether an event says what a row remembers: the same revision, an end as an end, an upsert with the same content.

    `fingerprint`: the event's own, where the caller has it.
    """
    if change.revision != row.revision or (change.op == "delete") != row.deleted:
        return False
    return row.deleted or row.fingerprint in ("", fingerprint or change_fingerprint(change))


def is_known(change: DocumentChange, row: Seen, fingerprint: str = "") -> bool:
    """Return whether an event that was said again tells a row nothing: it is what the row remembers, or what that has overtaken.

    Whatever else has the header has it from its producer, and is an event like any other.
    """
    return change.revision < row.revision or (change.revision == row.revision and row.deleted) or agrees(change, row, fingerprint)


def stood_last(row: Seen, offset: int) -> Seen:
    """Return a row whose event was said again at this offset."""
    return replace(row, offset=offset)
