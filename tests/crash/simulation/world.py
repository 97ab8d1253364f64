"""World: what outlives every worker: the broker's logs, offsets and changelogs, the index, and what is under way to them."""

from __future__ import annotations

import asyncio
import itertools
from collections import defaultdict
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from functools import lru_cache
from typing import Any

from chunking.policy import ChunkPolicy
from schemas.batch import LIVE_STATES
from schemas.codec import encode
from schemas.document_change import AGAIN, FORGET
from streams.batches.ledger import Ledger
from streams.batches.record import batch_record
from streams.errors import InvariantBroken, NotPrepared
from streams.index.points import patch_of
from streams.kafka.partitioner import partition_of
from streams.ports import IndexPlan, InRecord, StoredPoint, Vector
from streams.topics import TopicNames
from tests.crash.simulation.documents import EPOCH, paired_policy, policy

NAMES = TopicNames("sim")
ALIAS = "sim"
IN_ONE = {NAMES.batches, NAMES.controls, NAMES.letter_index}
"""Topics of one partition."""
PARSER = "parser"
"""The parser's consumer group. That of a batch has its name."""
FEEDER = "feeder"
"""The consumer group that feeds [documents] from [bulk]."""


@dataclass(eq=False)
class SimulatedBatch:
    """A batch: its name is that of its collection and of its consumer group, too."""

    policy: ChunkPolicy
    name: str = field(init=False)
    changes: str = field(init=False)

    def __post_init__(self) -> None:
        self.name = self.policy.batch_id
        self.changes = NAMES.changes(self.name)


BLUE, GREEN = SimulatedBatch(policy()), SimulatedBatch(paired_policy())
"""The batch that is served at first, and the one that a rollout builds: it cuts otherwise."""
BATCHES = {batch.name: batch for batch in (BLUE, GREEN)}

_EPOCH_SECONDS = EPOCH.timestamp()


@lru_cache(maxsize=64)
def _partition_of(key: bytes, partitions: int) -> int:
    return partition_of(key, partitions)


_FIRST = encode(batch_record(BLUE.policy, "blue", "active", ALIAS, EPOCH))


@dataclass(eq=False, slots=True)
class Operation:
    """A port's call under way. `steps` happen one by one, each at once and for good; then the answer goes back."""

    owner: Any
    kind: str
    what: str
    steps: list[Callable[[], Any]]
    answer: asyncio.Future[Any]
    done: int = 0
    result: Any = None
    may_begin: Callable[[], bool] = lambda: True
    """False while it waits for something else to happen first."""

    def advance(self) -> None:
        """Do the next step."""
        self.result = self.steps[self.done]()
        self.done += 1

    @property
    def complete(self) -> bool:
        """True when only the answer is missing."""
        return self.done == len(self.steps)


class Index:
    """Points with the fences that streams/index writes with (DESIGN §4)."""

    def __init__(self) -> None:
        self.points: dict[str, tuple[dict[str, Any], Vector | None]] = {}
        self.before_delete: Callable[[IndexPlan, str], None] = lambda plan, chunk_id: None

    def steps(self, plan: IndexPlan) -> list[Callable[[], None]]:
        """Return a plan as single steps in its order. A batch of operations may end between any two of them."""
        steps: list[Callable[[], None]] = [self._upsert(plan, p.chunk_id, p.payload, p.vector) for p in plan.upserts]
        steps += [self._overwrite(plan, chunk_id, payload) for chunk_id, payload in plan.payloads]
        steps += [self._stamp(plan, chunk_id) for chunk_id in plan.stamps]
        steps += [self._delete(plan, chunk_id) for chunk_id in plan.deletes]
        return steps

    def of_document(self, tenant_id: str, document_id: str) -> list[StoredPoint]:
        """Return a document's points by order key."""
        mine = [
            StoredPoint(chunk_id, dict(payload))
            for chunk_id, (payload, _) in self.points.items()
            if payload["tenant_id"] == tenant_id and payload["document_id"] == document_id
        ]
        return sorted(mine, key=lambda point: int(point.payload["order_key"]))

    def _newer(self, chunk_id: str, revision: int) -> bool:
        return chunk_id in self.points and self.points[chunk_id][0]["revision"] > revision

    def _upsert(self, plan: IndexPlan, chunk_id: str, payload: Mapping[str, Any], vector: Vector | None) -> Callable[[], None]:
        def step() -> None:
            if not self._newer(chunk_id, plan.revision):
                self.points[chunk_id] = (dict(payload), vector)

        return step

    def _overwrite(self, plan: IndexPlan, chunk_id: str, payload: Mapping[str, Any]) -> Callable[[], None]:
        seen = plan.seen.get(chunk_id)
        patch = patch_of(seen, payload)

        def step() -> None:
            if chunk_id in self.points and not self._newer(chunk_id, plan.revision):
                self.points[chunk_id] = (dict(payload), self.points[chunk_id][1])

        def set_fields() -> None:
            if seen is not None and self._as_seen(chunk_id, seen):
                self.points[chunk_id][0].update(patch or {})

        return step if patch is None else set_fields

    def _as_seen(self, chunk_id: str, seen: Mapping[str, Any]) -> bool:
        return chunk_id in self.points and self.points[chunk_id][0]["revision"] == seen["revision"]

    def _stamp(self, plan: IndexPlan, chunk_id: str) -> Callable[[], None]:
        def step() -> None:
            if chunk_id in self.points and not self._newer(chunk_id, plan.revision):
                self.points[chunk_id][0]["revision"] = plan.revision

        return step

    def _delete(self, plan: IndexPlan, chunk_id: str) -> Callable[[], None]:
        def step() -> None:
            self.before_delete(plan, chunk_id)
            self.points.pop(chunk_id, None)  # by id alone, as streams/index deletes

        return step


