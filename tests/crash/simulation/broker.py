"""SimulatedBroker: what commands need of Kafka (streams/repair/broker.py), over the world's logs. They may die at each call."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from datetime import datetime
from functools import partial

from streams.kafka.offsets import PartitionLag
from streams.kafka.produce import OutRecord
from streams.ports import InRecord
from tests.crash.simulation.blocking import Blocking
from tests.crash.simulation.world import IN_ONE, NAMES, PARSER, World

SEEN = NAMES.changelog(NAMES.parser_group, NAMES.seen_table)
GROUPS = {NAMES.parser_group: PARSER}


class SimulatedBroker:
    """streams.repair.broker.Broker. Writes land one by one, and may end between any two of them."""

    can_trim = True

    def __init__(self, world: World, thread: Blocking) -> None:
        self.world, self.thread = world, thread

    def ends(self, topic: str) -> dict[int, int]:
        ends: dict[int, int] = self.thread.call("read", f"ends of {topic}", lambda: self._ends(topic))
        return ends

    def places(self, group: str, topic: str) -> list[PartitionLag]:
        found: list[PartitionLag] = self.thread.call("read", f"{group} in {topic}", lambda: self._places(group, topic))
        return found

    def read(self, topic: str, ends: Mapping[int, int], begins: Mapping[int, int] | None = None) -> Iterator[InRecord]:
        spans = {partition: ((begins or {}).get(partition, 0), end) for partition, end in ends.items()}
        spans = {partition: span for partition, span in spans.items() if span[0] < span[1]}
        if not spans:
            return
        records: list[InRecord] = self.thread.call("read", f"read {topic} {spans}", lambda: self._records(topic, spans))
        yield from records

    def write(self, records: Iterable[OutRecord], on_progress: Callable[[int], None] | None = None) -> int:
        out = list(records)
        if out:
            said = ", ".join(_said(record) for record in out)
            self.thread.call("publish", f"sends {said}", *(partial(self.append, record) for record in out))
        return len(out)

    def delete_before(self, topic: str, offsets: Mapping[int, int]) -> None:
        if offsets:
            steps = [partial(self.world.remove_before, topic, number, offset) for number, offset in sorted(offsets.items())]
            self.thread.call("publish", f"removes {topic} before {dict(offsets)}", *steps)

    def now(self) -> datetime:
        return self.world.now()

    def append(self, record: OutRecord) -> None:
        """Put a record at the end of its log."""
        self.world.append(record.topic, record.key, record.value, record.headers)

    def _log(self, topic: str, partition: int) -> list[InRecord]:
        if topic == SEEN:
            rows = self.world.changelogs[PARSER, partition]
            return [InRecord(topic, partition, offset, key, value) for offset, (key, value) in enumerate(rows)]
        return self.world.logs[topic, partition]

    def _numbers(self, topic: str) -> range:
        return range(1 if topic in IN_ONE else self.world.partitions)

    def _ends(self, topic: str) -> dict[int, int]:
        return {number: len(self._log(topic, number)) for number in self._numbers(topic)}

    def _places(self, group: str, topic: str) -> list[PartitionLag]:
        begins, committed, name = self.world.begins, self.world.committed, GROUPS.get(group)
        return [
            PartitionLag(topic, number, begins[topic, number], committed[name, topic, number] if name else None, end)
            for number, end in self._ends(topic).items()
        ]

    def _records(self, topic: str, spans: Mapping[int, tuple[int, int]]) -> list[InRecord]:
        gone = self.world.gone
        found = (record for number, (begin, end) in spans.items() for record in self._log(topic, number)[begin:end])
        return [record for record in found if (record.topic, record.partition, record.offset) not in gone]


def _said(record: OutRecord) -> str:
    value = "null" if record.value is None else record.value[:120].decode("utf-8", "replace")
    return f"{record.topic} {(record.key or b'').decode('utf-8', 'replace')} {value}"
