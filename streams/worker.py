"""The worker: hosts the parser app and one batch app per live batch, started and stopped as [batches] says.

Several Faust apps share one event loop, one parse pool, one index connection, and one embedder per model. More workers on the same
topics share the partitions.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from datetime import UTC, datetime
from functools import lru_cache, partial

import structlog

from chunking.identity import CONTENT
from chunking.policy import PolicyError, load_policy
from chunking.tokens import counter
from schemas.batch import LIVE_STATES, BatchRecord
from schemas.codec import UndecodableRecord
from streams.agents.holding import Holding
from streams.agents.index_changes import Lender
from streams.audit.owned import OwnedManifests
from streams.audit.watch import Watch
from streams.batch_app import BatchParts, build_batch_app
from streams.batches.ledger import Ledger
from streams.batches.pace import Pace
from streams.batches.parser_versions import advice
from streams.batches.record import collection_spec, policy_of
from streams.canary import Canary
from streams.content_refs import ContentRefs
from streams.controls.following import Following
from streams.controls.refusing import Refusing, worker_name, writer_of
from streams.controls.watch import watch_controls
from streams.embedders import open_embedder
from streams.embedders.base import CheckedEmbedder
from streams.errors import InvariantBroken, NotPrepared, Unavailable, UsageError
from streams.faustio.app import SafeApp
from streams.faustio.lifecycle import OnCrash, start_app, stop_app
from streams.faustio.readiness import wait_ready
from streams.feeder_app import build_feeder_app
from streams.garbage import what_is_here_stays
from streams.index.qdrant import open_index
from streams.kafka.checks import require_as_planned
from streams.kafka.read import Follower
from streams.lag import watch_lag
from streams.lanes.listening import listen
from streams.lanes.precedence import LaneEmbedder, Lanes
from streams.parser_app import build_parser_app
from streams.patience import Patience
from streams.ports import Embedder, VectorIndex
from streams.probes import Probes
from streams.sandbox import ParsePool
from streams.settings import Settings
from streams.state_folder import make_folder, remove_folder, take_folder
from streams.topics import batch_topics, shared_topics
from streams.trim import Trimmer
from streams.vitals import RebalanceSensor, Vitals

log = structlog.get_logger(__name__)
PARSER = "parser"
FEEDER = "feeder"
"""Hosted wherever the parser is."""
READY_SECONDS = 600.0


def utc_now() -> datetime:
    """Return the present moment, UTC."""
    return datetime.now(UTC)


def wants(only: str | None) -> Callable[[str], bool]:
    """Return which apps a worker hosts: all, or with ``--only`` the parser or one batch. UsageError on another word."""
    if only is None:
        return lambda app: True
    name = only.removeprefix("batch:")
    if only != PARSER and (name == only or not name):
        raise UsageError(f"--only {only!r}: use parser or batch:ID")
    return lambda app: app == name


@dataclass(slots=True)
class _Hosted:
    """A batch app of this worker, and what is turned while it runs."""

    app: SafeApp
    pace: Pace = field(default_factory=Pace)
    watch: asyncio.Task[None] | None = None
    """Its continuous audit."""


class Worker:
    """All that one process runs. `start`, then `wait` until something stops it, then `stop`; not restarted.

    `index` may be shared with the caller (embedded mode serves searches from it); then the caller closes it.
    """

    def __init__(self, settings: Settings, only: str | None = None, index: VectorIndex | None = None) -> None:
        self._settings = settings
        self._wants = wants(only)
        self._only = only
        self._folder_lock: int | None = None
        self._shared_index = index
        self._index: VectorIndex | None = index
        self._pool: ParsePool | None = None
        self._embedders: dict[str, CheckedEmbedder] = {}
        self._apps: dict[str, SafeApp] = {}
        self._ledger = Ledger()
        self._ledger_moved = asyncio.Event()
        self._hosted: dict[str, _Hosted] = {}
        self._refused: dict[str, str] = {}
        """Builds that can't be hosted here, and the claim they were tried under: the batches that are served must go on."""
        self._lanes = Lanes()
        self._tasks: list[asyncio.Task[None]] = []
        self._progress = asyncio.Event()
        self._leave = asyncio.Event()
        self.failure: BaseException | None = None
        self._knows_batches = False
        self._following = Following(settings)
        self._refusing = Refusing(
            worker_name(only), lambda: self._following.now, writer_of(settings), utc_now, Patience(self._leave)
        )
        self._holding: Holding | None = None
        self._vitals = Vitals(lambda: self._apps, paused=self._is_paused)
        self._probes = Probes(self._vitals, self._expected, lambda: self.failure)

    async def start(self) -> None:
        """Check what must exist, start the parser app, and follow [batches]. Raises UsageError when something is missing."""
        settings = self._settings
        await asyncio.to_thread(require_as_planned, settings.kafka, shared_topics(settings.topics, settings.kafka.partitions))
        make_folder(settings.worker.state_dir)
        if settings.worker.state == "rocksdb":
            self._folder_lock = take_folder(settings.worker.state_dir, self._only or "all")
        if self._index is None:
            self._index = open_index(settings.qdrant)
        await self._know_controls()
        if self._wants(PARSER):
            self._pool = ParsePool(settings.parser)
            parser = settings.parser
            refs = ContentRefs(parser.ref_roots, parser.ref_hosts, parser.ref_patience_seconds)
            parser, self._holding = build_parser_app(settings, self._pool, refs, utc_now, self._following, self._lanes)
            self._host(PARSER, parser)
            app, feeder = build_feeder_app(settings, self._served_batch, utc_now)
            self._host(FEEDER, app)
            self._tasks.append(asyncio.create_task(self._guard(listen(feeder, settings))))
        self._tasks.append(asyncio.create_task(self._guard(self._follow_batches())))
        self._tasks.append(asyncio.create_task(self._guard(Trimmer(settings, lambda: self._hosted).run())))
        await self._start_probes()

    async def _know_controls(self) -> None:
        """Follow [controls], and return when all is known that was said before: no record may be taken without."""
        follower = await self._following.start()
        following = asyncio.create_task(self._guard(self._following.follow(follower)))
        self._tasks.append(following)
        known, leave = asyncio.ensure_future(follower.caught_up.wait()), asyncio.ensure_future(self._leave.wait())
        await asyncio.wait({known, leave}, return_when=asyncio.FIRST_COMPLETED)
        known.cancel()
        leave.cancel()

    async def _start_probes(self) -> None:
        """Serve metrics and health, and measure what they show."""
        worker = self._settings.worker
        self._tasks.append(asyncio.create_task(self._guard(self._vitals.watch())))
        if not worker.metrics_port or not await self._probes.start(worker.metrics_host, worker.metrics_port):
            return
        counts, owned = (self._holding.counts, self._holding.owned) if self._holding else (None, frozenset[int])
        watches = [
            watch_controls(self._following.now, counts, owned),
            watch_lag(self._settings, self._ledger.in_order, worker.lag_seconds),
        ]
        if worker.canary_tenant and self._index is not None:
            canary = Canary(self._settings, worker.canary_tenant, self._index, lambda: self._apps.get(PARSER))
            watches.append(canary.watch())
        self._tasks += [asyncio.create_task(self._guard(watch)) for watch in watches]

    async def metrics_url(self) -> str:
        """Return where metrics and health are served: on a free port of loopback where the settings name none."""
        if not self._probes.port:
            await self._probes.start("127.0.0.1", 0)
        return f"http://127.0.0.1:{self._probes.port}"

    def _is_paused(self, app: str) -> bool:
        return self._following.now.pause_of_stage(app if app == PARSER else f"batch:{app}") is not None

    def _expected(self) -> dict[str, SafeApp | None]:
        """Return what must be ready before this worker is: the parser app and that of each live batch, where wanted here."""
        live = [batch.batch for batch in self._ledger.in_order() if batch.state in LIVE_STATES]
        names = [name for name in (PARSER, FEEDER, *live) if self._wants(_part(name)) and name not in self._refused]
        expected: dict[str, SafeApp | None] = {name: self._apps.get(name) for name in names}
        return expected if self._knows_batches else {**expected, "of each live batch": None}

    async def ready(self, batch: str | None = None) -> None:
        """Return when the parser app (and the app of `batch`) take records. Raises what took the worker down instead."""
        for name in [name for name in (PARSER, FEEDER, batch) if name and self._wants(_part(name))]:
            while name not in self._apps and self.failure is None:
                self._progress.clear()
                await self._progress.wait()
            if self.failure is None and not await wait_ready(self._apps[name], READY_SECONDS) and self.failure is None:
                self._fail(NotPrepared(f"app {name} is not ready after {READY_SECONDS:.0f} s; its log lines above say why"))
        if self.failure is not None:
            raise self.failure

    async def wait(self) -> None:
        """Return when the worker is asked to leave or something took it down."""
        await self._leave.wait()

    def embedder(self, batch: BatchRecord) -> Embedder:
        """Return the embedder of a batch that this worker hosts (for searches in the same process)."""
        return self._embedders[policy_of(batch).embedding.spec]

    def leave(self) -> None:
        """Ask the worker to stop. Safe from a signal handler."""
        self._leave.set()

    async def stop(self) -> None:
        """Drain what is in work, commit, and release everything."""
        self._leave.set()
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        await self._probes.stop()
        drain = self._settings.worker.drain_seconds
        stopped = await asyncio.gather(*(stop_app(app, drain) for app in self._apps.values()), return_exceptions=True)
        if self.failure is None and not all(done is True for done in stopped):
            self.failure = Unavailable("the broker did not answer while stopping; what was not committed comes again")
        for embedder in self._embedders.values():
            embedder.close()
        if self._pool is not None:
            await self._pool.close()
        if self._index is not None and self._shared_index is None:
            await self._index.close()
        if self._folder_lock is not None:
            os.close(self._folder_lock)
            self._folder_lock = None

    def _host(self, name: str, app: SafeApp) -> None:
        """Run an app beside the others; if it goes down by itself, the worker goes down."""

        def crashed(_: SafeApp, reason: BaseException) -> None:
            log.error("app went down", app=name, reason=str(reason))
            batch = self._ledger.batches.get(name)
            if batch is not None and _is_build(batch) and name in self._hosted:
                self._refuse(batch, reason)  # the batches that are served go on
                self._tasks.append(asyncio.create_task(self._guard(self._stop_hosting(name))))
            else:
                self._fail(reason)

        self._apps[name] = app
        app.sensors.add(RebalanceSensor(name))
        self._progress.set()
        self._tasks.append(asyncio.create_task(self._guard(self._start_app(name, app, crashed))))

    async def _start_app(self, name: str, app: SafeApp, crashed: OnCrash) -> None:
        if await start_app(app, crashed, READY_SECONDS):
            what_is_here_stays()
            log.info("app ready", app=name)

    async def _guard(self, work: Awaitable[None]) -> None:
        try:
            await work
        except asyncio.CancelledError:
            raise
        except Exception as error:  # noqa: BLE001  whatever it is, the worker goes down with it
            log.error("worker failed", reason=str(error))
            self._fail(error)

    def _fail(self, error: BaseException) -> None:
        self.failure = self.failure or error
        self._progress.set()
        self._leave.set()

    async def _follow_batches(self) -> None:
        """Host batch apps as [batches] says, from where it stands now on: what a batch once was does not matter."""
        follower = Follower(self._settings.kafka, self._settings.topics.batches)
        await follower.start()
        reading = asyncio.create_task(self._guard(self._read_batches(follower)))
        try:
            await follower.caught_up.wait()
            self._tell_what_is_missing()
            self._knows_batches = True
            while True:
                self._ledger_moved.clear()
                for batch in self._ledger.in_order():
                    await self._settle(batch)
                await self._ledger_moved.wait()
        finally:
            reading.cancel()
            await asyncio.gather(reading, return_exceptions=True)
            await follower.stop()

    def _tell_what_is_missing(self) -> None:
        """Say in the log that this worker has nothing to do yet: it waits, since a batch may be named later."""
        live = [batch.batch for batch in self._ledger.in_order() if batch.state in LIVE_STATES]
        if not any(self._wants(name) for name in (PARSER, *live)):
            log.warning("no live batch is wanted here; waiting for one: docdelta status names them", live=live)
        elif not live:
            log.warning("no batch is live; nothing will be indexed: name one with docdelta init")

    async def _read_batches(self, follower: Follower) -> None:
        async for record in follower:
            try:
                self._ledger.apply(record)
            except UndecodableRecord as error:
                log.warning("batch record skipped", reason=str(error))
            self._ledger_moved.set()

    async def _settle(self, batch: BatchRecord) -> None:
        """Make this worker be as a batch's record says. Safe to repeat."""
        name = batch.batch
        hosted = self._hosted.get(name)
        if hosted is not None:
            hosted.pace.set(batch.build_rate if _is_build(batch) else None)
        if batch.state in LIVE_STATES:
            if hosted is None and self._wants(name) and self._refused.get(name) != batch.claim:
                await self._try_to_host(batch)
            elif hosted is not None and batch.state == "active":
                await self._point_first_alias(batch)
            return
        if hosted is not None:
            await self._stop_hosting(name)
            log.info("batch app stopped", batch=name, state=batch.state)
        if batch.state == "retired":
            folder = self._settings.worker.state_dir / self._settings.topics.batch_group(name)
            if await asyncio.to_thread(remove_folder, folder):
                log.info("local state of a retired batch removed", batch=name, folder=str(folder))

    async def _stop_hosting(self, name: str) -> None:
        hosted = self._hosted.pop(name, None)
        if hosted is not None and hosted.watch is not None:
            hosted.watch.cancel()
        app = self._apps.pop(name)
        await stop_app(app, self._settings.worker.drain_seconds)

    async def _try_to_host(self, batch: BatchRecord) -> None:
        """Start a batch's app. A build that can't be hosted here is left to others: it must not take the served ones down."""
        try:
            await self._start_batch(batch)
        except (UsageError, InvariantBroken, PolicyError) as error:
            if not _is_build(batch):
                raise
            log.error("build can't be hosted here", batch=batch.batch, reason=str(error))
            self._refuse(batch, error)
        else:
            self._tasks.append(asyncio.create_task(self._guard(self._refusing.take_back(batch))))

    def _refuse(self, batch: BatchRecord, reason: BaseException) -> None:
        """Leave a build to others until its record changes, and tell operators why."""
        self._refused[batch.batch] = batch.claim
        self._tasks.append(asyncio.create_task(self._guard(self._refusing.say(batch, str(reason) or repr(reason)))))

    async def _start_batch(self, batch: BatchRecord) -> None:
        settings = self._settings
        topics = batch_topics(settings.topics, batch.batch, settings.kafka.partitions)
        await asyncio.to_thread(require_as_planned, settings.kafka, topics)
        policy = policy_of(batch)
        if words := advice(batch):
            log.warning("parsers have changed", batch=batch.batch, reason=words)
        index = self._index
        assert index is not None
        spec = collection_spec(batch, policy)
        await Patience(self._leave).hold(lambda: index.ensure_collection(batch.collection, spec), "preparing the collection")
        if batch.state == "active":
            await self._point_first_alias(batch)
        if policy.embedding.spec not in self._embedders:
            self._embedders[policy.embedding.spec] = await asyncio.to_thread(open_embedder, settings.embedder, policy.embedding)
        pace = Pace(batch.build_rate if _is_build(batch) else None)

        def is_live() -> bool:
            return not _is_build(self._now_of(batch))

        parts = BatchParts(
            batch=batch,
            policy=policy,
            counter=counter(policy.limits.tokenizer),
            index=index,
            embedder=LaneEmbedder(self._embedders[policy.embedding.spec], self._lanes),
            lender=lambda: self._lender_for(batch),
            pace=pace,
            lanes=self._lanes,
            is_live=is_live,
            turn=partial(self._following.turn, f"batch:{batch.batch}"),
        )
        app = build_batch_app(settings, parts, utc_now)
        self._hosted[batch.batch] = _Hosted(app, pace, self._watch(batch, app, is_live))
        self._host(batch.batch, app)

    def _watch(self, batch: BatchRecord, app: SafeApp, is_live: Callable[[], bool]) -> asyncio.Task[None] | None:
        """Start a batch's continuous audit, unless it is turned off."""
        settings, index = self._settings, self._index
        if not settings.audit.points_per_second or index is None:
            return None
        watch = Watch(
            batch=batch.batch,
            collection=batch.collection,
            index=index,
            owned=OwnedManifests(app, settings, batch.batch),
            partitions=settings.kafka.partitions,
            points_per_second=settings.audit.points_per_second,
            every_seconds=settings.audit.every_seconds,
            quiet=self._lanes.quiet,
            is_live=is_live,
        )
        task = asyncio.create_task(self._guard(watch.run()))
        self._tasks.append(task)
        return task

    async def _point_first_alias(self, batch: BatchRecord) -> None:
        """Point the alias at the first batch, whose collection is made here. Later only `switch` moves it."""
        index = self._index
        assert index is not None
        patience = Patience(self._leave)
        if await patience.hold(lambda: index.alias_target(batch.alias), "reading the alias") is None:
            await patience.hold(lambda: index.set_alias(batch.alias, batch.collection), "pointing the alias at the first batch")

    def _served_batch(self) -> str | None:
        """Return the batch that is served, as far as this worker knows."""
        served = self._ledger.served(self._settings.qdrant.alias)
        return served.batch if served is not None else None

    def _now_of(self, batch: BatchRecord) -> BatchRecord:
        return self._ledger.batches.get(batch.batch, batch)

    def _lender_for(self, batch: BatchRecord) -> Lender | None:
        """Return the batch being served when its vectors fit this one's, and this one is another."""
        served = self._ledger.served(batch.alias)
        if served is None or served.batch == batch.batch or served.embedding != batch.embedding:
            return None
        return Lender(served.collection, served.policy_fingerprint, computable=_recipe(served.policy_yaml) == CONTENT)


def _part(app: str) -> str:
    """Return the part of ``--only`` that an app belongs to."""
    return PARSER if app == FEEDER else app


def _is_build(batch: BatchRecord) -> bool:
    return batch.state in ("building", "ready")


@lru_cache(maxsize=64)
def _recipe(policy_yaml: str) -> str:
    return load_policy(policy_yaml).identity
