"""Ledger: [batches] read in order, and the compare-and-set with which operators change it.

Every record is a claim. It names in `after` the newest offset its writer knew, and it holds only if no other claim that holds came
between: of two operators who decide at once, the one whom the broker wrote down first wins, on any broker, without locks or
transactions. Each claim has a Kafka key of its own, so compaction never removes one that holds in favour of one that does not.

A claim that makes a batch `active` makes the one that was active under the same alias `warm`, in the same step.
"""

from __future__ import annotations

import getpass
import os
import socket
import time
import uuid
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from datetime import datetime

from schemas.batch import BatchRecord
from schemas.codec import decode, encode
from streams.errors import NotReachable, UsageError
from streams.ports import InRecord
from streams.settings import Settings

_SEEN_SECONDS = 20.0
"""How long a confirmed claim may take to show up when the topic is read."""


class Outrun(UsageError):
    """Another operator changed the ledger first. Nothing was done; look at what is now, and decide anew."""

    exit_code = 1


@dataclass(slots=True)
class Ledger:
    """The batches as [batches] tells them, up to `position`."""

    batches: dict[str, BatchRecord] = field(default_factory=dict)
    position: int = -1
    """Offset of the newest record read, whether it holds or not."""
    newest: BatchRecord | None = None
    """The newest claim that holds."""
    holding: int = -1
    """Its offset."""
    claims: set[str] = field(default_factory=set)

    def apply(self, record: InRecord) -> bool:
        """Take the next record of the topic. Returns whether it holds. Raises UndecodableRecord, with the position moved on."""
        self.position = record.offset
        if record.value is None:
            return self.batches.pop((record.key or b"").decode("utf-8", "replace"), None) is not None
        batch = decode(record.value, BatchRecord)
        if batch.after is not None and batch.after < self.holding:
            return False
        if batch.state == "active":
            for other in self.batches.values():
                if other.state == "active" and other.alias == batch.alias and other.batch != batch.batch:
                    self.batches[other.batch] = other.model_copy(update={"state": "warm", "warm_since": batch.updated_at})
        self.batches[batch.batch] = batch
        self.newest, self.holding = batch, record.offset
        self.claims.add(batch.claim)
        return True

    def served(self, alias: str) -> BatchRecord | None:
        """Return the batch that readers of `alias` are to see, or None before the first."""
        return next((batch for batch in self.batches.values() if batch.state == "active" and batch.alias == alias), None)

    def alive(self) -> str:
        """Return the names of the batches that are not retired, for a message."""
        return ", ".join(sorted(name for name, batch in self.batches.items() if batch.state != "retired")) or "none"

    def in_order(self) -> list[BatchRecord]:
        """Return the batches, oldest first."""
        return sorted(self.batches.values(), key=lambda batch: (batch.created_at, batch.batch))


def fold(records: Iterable[InRecord]) -> Ledger:
    """Return the ledger that the records, in offset order, amount to."""
    ledger = Ledger()
    for record in records:
        ledger.apply(record)
    return ledger


def read_ledger(settings: Settings) -> Ledger:
    """Return the ledger up to now; empty where the topic does not exist yet. Raises UndecodableRecord on a foreign record."""
    from streams.kafka.client import cluster_topics, make_admin
    from streams.kafka.read import read_topic

    if settings.topics.batches not in cluster_topics(make_admin(settings.kafka)):
        return Ledger()
    return fold(read_topic(settings.kafka, settings.topics.batches))


def operator() -> str:
    """Return who runs this process: user, host, process id."""
    try:
        user = getpass.getuser()
    except (OSError, KeyError):
        user = str(os.getuid())
    return f"{user}@{socket.gethostname()} (process {os.getpid()})"


@dataclass(frozen=True, slots=True)
class Clerk:
    """Reads and changes one installation's ledger. `write` and `read` are passed in so that tests need no broker."""

    read: Callable[[], Ledger]
    write: Callable[[bytes, bytes], None]
    """(key, value): append to [batches]; returns when the broker has it."""
    now: Callable[[], datetime]
    by: str = field(default_factory=operator)

    def claim(self, ledger: Ledger, wanted: BatchRecord) -> Ledger:
        """Append `wanted`, decided on what `ledger` says, and return the ledger in which it holds.

        Outrun, naming who was first and since when, if another claim came between; nothing is changed then.
        """
        name = uuid.uuid4().hex
        record = wanted.model_copy(update={"after": ledger.position, "claim": name, "by": self.by, "updated_at": self.now()})
        self.write(f"{record.batch}/{name}".encode(), encode(record))
        deadline = time.monotonic() + _SEEN_SECONDS
        while True:
            found = self.read()
            if name in found.claims:
                return found
            if found.holding > ledger.position and found.newest is not None:
                raise outrun_by(found.newest)
            if time.monotonic() > deadline:
                raise NotReachable("a claim was confirmed by the broker and is not to be seen in [batches]; run the command again")
            time.sleep(0.1)


def outrun_by(newest: BatchRecord) -> Outrun:
    """Return the refusal that names who was first."""
    who = newest.by or "an operator of an earlier release"
    return Outrun(f"another operator was first: batch {newest.batch} is {newest.state} by {who} since {when(newest.updated_at)}")


def when(moment: datetime) -> str:
    """Return a moment as operators read it."""
    return moment.strftime("%Y-%m-%d %H:%M:%S %Z").strip()


def clerk_of(settings: Settings, now: Callable[[], datetime]) -> Clerk:
    """Return the clerk of an installation's [batches]."""

    def write(key: bytes, value: bytes) -> None:
        from streams.kafka.produce import OutRecord, produce_all

        produce_all(settings.kafka, [OutRecord(settings.topics.batches, key, value)])

    return Clerk(lambda: read_ledger(settings), write, now)


def with_state(batch: BatchRecord, **changes: object) -> BatchRecord:
    """Return a copy of a record with other values, checked like any record."""
    return BatchRecord.model_validate({**{name: getattr(batch, name) for name in BatchRecord.model_fields}, **changes})
