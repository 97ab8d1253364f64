"""Member: one consumer group's part of a worker for one partition: its runners, its table, its agents, until it dies."""

from __future__ import annotations

import asyncio
import itertools
from abc import ABC, abstractmethod
from collections import deque
from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Any, Protocol

from chunking.document import Document
from streams.agents.chunk_document import ChunkerAgent
from streams.agents.index_changes import IndexerAgent, Lender
from streams.agents.manifests import Manifests
from streams.agents.order import Order
from streams.agents.parse_document import ParserAgent
from streams.agents.recheck import recheck, recheck_seen
from streams.agents.refusals import Outbox
from streams.errors import Stopping
from streams.patience import Patience
from streams.ports import IndexPlan, InRecord, StoredPoint, Vector
from tests.crash.simulation import documents
from tests.crash.simulation.loop import SimulatedLoop
from tests.crash.simulation.world import ALIAS, BATCHES, NAMES, PARSER, Index, Operation, World

if TYPE_CHECKING:
    from tests.crash.simulation.operators import Operator

Note = Callable[[Any, str], None]


@dataclass(eq=False, slots=True)
class Slot:
    """A record in its place of the queue of its partition."""

    record: InRecord
    done: bool = False
    task: asyncio.Task[None] | None = None


@dataclass(frozen=True)
class Parts:
    """What a simulation is made of: the real agents over faithful ports. A mutation is another part."""

    parser: type[ParserAgent] = ParserAgent
    chunker: type[ChunkerAgent] = ChunkerAgent
    indexer: type[IndexerAgent] = IndexerAgent
    keyed: type[KeyedRunner] | None = None
    log: type[Log] | None = None
    table: type[Table] | None = None
    index: type[Index] = Index
    operator: type[Operator] | None = None
    rechecks: bool = True
    knows_lost_state: bool = True
    begins_empty: Callable[[Member], bool] = lambda member: member.begins_empty
    leaves_trace: bool = True
    builds_from_the_beginning: bool = True
    waits_for_the_build: bool = True
    order: Callable[[Member], Order | None] = lambda member: order_of(member)


class Caller(Protocol):
    """Whose operations they are."""

    world: World

    async def perform(self, kind: str, what: str, *steps: Callable[[], Any]) -> Any:
        """Hand an operation to the world and wait for its answer."""
        ...


