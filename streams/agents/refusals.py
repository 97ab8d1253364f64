"""How a record that can't be used leaves the stream: a dead letter with its bytes, and a receipt where its document is known."""

from __future__ import annotations

import base64
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Literal

import structlog

from schemas.codec import encode
from schemas.dead_letter import DeadLetter
from schemas.receipt import Outcome, Receipt
from schemas.record import document_key
from streams import metrics, telemetry
from streams.crash_points import reached
from streams.errors import PoisonRecord
from streams.patience import Patience
from streams.ports import NO_HEADERS, InRecord, Log
from streams.topics import TopicNames

log = structlog.get_logger(__name__)
Clock = Callable[[], datetime]


@dataclass(frozen=True, slots=True)
class About:
    """Whose record it was, as far as it could be read."""

    tenant_id: str
    document_id: str
    revision: int
    event_id: str = ""
    title: str = ""
    occurred_at: datetime | None = None
    received_at: datetime | None = None


@dataclass(frozen=True, slots=True)
class Outbox:
    """Where receipts and dead letters go: the way out of every stage."""

    log: Log
    topics: TopicNames
    patience: Patience
    now: Clock
    stage: Literal["parser", "chunker", "indexer"]
    batch: str = ""

    async def publish(self, topic: str, key: bytes, value: bytes | None, headers: Mapping[str, bytes] = NO_HEADERS) -> None:
        """Append a record, however long the broker is away. PoisonRecord when it is too large."""
        await self.patience.hold(lambda: self.log.publish(topic, key, value, headers), f"publish to {topic}")

    async def settle(self, receipt: Receipt) -> None:
        """Publish one outcome and say it in one log line."""
        key = document_key(receipt.tenant_id, receipt.document_id)
        await self.publish(self.topics.receipts, key, encode(receipt))
        telemetry.outcome(
            key, receipt.outcome, {"batch": receipt.batch, "revision": receipt.revision, "embedded": receipt.embedded}
        )
        metrics.settled(receipt, self.log.lane(key))
        trace = self.log.trace_id(key)
        figures = {name: getattr(receipt, name) for name in ("kept", "added", "updated", "removed", "embedded")}
        log.info(
            "document settled",
            tenant=receipt.tenant_id,
            document=receipt.document_id,
            revision=receipt.revision,
            event_id=receipt.event_id,
            batch=receipt.batch,
            stage=receipt.stage,
            outcome=receipt.outcome,
            reason=receipt.reason,
            **{name: count for name, count in figures.items() if count},
            **({"trace_id": trace} if trace else {}),
        )

    async def refuse(self, record: InRecord, error: PoisonRecord, about: About | None, attempts: int = 1) -> None:
        """Park a record: ① dead letter ② receipt. A crash between the two repeats both; readers know repeats by their source."""
        key = record.key or b"-"
        letter = DeadLetter(
            topic=record.topic,
            partition=record.partition,
            offset=record.offset,
            key=_base64(record.key),
            value=_base64(record.value),
            headers={name: value.decode("utf-8", "replace") for name, value in record.headers.items()},
            stage=self.stage,
            batch=self.batch,
            error=type(error.__cause__ or error).__name__,
            reason=error.message,
            facts={name: str(value) for name, value in error.facts.items()},
            attempts=attempts,
            tenant_id=about.tenant_id if about else "",
            document_id=about.document_id if about else "",
            revision=about.revision if about else None,
            event_id=about.event_id if about else "",
            failed_at=self.now(),
        )
        try:
            await self.publish(self.topics.dead_letters, key, encode(letter))
        except PoisonRecord:
            # The bytes do not fit a record once more: the letter then names where they are kept.
            facts = {**letter.facts, "bytes": f"{record.topic}[{record.partition}]@{record.offset}"}
            slim = letter.model_copy(update={"value": None, "facts": facts})
            await self.publish(self.topics.dead_letters, key, encode(slim))
        reached("refusal.parked")
        metrics.dead_lettered(self.batch, self.stage)
        log.warning("record refused", topic=record.topic, partition=record.partition, offset=record.offset, reason=str(error))
        if about is not None:
            await self.settle(self.receipt(about, "dead_lettered", error.message))

    def receipt(self, about: About, outcome: Outcome, reason: str = "") -> Receipt:
        """Return the receipt of an event at this stage, now."""
        return Receipt(
            tenant_id=about.tenant_id,
            document_id=about.document_id,
            revision=about.revision,
            batch=self.batch,
            stage=self.stage,
            outcome=outcome,
            reason=reason,
            title=about.title,
            event_id=about.event_id,
            occurred_at=about.occurred_at,
            received_at=about.received_at,
            settled_at=self.now(),
        )


def _base64(data: bytes | None) -> str | None:
    return None if data is None else base64.b64encode(data).decode("ascii")
