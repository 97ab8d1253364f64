"""What became of a batch's documents, as its receipts and dead letters tell it."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from datetime import datetime

from schemas.codec import decode
from schemas.dead_letter import DeadLetter
from schemas.receipt import Receipt
from streams.ports import InRecord

Event = tuple[str, str, int, str, datetime | None]
"""Tenant, document, revision, event id, and when the event was received: all that tells two apart."""


@dataclass(slots=True)
class Outcomes:
    """The newest receipt of each document in one batch, and what its build cost so far. Fed in offset order."""

    batch: str
    newest: dict[tuple[str, str], Receipt] = field(default_factory=dict)
    embedded: int = 0
    reused: int = 0
    borrowed: int = 0
    chunks_of: dict[tuple[str, str], int] = field(default_factory=dict)
    """Chunks of each document by its newest receipt that names them: a receipt's figures are against whatever stood before."""
    events: set[Event] = field(default_factory=set)
    """Events that have an outcome: a receipt that is repeated (a crash, a re-check) is the same one."""

    def take(self, record: InRecord) -> bool:
        """Take a record of [receipts]. Returns whether it is of this batch."""
        if not record.value:
            return False
        receipt = decode(record.value, Receipt)
        if receipt.batch != self.batch:
            return False
        self.newest[receipt.tenant_id, receipt.document_id] = receipt
        event = (receipt.tenant_id, receipt.document_id, receipt.revision, receipt.event_id, receipt.received_at)
        is_first = event not in self.events
        self.events.add(event)
        if is_first:  # what was embedded for a revision that went stale on the way was paid for too
            self.embedded += receipt.embedded
            self.reused += receipt.reused
            self.borrowed += receipt.borrowed
            named = receipt.kept + receipt.added + receipt.updated
            if receipt.outcome == "indexed" or (receipt.outcome == "unchanged" and named):
                self.chunks_of[receipt.tenant_id, receipt.document_id] = named
        return True

    @property
    def chunks(self) -> int:
        """Chunks of all documents."""
        return sum(self.chunks_of.values())

    @property
    def documents(self) -> int:
        """Documents that have an outcome and are not deleted."""
        return sum(not receipt.deleted for receipt in self.newest.values())

    def of(self, outcome: str) -> dict[str, str]:
        """Return the documents whose newest outcome is this one, with the reason. A later, better one has settled the matter."""
        return {
            f"{tenant}/{document}": receipt.reason
            for (tenant, document), receipt in sorted(self.newest.items())
            if receipt.outcome == outcome
        }


def strays(records: Iterable[InRecord], batch: str) -> tuple[str, ...]:
    """Return dead letters of a batch that name no document, by their source: no receipt can tell whether they are settled."""
    places = []
    for record in records:
        letter = decode(record.value, DeadLetter) if record.value else None
        if letter is not None and letter.batch == batch and not letter.document_id:
            places.append(f"{letter.topic}[{letter.partition}]@{letter.offset}: {letter.reason}")
    return tuple(places)