@dataclass
class World:
    """Everything that is not in a worker's memory."""

    partitions: int
    logs: dict[tuple[str, int], list[InRecord]] = field(default_factory=lambda: defaultdict(list))
    committed: dict[tuple[str, str, int], int] = field(default_factory=lambda: defaultdict(int))
    """(group, topic, partition) to the next offset to be read."""
    begun: set[tuple[str, int]] = field(default_factory=set)
    """(group, partition) that somebody began to work on: the trace that it leaves before its first record (faustio/handover.py)."""
    changelogs: dict[tuple[str, int], list[tuple[bytes, bytes]]] = field(default_factory=lambda: defaultdict(list))
    """(group, partition) to the writes of its table."""
    make_index: Callable[[], Index] = Index
    indexes: dict[str, Index] = field(default_factory=dict)
    """Collection to its points."""
    aliases: dict[str, str] = field(default_factory=lambda: {ALIAS: BLUE.name})
    ledger: Ledger = field(default_factory=Ledger)
    """[batches] as it amounts to."""
    pending: list[Operation] = field(default_factory=list)
    before_switch: Callable[[str], None] = lambda collection: None
    """Told of a collection before readers are moved to it."""
    at_receipt: Callable[[InRecord], None] = lambda record: None
    """Told of a receipt when the broker has it."""
    at_append: Callable[[InRecord], None] = lambda record: None
    """Told of every record before it is there."""
    launched: dict[bytes, int] = field(default_factory=dict)
    """Documents that were settled when the build began, and their records in [documents] then."""
    gone: set[tuple[str, int, int]] = field(default_factory=set)
    """(topic, partition, offset) of records that compaction has removed, or `docdelta gc`."""
    begins: dict[tuple[str, int], int] = field(default_factory=lambda: defaultdict(int))
    """(topic, partition) to the first offset that was not removed from its beginning."""
    before_trim: Callable[[str, int, int], None] = lambda topic, partition, offset: None
    """Told of what is removed from the beginning of a topic, before it is."""
    old_before: float = 0.0
    """What is older was settled long ago (seconds since 1970): compaction may come to it at any moment, whoever was away."""
    mended: bool = False
    """Whether what stood in the way of some documents and chunks (histories.py: those of which it is said) is out of it."""
    ticks: itertools.count[int] = field(default_factory=itertools.count)
    produced: list[InRecord] = field(default_factory=list)
    """Records that the history's events became, in their order."""

    def __post_init__(self) -> None:
        self.indexes = {name: self.make_index() for name in BATCHES}
        self.claim(b"first", _FIRST)

    def claim(self, key: bytes, value: bytes) -> None:
        """Put a record at the end of [batches]."""
        self.ledger.apply(self.append(NAMES.batches, key, value))

    def collection(self, name: str) -> Index:
        """Return a collection to read from."""
        if name not in self.indexes:
            raise NotPrepared(f"collection {name} does not exist")
        return self.indexes[name]

    def to_write(self, name: str) -> Index:
        """Return a collection to write to."""
        if name not in self.indexes:
            raise InvariantBroken("collection to write to does not exist", collection=name)
        return self.indexes[name]

    def drop(self, name: str) -> None:
        """Remove a collection."""
        if name in self.aliases.values():
            raise NotPrepared(f"collection {name} is served by an alias: switch the alias first")
        self.indexes.pop(name, None)

    def remove_group(self, name: str) -> None:
        """Remove a batch's topics, with the changelog of its table, and where its group stands."""
        for number in range(self.partitions):
            self.logs.pop((BATCHES[name].changes, number), None)
            self.changelogs.pop((name, number), None)
            for topic in (NAMES.parsed, BATCHES[name].changes):
                self.committed.pop((name, topic, number), None)

    def point(self, alias: str, collection: str) -> None:
        """Move readers to a collection, in one step."""
        self.before_switch(collection)
        self.aliases[alias] = collection

    @property
    def served(self) -> SimulatedBatch:
        """Return the batch that readers are to see."""
        batch = self.ledger.served(ALIAS)
        return BATCHES[batch.batch] if batch is not None else BLUE

    @property
    def live(self) -> list[SimulatedBatch]:
        """Return the batches that workers host, oldest first."""
        return [BATCHES[batch.batch] for batch in self.ledger.in_order() if batch.state in LIVE_STATES]

    def compact(self, topic: str, partition: int, end: int, looks_until: int | None = None) -> None:
        """Remove records before `end` that a later one of their key, before `looks_until`, makes needless; and null values that
        are the last of their key. Behind `end` that happens too where `docdelta gc` made a null value of something old."""
        log = self.logs[topic, partition]
        newest = {record.key: record.offset for record in log[:looks_until]}
        self.gone |= {(topic, partition, r.offset) for r in log[:end] if newest[r.key] != r.offset or r.value is None}
        if self.old_before:
            last = {record.key: record for record in log}
            forgotten = {key for key, record in last.items() if record.value is None and FORGET in record.headers}
            self.gone |= {(topic, partition, r.offset) for r in log if r.key in forgotten and r.timestamp < self.old_before}

    def remove_before(self, topic: str, partition: int, offset: int) -> None:
        """Remove the beginning of a partition for good."""
        self.before_trim(topic, partition, offset)
        self.gone |= {(topic, partition, number) for number in range(self.begins[topic, partition], offset)}
        self.begins[topic, partition] = max(offset, self.begins[topic, partition])

    def now(self) -> datetime:
        """Return a moment that is later than all before it."""
        return EPOCH + timedelta(milliseconds=next(self.ticks))

    def settled_documents(self) -> dict[bytes, int]:
        """Return the keys whose records the parser is past, and how many there are."""
        counts: dict[bytes, int] = defaultdict(int)
        waiting = set()
        for record in self.records(NAMES.documents):
            counts[record.key or b""] += AGAIN not in record.headers and FORGET not in record.headers
            if record.offset >= self.committed[PARSER, NAMES.documents, record.partition]:
                waiting.add(record.key)
        return {key: count for key, count in counts.items() if key not in waiting}

    @property
    def outcomes(self) -> dict[tuple[str, int], int]:
        """Return how many receipts and dead letters there are, by topic and partition."""
        topics = (NAMES.receipts, NAMES.dead_letters)
        return {(topic, number): len(self.logs[topic, number]) for topic in topics for number in range(self.partitions)}

    def lag(self, group: str, topic: str) -> list[int]:
        """Return records that a group has not committed, by partition."""
        return [len(self.logs[topic, n]) - self.committed[group, topic, n] for n in range(self.partitions)]

    def partition_of(self, key: bytes | None) -> int:
        """Return the partition of a key, the same in every topic that documents pass."""
        return _partition_of(key or b"", self.partitions)

    def append(self, topic: str, key: bytes | None, value: bytes | None, headers: Mapping[str, bytes] | None = None) -> InRecord:
        """Put a record at the end of its log."""
        partition = 0 if topic in IN_ONE else self.partition_of(key)
        log = self.logs[topic, partition]
        record = InRecord(topic, partition, len(log), key, value, headers or {}, next(self.ticks) / 1000 + _EPOCH_SECONDS)
        self.at_append(record)
        log.append(record)
        if topic == NAMES.receipts:
            self.at_receipt(record)
        return record

    def records(self, topic: str) -> list[InRecord]:
        """Return all records of a topic, partition by partition."""
        return [record for partition in range(self.partitions) for record in self.logs[topic, partition]]

    def recovered_table(self, group: str, partition: int) -> dict[bytes, bytes]:
        """Return a table as its changelog tells it."""
        return dict(self.changelogs[group, partition])
