"""Feeds: the edge of the page. Follows the topics, reads lag from the broker, asks the index, the workers and the gate.

Nothing here ends by an outage: what can't be had is shown as a trouble, and asked for again. Topics are taken in an order: batches,
controls and dead letters up to now before receipts, since a receipt is judged by what is known of them (streams/board/state.py).
"""

from __future__ import annotations

import asyncio
import time
from collections import deque
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from functools import partial

import structlog

from schemas.batch import LIVE_STATES, BatchRecord
from schemas.codec import UndecodableRecord, decode
from schemas.dead_letter import DeadLetter
from schemas.held_change import HeldChange
from schemas.letter_index import CLOSED
from schemas.receipt import Receipt
from schemas.record import split_document_key
from streams.batches.hosts import refusals_by_group
from streams.batches.ledger import Ledger
from streams.batches.site import site_of
from streams.board.lag_book import LagBook
from streams.board.scrape import AskWorkers
from streams.board.state import BoardState
from streams.board.troubles import GateLine, GateVerdict, Outage, Surroundings
from streams.board.view import Section, view
from streams.board.workers import WorkerFacts
from streams.controls.state import Controls, pause_names
from streams.daemon import in_daemon_thread
from streams.errors import DocdeltaError, NotPrepared
from streams.kafka.members import group_members
from streams.kafka.read import Follower
from streams.lag import BUILDS, LagReader, Reading
from streams.ports import InRecord, VectorIndex
from streams.reading.waiting import Waiting, oldest_waiting
from streams.settings import Settings

log = structlog.get_logger(__name__)
LAG_SECONDS = 5.0
INDEX_SECONDS = 10.0
INDEX_PATIENCE = 8.0
WORKERS_SECONDS = 10.0
WORKERS_KEPT = 7
"""Readings of the workers that are kept: about a minute, to see what rises."""
GATE_SECONDS = 40.0
GATE_SHARE = 20
"""A gate that took n seconds is not asked again for 20 n: it reads manifests and points."""
AGAIN_SECONDS = 5.0
BREATH_RECORDS = 200
"""Records taken between two moments in which the page may answer."""

Take = Callable[[InRecord], None]


@dataclass(frozen=True, slots=True)
class _LagRead:
    reading: Reading
    oldest: Waiting | None
    members: Mapping[str, int]


