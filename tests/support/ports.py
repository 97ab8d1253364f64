"""In-memory ports for the agents: a log, a table, a clock. Plain and complete, not mocks."""

from __future__ import annotations

import asyncio
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta

from streams.controls.state import Controls
from streams.errors import PoisonRecord
from streams.patience import Patience
from streams.ports import NO_HEADERS, InRecord
from streams.topics import MAX_RECORD_BYTES


@dataclass
class MemoryLog:
    """Topics as lists of records of one partition."""

    topics: dict[str, list[InRecord]] = field(default_factory=lambda: defaultdict(list))

    async def publish(self, topic: str, key: bytes, value: bytes | None, headers: Mapping[str, bytes] = NO_HEADERS) -> None:
        if value is not None and len(value) > MAX_RECORD_BYTES:
            raise PoisonRecord("record too large", topic=topic)
        await asyncio.sleep(0)
        self.topics[topic].append(InRecord(topic, 0, len(self.topics[topic]), key, value, headers=headers))

    def trace_id(self, key: bytes) -> str:
        return ""

    def lane(self, key: bytes) -> str:
        return "live"


@dataclass
class MemoryTable:
    """A table whose changelog is always confirmed."""

    values: dict[bytes, bytes] = field(default_factory=dict)

    def get(self, key: bytes) -> bytes | None:
        return self.values.get(key)

    async def put(self, key: bytes, value: bytes) -> None:
        assert value, "table values must be truthy"
        await asyncio.sleep(0)
        self.values[key] = value


@dataclass
class MemoryView:
    """[controls] as one worker knows it: what stood in the log when it last looked."""

    log: MemoryLog
    topic: str
    now: Controls = field(default_factory=Controls)
    position: int = 0

    def look(self) -> None:
        """Take what came since."""
        for record in self.log.topics[self.topic][self.position :]:
            self.now.apply(record)
        self.position = len(self.log.topics[self.topic])

    topic_id: str = ""
    """What the broker would say of [documents], asked for when it matters."""

    async def know(self, release: str) -> None:
        self.look()

    async def know_topics(self) -> None:
        self.now.topic_id = self.topic_id


@dataclass
class SteppingClock:
    """A clock that moves a millisecond every time it is read."""

    moment: datetime = datetime(2031, 1, 1, tzinfo=UTC)

    def __call__(self) -> datetime:
        self.moment += timedelta(milliseconds=1)
        return self.moment


def impatient() -> Patience:
    """Return a patience whose waits are microseconds."""
    return Patience(first=1e-6, longest=1e-5, dice=lambda: 0.5)


def records(topic: str, pairs: Sequence[tuple[bytes | None, bytes | None]]) -> list[InRecord]:
    """Return records of one partition, offsets from 0."""
    return [InRecord(topic, 0, offset, key, value) for offset, (key, value) in enumerate(pairs)]