@dataclass(eq=False)
class Member:
    """state: owner → (draining →) dead, or owner → zombie → dead. A zombie goes on as if nothing had happened, but can't commit."""

    world: World
    loop: SimulatedLoop
    group: str
    partition: int
    generation: int
    note: Note
    fail: Callable[[str], None]
    eager_store: bool
    parts: Parts
    state: str = "owner"
    table: dict[bytes, bytes] = field(default_factory=dict)
    runners: list[Runner] = field(default_factory=list)
    tasks: set[asyncio.Task[None]] = field(default_factory=set)
    ticks: Iterator[int] = field(default_factory=itertools.count)
    stopping: asyncio.Event = field(default_factory=asyncio.Event)
    manifests: Manifests = field(init=False)
    in_grace: bool = False
    """A predecessor may still be at work: commits are held (streams/agents/recheck.py)."""
    paused: bool = False

    def __post_init__(self) -> None:
        self.table = self.world.recovered_table(self.group, self.partition)
        table = (self.parts.table or Table)(self)
        keyed = self.parts.keyed or KeyedRunner
        self.manifests = Manifests(table)
        if self.group == PARSER:
            order = self.parts.order(self)
            parser = self.parts.parser(self.outbox("parser"), table, _parse, _fetch, 1_000_000, poison_attempts=2, order=order)
            self.runners = [keyed(self, NAMES.documents, parser.handle)]
            return
        embedder, index, counter, batch = Embedder(self), IndexPort(self), documents.token_counter(), BATCHES[self.group]
        self.chunker = self.parts.chunker(
            self.outbox("chunker"), self.manifests, index, batch.name, batch.policy, counter, embedder, poison_attempts=2
        )
        self.indexer = self.parts.indexer(
            self.outbox("indexer"), self.manifests, index, embedder, batch.name, self._lender, poison_attempts=2
        )
        if self.parts.knows_lost_state and not self.table and self.world.logs[batch.changes, self.partition]:
            self.chunker.compare_until[self.partition] = len(self.world.logs[NAMES.parsed, self.partition])
            self.indexer.compare_until[self.partition] = len(self.world.logs[batch.changes, self.partition])
        if self.parts.begins_empty(self):
            self.chunker.begun_empty.add(self.partition)
        if self.parts.leaves_trace:
            self.world.begun.add((self.group, self.partition))
        self.runners = [
            keyed(self, NAMES.parsed, self.chunker.handle),
            BatchRunner(self, batch.changes, self.indexer.handle),
        ]

    def __str__(self) -> str:
        return f"{self.group}/{self.partition} g{self.generation}{'' if self.state == 'owner' else ' ' + self.state}"

    @property
    def begins_empty(self) -> bool:
        """Whether there is nothing yet of its batch (streams/agents/lost_state.py: `look_for_nothing`)."""
        batch, world = BATCHES[self.group], self.world
        topics = (NAMES.parsed, batch.changes)
        planned = any(world.logs[batch.changes, number] for number in range(world.partitions))
        committed = any(world.committed[self.group, topic, number] for topic in topics for number in range(world.partitions))
        began = (self.group, self.partition) in world.begun
        return not (began or planned or committed or self.table or world.indexes[batch.name].points)

    def outbox(self, stage: Any) -> Outbox:
        """Return the way out of a stage."""
        patience = Patience(self.stopping, first=0.1, longest=1.0, dice=lambda: 0.5)
        return Outbox((self.parts.log or Log)(self), NAMES, patience, self._now, stage, "" if stage == "parser" else self.group)

    def _lender(self) -> Lender | None:
        served = self.world.ledger.served(ALIAS)
        return None if served is None or served.batch == self.group else Lender(served.collection, served.policy_fingerprint)

    def _now(self) -> datetime:
        return documents.EPOCH + timedelta(milliseconds=next(self.ticks))

    async def perform(self, kind: str, what: str, *steps: Callable[[], Any]) -> Any:
        """Hand an operation to the world and wait for its answer."""
        if self.state == "dead":
            raise asyncio.CancelledError
        operation = Operation(self, kind, what, list(steps), self.loop.create_future())
        self.world.pending.append(operation)
        return await operation.answer

    def start(self, work: Awaitable[None]) -> asyncio.Task[None]:
        """Run something in this member."""
        task: asyncio.Task[None] = self.loop.create_task(work)
        self.tasks.add(task)
        task.add_done_callback(self.tasks.discard)
        return task

    def die(self) -> None:
        """End at once, as after SIGKILL: nothing of it is heard any more."""
        self.state = "dead"
        for task in list(self.tasks):
            task.cancel()

    def recheck(self) -> None:
        """Do over what a predecessor may have undone."""

        async def work() -> None:
            try:
                await self._recheck()
            except Stopping:
                return
            self.in_grace = self.paused = False

        self.start(work())

    async def _recheck(self) -> None:
        handled = {runner.topic: runner.handled for runner in self.runners}
        keys = [record.key for records in handled.values() for record in records if record.key is not None]
        if self.group == PARSER:
            await recheck_seen(Table(self), self.outbox("parser").patience, keys)
        else:
            await recheck(self.indexer, self.manifests, keys, handled[BATCHES[self.group].changes])

    @property
    def idle(self) -> bool:
        """True when no handler is at work."""
        return not self.tasks


