"""Member: one consumer group's part of a worker for one partition: its runners, its table, its agents, until it dies."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from faust.types import TP

from streams.agents.chunk_document import ChunkerAgent
from streams.agents.index_changes import IndexerAgent, Lender
from streams.agents.manifests import Manifests
from streams.agents.order import Order
from streams.agents.parse_document import ParserAgent
from streams.agents.recheck import Place, amiss, recheck, recheck_held, recheck_seen
from streams.agents.refusals import Outbox
from streams.controls.counts import Counts
from streams.controls.release import WAITED, waited_in
from streams.errors import Stopping
from streams.faustio.batch_runner import BatchRunner
from streams.faustio.continuity import OffsetContinuity
from streams.faustio.keyed_runner import KeyedRunner
from streams.feeder_app import FeederRunner
from streams.lanes.feeder import Feeder
from streams.lanes.mark import HEADER
from streams.lanes.passed import Chases, Offsets
from streams.lanes.precedence import BULK_YIELDS_SECONDS, Lanes, Precedence, came_live
from streams.patience import Patience
from streams.ports import InRecord
from streams.steps.settle_change import HeldMark
from tests.crash.simulation import documents
from tests.crash.simulation.broker import SimulatedBroker
from tests.crash.simulation.loop import SimulatedLoop
from tests.crash.simulation.ports import Embedder, IndexPort, Log, Table, fetch, order_of, parse_of, short
from tests.crash.simulation.runners import Intake, SimulatedApp
from tests.crash.simulation.world import ALIAS, BATCHES, FEEDER, NAMES, PARSER, Index, Operation, World

if TYPE_CHECKING:
    from tests.crash.simulation.operators import Operator

Note = Callable[[Any, str], None]


@dataclass(frozen=True)
class Parts:
    """What a simulation is made of: the real agents over faithful ports. A mutation is another part."""

    parser: type[ParserAgent] = ParserAgent
    chunker: type[ChunkerAgent] = ChunkerAgent
    indexer: type[IndexerAgent] = IndexerAgent
    keyed: type[KeyedRunner] = KeyedRunner
    grouped: type[BatchRunner] = BatchRunner
    feeder: type[Feeder] = Feeder
    log: type[Log] | None = None
    table: type[Table] | None = None
    index: type[Index] = Index
    operator: type[Operator] | None = None
    broker: type[SimulatedBroker] = SimulatedBroker
    rechecks: bool = True
    knows_lost_state: bool = True
    begins_empty: Callable[[Member], bool] = lambda member: member.begins_empty
    leaves_trace: bool = True
    builds_from_the_beginning: bool = True
    waits_for_the_build: bool = True
    order: Callable[[Member], Order | None] = lambda member: order_of(member)


@dataclass(frozen=True)
class ReadHeld:
    """streams.agents.recheck.HeldLog."""

    member: Member

    async def amiss(self, marks: Mapping[bytes, HeldMark]) -> Mapping[bytes, Place | None]:
        found: Mapping[bytes, Place | None] = await self._read(lambda: amiss(self.member.world.records(NAMES.held), marks))
        return found

    async def at(self, place: Place) -> InRecord | None:
        number, offset = place
        found: InRecord | None = await self._read(lambda: self.member.world.logs[NAMES.held, number][offset])
        return found

    async def _read(self, read: Callable[[], Any]) -> Any:
        member, what = self.member, f"read {NAMES.held} again"
        return await member.outbox("parser").patience.hold(lambda: member.perform("read", what, read), what)


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
    runners: list[Intake] = field(default_factory=list)
    tasks: set[asyncio.Task[None]] = field(default_factory=set)
    stopping: asyncio.Event = field(default_factory=asyncio.Event)
    manifests: Manifests = field(init=False)
    in_grace: bool = False
    """A predecessor may still be at work: commits are held (streams/agents/recheck.py)."""
    paused: bool = False
    chases: Chases = field(default_factory=Chases)
    looked_at: dict[int, Offsets] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.table = self.world.recovered_table(self.group, self.partition)
        table = (self.parts.table or Table)(self)
        self._app, self._lanes = SimulatedApp(self), Lanes()
        self.manifests = Manifests(table)
        if self.group == FEEDER:
            self._feed()
            return
        if self.group == PARSER:
            order = self.parts.order(self)
            parse = parse_of(self)
            parser = self.parts.parser(self.outbox("parser"), table, parse, fetch, 1_000_000, poison_attempts=2, order=order)
            self.runners = [self._one_by_one(NAMES.documents, parser.handle)]
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
        self.runners = [self._one_by_one(NAMES.parsed, self.chunker.handle), self._by_groups(batch.changes, self.indexer.handle)]

    def _one_by_one(self, topic: str, handle: Callable[[InRecord], Awaitable[None]]) -> Intake:
        """Return a runner of a record a call, with the precedence of live work as the apps have it."""
        precedence = Precedence(self._lanes)

        async def handle_in_turn(record: InRecord) -> None:
            async with precedence.turn(record, self.stopping):
                await handle(record)

        return Intake(self, topic, self.parts.keyed(self._app, topic, handle_in_turn, in_flight=6))

    def _by_groups(self, topic: str, handle: Callable[[Sequence[InRecord]], Awaitable[None]]) -> Intake:
        """Return a runner of a group a call, as streams/batch_app.py has it. Nothing of its topic may be skipped."""

        async def handle_in_turn(records: Sequence[InRecord]) -> None:
            if all(came_live(record) for record in records):
                with self._lanes.busy():
                    await handle(records)
                return
            async with self._lanes.yielding(BULK_YIELDS_SECONDS):
                await handle(records)

        place = TP(topic, self.partition)
        self._app.consumer._committed_offset[place] = self.world.committed[self.group, topic, self.partition]
        runner = self.parts.grouped(
            self._app, topic, handle_in_turn, 4, 0.05, continuity=OffsetContinuity(), at_once=2, goes_first=came_live
        )
        return Intake(self, topic, runner)

    def _feed(self) -> None:
        """Be a feeder: [bulk] to [documents]."""
        world = self.world

        async def forward(record: InRecord, mark: bytes) -> None:
            headers = {**record.headers, HEADER: mark, WAITED: waited_in(record)}
            what = f"publish {NAMES.documents}, from {record.topic}@{record.offset}: {short(record.value or b'')}"
            await self.perform("publish", what, lambda: world.append(NAMES.documents, record.key, record.value, headers))

        def served() -> str | None:
            batch = world.ledger.served(ALIAS)
            return None if batch is None else batch.batch

        name = f"{self.generation:016x}"
        self.feeder = self.parts.feeder(name, self.outbox("parser"), forward, served, self.loop.time)
        self.feeder.listening = True
        runner = FeederRunner(self._app, NAMES.bulk, self.feeder.handle, 6, self.feeder.turn_away)
        self.runners = [Intake(self, NAMES.bulk, runner)]
        self.outcomes_heard = world.outcomes

    def hear(self) -> None:
        """Tell the feeder of the outcomes that came since it heard of some. It begins with those that come."""
        before, self.outcomes_heard = self.outcomes_heard, self.world.outcomes
        for place, known in before.items():
            for record in self.world.logs[place][known:]:
                self.feeder.heard(record)

    @property
    def stages(self) -> dict[int, Offsets]:
        """Return how far the stages behind the feeder are."""
        batch, world = self.world.served, self.world
        stages = (PARSER, NAMES.documents), (batch.name, NAMES.parsed), (batch.name, batch.changes)
        return {
            number: Offsets(*((world.committed[group, topic, number], len(world.logs[topic, number])) for group, topic in stages))
            for number in range(world.partitions)
        }

    def chase(self) -> None:
        """Have the feeder forget what is through without an outcome (streams/lanes/passed.py)."""
        self.looked_at = self.stages
        self.feeder.through(self.chases.look(self.feeder.overdue(0.0), self.looked_at))

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
        batch = "" if stage == "parser" else self.group
        return Outbox((self.parts.log or Log)(self), NAMES, patience, self.world.now, stage, batch)

    def _lender(self) -> Lender | None:
        served = self.world.ledger.served(ALIAS)
        return None if served is None or served.batch == self.group else Lender(served.collection, served.policy_fingerprint)

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
        for intake in self.runners:
            intake.die()

    def give_up(self) -> None:
        """Begin nothing more, and let what is in work end or stop waiting (streams/faustio/app.py: `drain`)."""
        self.state = "draining"
        for intake in self.runners:
            intake.runner.close()
        self.stopping.set()

    def pause(self) -> None:
        """Begin nothing more until the re-check is through."""
        self.paused = True
        for intake in self.runners:
            intake.runner.hold()

    @property
    def is_closed(self) -> bool:
        """True when no record is handed out."""
        return self.stopping.is_set() or self.paused

    def recheck(self) -> None:
        """Do over what a predecessor may have undone."""

        async def work() -> None:
            try:
                await self._recheck()
            except Stopping:
                return
            self.in_grace = self.paused = False
            for intake in self.runners:
                intake.handled.clear()
                if self.state != "draining":
                    intake.runner.reopen()

        self.start(work())

    async def _recheck(self) -> None:
        handled = {runner.topic: runner.handled for runner in self.runners}
        keys = [record.key for records in handled.values() for record in records if record.key is not None]
        if self.group == PARSER:
            outbox, table = self.outbox("parser"), Table(self)
            await recheck_seen(table, outbox.patience, keys)
            await recheck_held(outbox, table, Counts(3600), self.partition, keys, ReadHeld(self), order_of(self).say)
        else:
            await recheck(self.indexer, self.manifests, keys, handled[BATCHES[self.group].changes])

    @property
    def idle(self) -> bool:
        """True when no handler is at work."""
        return not self.tasks and not any(intake.runner.in_flight for intake in self.runners)
