"""Freshness probe: a small document that is written every minute and read back through the alias, as a reader would.

Its age says whether everything between the front door and the alias works, whatever each part says of itself. One worker
writes: the one that owns the canary's partition of [documents]. Each worker reads, so the age is told by whoever is left. The
tenant is the operator's choice (`worker.canary_tenant`), and nobody else's documents should be in it. Costs one embedding a minute.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import partial
from typing import Any

import structlog

from schemas.codec import encode
from schemas.document_change import Content, DocumentChange
from schemas.record import document_key
from streams import metrics
from streams.daemon import in_daemon_thread
from streams.faustio.readiness import assigned_partitions
from streams.kafka.partitioner import partition_of
from streams.kafka.produce import OutRecord, produce_all
from streams.ports import VectorIndex
from streams.settings import Settings

log = structlog.get_logger(__name__)
DOCUMENT = "docdelta-canary"
WRITE_SECONDS = 60.0
READ_SECONDS = 5.0
MICROSECONDS = 1_000_000
LEAST_STEP = 1.0
"""Seconds between two canaries where the clock does not tell them apart: a canary tells its second, and one that says nothing new
would not come to the index."""


def canary(tenant: str, now: float) -> DocumentChange:
    """Return the canary written at `now` (seconds since 1970): its revision is the time, in microseconds."""
    written = datetime.fromtimestamp(now, UTC)
    return DocumentChange(
        tenant_id=tenant,
        document_id=DOCUMENT,
        revision=int(now * MICROSECONDS),
        op="upsert",
        content=Content(text=f"# Canary\n\nWritten by docdelta at {written:%Y-%m-%d %H:%M:%S} to see how fresh the index is."),
        occurred_at=written,
    )


async def newest_canary(index: VectorIndex, alias: str, tenant: str) -> float | None:
    """Return when the newest canary that readers of the alias see was written (seconds since 1970), or None when they see none."""
    points = await index.document_points(alias, tenant, DOCUMENT)
    return max((point.payload["revision"] for point in points), default=0) / MICROSECONDS or None


@dataclass(slots=True)
class Canary:
    """Writes and reads the canary of a worker. `parser` returns the parser app, or None where it is not hosted here."""

    settings: Settings
    tenant: str
    index: VectorIndex
    parser: Callable[[], Any | None]
    clock: Callable[[], float] = time.time
    elapsed: Callable[[], float] = time.monotonic
    """For what must not depend on a clock that is set."""
    newest: float | None = None
    _seen_at: float = 0.0
    """When the newest was first read, or the watch began, by `elapsed`."""

    async def watch(self) -> None:
        """Write and read, for ever. Until one was seen, the age counts from the start of the watch."""
        self._seen_at = self.elapsed()
        metrics.CANARY_AGE.labels(self.tenant).set_function(self.age)
        next_write = 0.0
        while True:
            if self.elapsed() >= next_write and await self.write():
                next_write = self.elapsed() + WRITE_SECONDS
            await self.read()
            await asyncio.sleep(READ_SECONDS if self.newest is not None else 1.0)

    def age(self) -> float:
        """Return seconds since the newest canary that was read back was written, but no less than since it was first read: where
        the clock was set back, it seems to have been written later than now."""
        read = self.elapsed() - self._seen_at
        return max(read, self.clock() - self.newest) if self.newest is not None else read

    async def write(self) -> bool:
        """Write one if it is ours to write. True when it is written."""
        if not self.is_ours():
            return False
        change = self.next()
        record = OutRecord(self.settings.topics.documents, document_key(self.tenant, DOCUMENT), encode(change), sends="canary")
        try:
            await in_daemon_thread(partial(produce_all, self.settings.kafka, [record]), "writes the canary")
        except Exception as error:  # noqa: BLE001 - the probe must not take the worker down
            log.warning("canary not written", reason=repr(error))
            return False
        metrics.CANARY_WRITTEN.inc()
        return True

    def next(self) -> DocumentChange:
        """Return the next canary: newer than the newest there is, also where that was written by a clock that was ahead."""
        return canary(self.tenant, max(self.clock(), (self.newest or 0.0) + LEAST_STEP))

    def is_ours(self) -> bool:
        """Tell whether this worker owns the canary's partition of [documents]."""
        app = self.parser()
        owned = assigned_partitions(app).get(self.settings.topics.documents, ()) if app is not None else ()
        return partition_of(document_key(self.tenant, DOCUMENT), self.settings.kafka.partitions) in owned

    async def read(self) -> None:
        """Read the newest one back through the alias."""
        try:
            found = await newest_canary(self.index, self.settings.qdrant.alias, self.tenant)
        except Exception as error:  # noqa: BLE001 - as above
            log.warning("canary not read", reason=repr(error))
            return
        if found is not None and (self.newest is None or found > self.newest):
            self.newest, self._seen_at = found, self.elapsed()