class Runner(ABC):
    """Both runners' acknowledgement: in offset order (streams/faustio/runner.py)."""

    def __init__(self, member: Member, topic: str, handle: Callable[[Any], Awaitable[None]]) -> None:
        self.member, self.topic, self.handle = member, topic, handle
        self.place = (member.group, topic, member.partition)
        self.position = member.world.committed[self.place]
        self.acked = self.began = self.position
        self.slots: deque[Slot] = deque()

    @property
    def log(self) -> list[InRecord]:
        return self.member.world.logs[self.topic, self.member.partition]

    @property
    def handled(self) -> list[InRecord]:
        """Return what was taken so far."""
        return [record for record in self.log[self.began : self.position] if self.is_there(record)]

    def is_there(self, record: InRecord) -> bool:
        """Return whether compaction has left a record."""
        return (record.topic, record.partition, record.offset) not in self.member.world.gone

    @property
    def can_deliver(self) -> bool:
        """True when there is a record to take, and room."""
        member = self.member
        while self.position < len(self.log) and not self.is_there(self.log[self.position]):
            self.position += 1
            if not self.slots:
                self.acked = self.position
        return self.position < len(self.log) and not member.stopping.is_set() and not member.paused and self._has_room()

    @abstractmethod
    def _has_room(self) -> bool:
        """Return whether another record may be taken."""

    @abstractmethod
    def deliver(self, most: int) -> None:
        """Take records and start their handler."""

    def _take(self) -> Slot:
        slot = Slot(self.log[self.position])
        self.position += 1
        self.slots.append(slot)
        return slot

    async def _work(self, slots: Sequence[Slot], argument: Any) -> None:
        try:
            await self.handle(argument)
        except Stopping:
            return
        except Exception as error:  # noqa: BLE001  (whatever leaves an agent is a finding)
            self.member.fail(f"{self.member} {self.topic}: {type(error).__name__} left the agent: {error}")
            return
        for slot in slots:
            slot.done = True
        if self.member.state != "dead":
            self.acknowledge()

    def acknowledge(self) -> None:
        """Pass every record up to the first that is not done."""
        while self.slots and self.slots[0].done:
            self.acked = self.slots.popleft().record.offset + 1


class KeyedRunner(Runner):
    """Keys at once, one at a time per key."""

    def __init__(self, member: Member, topic: str, handle: Callable[[Any], Awaitable[None]]) -> None:
        super().__init__(member, topic, handle)
        self.tails: dict[bytes, Slot] = {}

    def _has_room(self) -> bool:
        return len(self.slots) < 6

    def deliver(self, most: int) -> None:
        slot = self._take()
        self.member.note(self.member, f"takes {self.topic}@{slot.record.offset}")
        before = self.tails.get(slot.record.key) if slot.record.key is not None else None
        slot.task = self.member.start(self._in_turn(slot, before))
        if slot.record.key is not None:
            self.tails[slot.record.key] = slot

    async def _in_turn(self, slot: Slot, before: Slot | None) -> None:
        if before is not None and before.task is not None:
            await asyncio.wait([before.task])
            if not before.done:
                return
        await self._work([slot], slot.record)


class BatchRunner(Runner):
    """Groups, two at a time that share no key, acknowledged as a whole."""

    def __init__(self, member: Member, topic: str, handle: Callable[[Any], Awaitable[None]]) -> None:
        super().__init__(member, topic, handle)
        self.groups: list[tuple[asyncio.Task[None], set[bytes | None]]] = []

    def _has_room(self) -> bool:
        self.groups = [(task, keys) for task, keys in self.groups if not task.done()]
        return len(self.groups) < 2 and self._is_free()

    def _is_free(self) -> bool:
        return not any(self.log[self.position].key in keys for _, keys in self.groups)

    def deliver(self, most: int) -> None:
        slots = []
        while len(slots) < most and self.position < len(self.log) and self._is_free():
            slots.append(self._take())
        self.member.note(self.member, f"takes {self.topic}@{slots[0].record.offset}..{slots[-1].record.offset}")
        task = self.member.start(self._work(slots, [slot.record for slot in slots]))
        self.groups.append((task, {slot.record.key for slot in slots}))


def order_of(member: Member) -> Order:
    """Return the parser's way to say the newest event of a document again."""
    world = member.world

    async def recall(late: InRecord, offset: int) -> InRecord | None:
        def read() -> InRecord | None:
            there = (late.topic, late.partition, offset) not in world.gone
            return world.logs[late.topic, late.partition][offset] if there else None

        found: InRecord | None = await member.perform("read", f"read {late.topic}@{offset} again", read)
        return found

    async def say(late: InRecord, value: bytes, headers: Mapping[str, bytes]) -> None:
        await member.perform(
            "publish",
            f"publish {late.topic} again, behind @{late.offset}: {_short(value)}",
            lambda: world.append(late.topic, late.key, value, headers),
        )

    return Order(recall, say)


