"""Broker: what the commands that repair and forget need of Kafka and of a clock.

It is passed in, so that their order of effects can be tried without either: `tests/crash/simulation` stops a command at each call.
Each call is one that a command may die at; `write` may then have written any part of its records.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Protocol

from streams.kafka.offsets import PartitionLag, end_offsets, group_lag
from streams.kafka.produce import OutRecord, produce_all
from streams.kafka.read import read_partitions
from streams.kafka.trim import can_trim, delete_before
from streams.ports import InRecord
from streams.settings import KafkaSettings


class Broker(Protocol):
    """Called by commands and, for [letter-index], every few seconds by workers. All may be repeated; NotReachable and its like."""

    @property
    def can_trim(self) -> bool:
        """Whether records can be removed at all."""
        ...

    def ends(self, topic: str) -> dict[int, int]:
        """Return the offset of the next record, by partition. NotPrepared: no such topic."""
        ...

    def places(self, group: str, topic: str) -> list[PartitionLag]:
        """Return how far a group is in each partition of a topic, and where that begins and ends."""
        ...

    def read(self, topic: str, ends: Mapping[int, int], begins: Mapping[int, int] | None = None) -> Iterator[InRecord]:
        """Yield the records of some partitions from `begins` (or their beginning) up to, not including, `ends`."""
        ...

    def write(self, records: Iterable[OutRecord], on_progress: Callable[[int], None] | None = None) -> int:
        """Write all records in order (per key); return how many the broker confirmed, which is all."""
        ...

    def delete_before(self, topic: str, offsets: Mapping[int, int]) -> None:
        """Remove the records of each partition that lie before its offset. Only where it `can_trim`."""
        ...

    def now(self) -> datetime:
        """Return the present moment, UTC."""
        ...


@dataclass(frozen=True, slots=True)
class KafkaBroker:
    """The broker of these settings, and this machine's clock."""

    settings: KafkaSettings

    @property
    def can_trim(self) -> bool:
        return can_trim(self.settings)

    def ends(self, topic: str) -> dict[int, int]:
        return {partition: end for (_, partition), end in end_offsets(self.settings, [topic]).items()}

    def places(self, group: str, topic: str) -> list[PartitionLag]:
        return group_lag(self.settings, group, [topic])

    def read(self, topic: str, ends: Mapping[int, int], begins: Mapping[int, int] | None = None) -> Iterator[InRecord]:
        return read_partitions(self.settings, topic, ends, begins)

    def write(self, records: Iterable[OutRecord], on_progress: Callable[[int], None] | None = None) -> int:
        return produce_all(self.settings, records, on_progress)

    def delete_before(self, topic: str, offsets: Mapping[int, int]) -> None:
        delete_before(self.settings, topic, offsets)

    def now(self) -> datetime:
        return datetime.now(UTC)
