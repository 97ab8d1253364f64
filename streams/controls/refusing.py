"""Refusing: a worker says in [controls] which builds it can't host, and why, so that nobody has to read its log to learn it.

Telling is beside the work: it waits for a broker that is away, and takes nothing down. What was said is taken back when the worker
hosts the build after all, and by `retire`; it means nothing once the batch has another claim, or is no build any more.
"""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from datetime import datetime

import structlog

from schemas.batch import BatchRecord
from schemas.codec import encode
from schemas.control import Control
from streams.controls.state import Controls
from streams.daemon import in_daemon_thread
from streams.errors import DocdeltaError, NotReachable, Stopping, Unavailable
from streams.kafka.produce import OutRecord, produce_all
from streams.patience import Patience
from streams.settings import Settings

log = structlog.get_logger(__name__)
REASON_CHARACTERS = 1000


def worker_name(only: str | None) -> str:
    """Return how a worker is called here: the same after a restart."""
    return socket.gethostname() + (f" --only {only}" if only else "")


@dataclass(slots=True)
class Refusing:
    """What one worker says of builds. `write` appends records to [controls] and returns when the broker has them."""

    worker: str
    known: Callable[[], Controls]
    write: Callable[[Iterable[tuple[bytes, bytes | None]]], None]
    now: Callable[[], datetime]
    patience: Patience
    _turn: asyncio.Lock = field(default_factory=asyncio.Lock)
    _said: set[bytes] = field(default_factory=set)

    async def say(self, batch: BatchRecord, reason: str) -> None:
        """Say that this worker can't host a build."""
        refusal = Control(
            kind="refused",
            at=self.now(),
            stage=f"batch:{batch.batch}",
            reason=reason[:REASON_CHARACTERS],
            by=self.worker,
            claim=batch.claim,
        )
        self._said.add(refusal.key)
        await self._tell(refusal.key, encode(refusal))

    async def take_back(self, batch: BatchRecord) -> None:
        """Say that it hosts the batch after all. Nothing is written where nothing was said."""
        key = f"refused/batch:{batch.batch}/{self.worker}".encode()
        if key in self._said or key in self.known().refusals:
            self._said.discard(key)
            await self._tell(key, None)

    async def _tell(self, key: bytes, value: bytes | None) -> None:
        async def send() -> None:
            try:
                await in_daemon_thread(lambda: self.write([(key, value)]), "telling what can't be hosted")
            except NotReachable as error:
                raise Unavailable(str(error)) from error

        async with self._turn:
            try:
                await self.patience.hold(send, "telling what can't be hosted")
            except Stopping:
                return
            except DocdeltaError as error:
                log.warning("can't tell which build is refused", reason=str(error))


def writer_of(settings: Settings) -> Callable[[Iterable[tuple[bytes, bytes | None]]], None]:
    """Return what appends records to an installation's [controls]."""

    def write(records: Iterable[tuple[bytes, bytes | None]]) -> None:
        produce_all(settings.kafka, [OutRecord(settings.topics.controls, key, value) for key, value in records])

    return write


def forget_refusals(controls: Controls, batch: str, write: Callable[[Iterable[tuple[bytes, bytes | None]]], None]) -> None:
    """Take back all that was said of a batch that goes."""
    said = [(key, None) for key, refusal in controls.refusals.items() if refusal.stage == f"batch:{batch}"]
    if said:
        write(said)