class Log:
    """streams.ports.Log"""

    def __init__(self, member: Member) -> None:
        self._member = member

    async def publish(self, topic: str, key: bytes, value: bytes) -> None:
        await self._member.perform(
            "publish", f"publish {topic} {_short(value)}", lambda: self._member.world.append(topic, key, value)
        )

    def trace_id(self, key: bytes) -> str:
        return ""

    def lane(self, key: bytes) -> str:
        return "live"


class Table:
    """streams.ports.Table"""

    def __init__(self, member: Member) -> None:
        self._member = member

    def get(self, key: bytes) -> bytes | None:
        return self._member.table.get(key)

    async def put(self, key: bytes, value: bytes) -> None:
        assert value, "table values must be truthy"
        member = self._member
        if member.eager_store:
            member.table[key] = value
        changelog = member.world.changelogs[member.group, member.partition]
        await member.perform("put", f"changelog {key.decode()} {_short(value)}", lambda: changelog.append((key, value)))
        member.table[key] = value


class IndexPort:
    """What agents and commands use of streams.ports.VectorIndex."""

    def __init__(self, caller: Caller) -> None:
        self._caller = caller
        self._world = caller.world

    async def retrieve(self, collection: str, chunk_ids: Sequence[str], with_vectors: bool = False) -> dict[str, StoredPoint]:
        def read() -> dict[str, StoredPoint]:
            points = self._world.indexes[collection].points
            found = {chunk_id: points[chunk_id] for chunk_id in chunk_ids if chunk_id in points}
            return {
                chunk_id: StoredPoint(chunk_id, dict(payload), vector if with_vectors else None)
                for chunk_id, (payload, vector) in found.items()
            }

        result: dict[str, StoredPoint] = await self._caller.perform("read", f"retrieve {len(chunk_ids)} points", read)
        return result

    async def document_points(self, collection: str, tenant_id: str, document_id: str) -> list[StoredPoint]:
        index = self._world.indexes[collection]
        result: list[StoredPoint] = await self._caller.perform(
            "read", f"list {tenant_id}/{document_id}", lambda: index.of_document(tenant_id, document_id)
        )
        return result

    async def apply(self, collection: str, plan: IndexPlan) -> None:
        counts = f"+{len(plan.upserts)} ~{len(plan.payloads)} ={len(plan.stamps)} -{len(plan.deletes)}"
        what = f"apply {plan.tenant_id}/{plan.document_id} r{plan.revision} {counts}"
        await self._caller.perform("apply", what, *self._world.indexes[collection].steps(plan))

    async def alias_target(self, alias: str) -> str | None:
        result: str | None = await self._caller.perform("read", f"read alias {alias}", lambda: self._world.aliases.get(alias))
        return result

    async def set_alias(self, alias: str, collection: str) -> None:
        await self._caller.perform("alias", f"point {alias} at {collection}", lambda: self._world.point(alias, collection))

    def __getattr__(self, name: str) -> Any:
        raise AssertionError(f"nobody here uses index.{name}")


class Embedder:
    """streams.ports.Embedder"""

    model, dimensions, max_tokens = "simulated", documents.DIMENSIONS, None

    def __init__(self, member: Member) -> None:
        self._member = member

    def count_tokens(self, text: str) -> int:
        return len(text)

    async def embed(self, texts: Sequence[str]) -> list[Vector]:
        assert all(text.strip() for text in texts), "blank text for the embedder"
        asked = list(texts)
        vectors: list[Vector] = await self._member.perform("embed", f"embed {asked}", lambda: documents.embed(asked))
        return vectors


async def _parse(
    data: bytes | str, media_type: str, *, title: str, language: str, kind: str, labels: Sequence[str], place: str
) -> Document:
    assert isinstance(data, str)
    return documents.parse(data, title)


async def _fetch(reference: str, limit: int) -> bytes:
    raise AssertionError("no references here")


def _short(value: bytes) -> str:
    return value[:160].decode("utf-8", "replace")