@dataclass
class Feeds:
    """What is known of one installation, as long as `run` runs. `index` None: none can be asked from here."""

    settings: Settings
    index: VectorIndex | None
    ask_workers: AskWorkers
    clock: Callable[[], float] = time.time
    state: BoardState = field(default_factory=BoardState)
    ledger: Ledger = field(default_factory=Ledger)
    controls: Controls = field(default_factory=Controls)
    points: dict[str, int] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.book = LagBook(self.settings.topics)
        self._lag_reader = LagReader(self.settings, count_letters=False)
        self._broker: Outage | None = None
        self._index_away: Outage | None = None
        self._alias_target: str | None = None
        self._missing: dict[str, None] = {}
        self._caught_up: dict[str, asyncio.Event] = {}
        self._workers: deque[tuple[WorkerFacts, ...]] = deque(maxlen=WORKERS_KEPT)
        self._gates: dict[str, GateVerdict] = {}
        self._gate_cost: dict[str, float] = {}
        self._gate_lock = asyncio.Lock()

    def sections(self) -> dict[str, Section]:
        """Return what the page shows now."""
        return view(self.state, self.book, self.around(), self.points, self.clock())

    def around(self) -> Surroundings:
        """Return what is known beside the records."""
        breakers = self.controls.open_breakers()
        return Surroundings(
            broker=self._broker,
            index=self._index_away,
            missing=tuple(self._missing),
            caught_up=bool(self._caught_up) and all(event.is_set() for event in self._caught_up.values()),
            lag_at=self.book.at,
            grace_seconds=self.settings.handover_grace_seconds,
            groups=self.book.rows,
            tenants=self.book.tenants,
            alias_target=self._alias_target,
            workers=self._workers[-1] if self._workers else (),
            workers_before=self._workers[0] if len(self._workers) > 1 else (),
            gates=self._gates,
            breakers={each.tenant: (self.state.held_by.get(each.tenant, 0), each.since.timestamp()) for each in breakers},
            refused=refusals_by_group(self.ledger.in_order(), self.controls, self.settings.topics),
            paused=pause_names(self.controls),
        )

    async def run(self) -> None:
        """Feed until cancelled."""
        topics = self.settings.topics
        first = (topics.batches, topics.controls, topics.held, topics.letter_index, topics.dead_letters)
        takes = (self._batch, self.controls.apply, self._held, self._closing, self._letter)
        self._caught_up = {topic: asyncio.Event() for topic in (*first, topics.receipts)}
        async with asyncio.TaskGroup() as group:
            for topic, take in zip(first, takes, strict=True):
                group.create_task(self._follow(topic, take))
            group.create_task(self._every(LAG_SECONDS, self._read_lag))
            group.create_task(self._every(WORKERS_SECONDS, self._read_workers))
            if self.index is not None:
                group.create_task(self._every(INDEX_SECONDS, self._read_index))
                group.create_task(self._every(AGAIN_SECONDS, self._read_gates))
            for topic in first:
                await self._caught_up[topic].wait()
            group.create_task(self._follow(topics.receipts, self._receipt))

    # Topics

    async def _follow(self, topic: str, take: Take) -> None:
        """Take every record of a topic, for ever. A topic that is missing counts as read, and is looked for again."""
        while True:
            follower = Follower(self.settings.kafka, topic)
            try:
                await follower.start()
                self._missing.pop(topic, None)
                await self._take_all(follower, topic, take)
            except NotPrepared:
                self._missing[topic] = None
                self._caught_up[topic].set()
            except DocdeltaError as error:
                self._broker = self._broker or Outage(self.clock(), str(error))
            finally:
                await follower.stop()
            await asyncio.sleep(AGAIN_SECONDS)

    async def _take_all(self, follower: Follower, topic: str, take: Take) -> None:
        waiting = asyncio.create_task(follower.caught_up.wait())
        waiting.add_done_callback(lambda done: None if done.cancelled() else self._caught_up[topic].set())
        try:
            taken = 0
            async for record in follower:
                try:
                    take(record)
                except UndecodableRecord as error:  # of a later release: the others still count
                    place = {"topic": topic, "partition": record.partition, "offset": record.offset}
                    log.warning("record can't be read", **place, reason=str(error))
                taken += 1
                if taken % BREATH_RECORDS == 0:
                    await asyncio.sleep(0)
        finally:
            waiting.cancel()

    def _batch(self, record: InRecord) -> None:
        self.ledger.apply(record)
        self.state.take_batches(self.ledger.in_order(), self.settings.qdrant.alias)

    def _held(self, record: InRecord) -> None:
        try:
            tenant, document = split_document_key(record.key or b"")
        except ValueError:
            return
        self.state.take_held(tenant, document, decode(record.value, HeldChange) if record.value else None)

    def _closing(self, record: InRecord) -> None:
        key = (record.key or b"").decode("utf-8", "replace")
        if key.startswith(CLOSED) and record.value:
            self.state.close_letter(key.removeprefix(CLOSED))

    def _letter(self, record: InRecord) -> None:
        if record.value:
            self.state.take_letter(decode(record.value, DeadLetter), record.partition, record.offset)

    def _receipt(self, record: InRecord) -> None:
        if record.value:
            self.state.take_receipt(decode(record.value, Receipt), record.timestamp, self.clock())

    # Others

    async def _every(self, seconds: float, look: Callable[[], Awaitable[None]]) -> None:
        while True:
            await look()
            await asyncio.sleep(seconds)

    async def _read_lag(self) -> None:
        await self._caught_up[self.settings.topics.batches].wait()  # or groups would be missing
        batches = self.ledger.in_order()
        try:
            found = await in_daemon_thread(partial(self._lag, batches), "board reads lag")
        except DocdeltaError as error:
            self._broker = self._broker or Outage(self.clock(), str(error))
            return
        self._broker = None
        self.book.take(found.reading, found.oldest, found.members, batches, self.clock())

    def _lag(self, batches: list[BatchRecord]) -> _LagRead:
        reading = self._lag_reader.read(batches)
        waited_for = [group for group in reading.groups if group.lane != "build"]
        members = group_members(self.settings.kafka, [group.group for group in reading.groups])
        return _LagRead(reading, oldest_waiting(self.settings.kafka, waited_for), members)

    async def _read_index(self) -> None:
        assert self.index is not None
        await self._caught_up[self.settings.topics.batches].wait()
        try:
            async with asyncio.timeout(INDEX_PATIENCE):
                there = set(await self.index.collections())
                self._alias_target = await self.index.alias_target(self.settings.qdrant.alias) or ""
                wanted = [batch.collection for batch in self.ledger.in_order() if batch.state in LIVE_STATES]
                self.points = {name: await self.index.count(name) for name in wanted if name in there}
        except (DocdeltaError, TimeoutError) as error:
            said = str(error) or f"no answer within {INDEX_PATIENCE:.0f} s"
            self._index_away = self._index_away or Outage(self.clock(), said)
            return
        self._index_away = None

    async def _read_workers(self) -> None:
        self._workers.append(tuple(await self.ask_workers()))

    async def _read_gates(self) -> None:
        """Ask the gate about builds that are through, again as long as they wait for it, and not all the time."""
        for batch in self.ledger.in_order():
            if batch.state not in BUILDS:
                self._gates.pop(batch.batch, None)
                continue
            progress, last = self.book.progress.get(batch.batch), self._gates.get(batch.batch)
            through = progress is not None and progress.passed >= progress.whole
            rest = max(GATE_SECONDS, GATE_SHARE * self._gate_cost.get(batch.batch, 0.0))
            if through and (last is None or self.clock() - last.at > rest):
                await self.ask_gate(batch.batch)

    async def ask_gate(self, name: str) -> GateVerdict:
        """Hold a batch against the gate now. Raises NotPrepared where there is no such batch, or no index to ask."""
        if self.index is None:
            raise NotPrepared("no index can be asked from here: set qdrant.url")
        async with self._gate_lock:
            batch, began = self.ledger.batches.get(name), time.monotonic()
            if batch is None:
                raise NotPrepared(f"batch {name} does not exist")
            try:
                verdict = await site_of(self.settings, self.index).gate(batch, self.ledger, None)
                lines = tuple(GateLine(line.name, line.passed, line.figure, line.advice, line.waits) for line in verdict.lines)
                told = GateVerdict(self.clock(), lines)
            except DocdeltaError as error:
                told = GateVerdict(self.clock(), (), str(error))
            self._gates[name] = told
            self._gate_cost[name] = time.monotonic() - began
            return told
