"""The app of one batch: [parsed] → chunker → [changes.<batch>] → indexer → the batch's collection. A consumer group of its own."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field

from chunking.policy import ChunkPolicy
from chunking.tokens import TokenCounter
from schemas.batch import BatchRecord
from streams.agents.chunk_document import ChunkerAgent
from streams.agents.index_changes import IndexerAgent, Lender, no_lender
from streams.agents.lost_state import LostState
from streams.agents.manifests import Manifests
from streams.agents.refusals import Clock, Outbox
from streams.batches.pace import Pace
from streams.duties import BatchDuties, Group
from streams.embedders.sparse import open_sparse
from streams.faustio.app import SafeApp, make_app, raw_table, raw_topic
from streams.faustio.batch_runner import BatchRunner
from streams.faustio.continuity import OffsetContinuity
from streams.faustio.handover import Handover
from streams.faustio.keyed_runner import KeyedRunner
from streams.faustio.log import FaustLog
from streams.faustio.table import FaustTable
from streams.lanes.precedence import BULK_YIELDS_SECONDS, GROUP_DOCUMENTS, STARVED_SECONDS, Lanes, Precedence, came_live
from streams.patience import Patience
from streams.ports import Embedder, InRecord, VectorIndex
from streams.settings import Settings


async def _at_once(leaving: asyncio.Event) -> None:
    return


@dataclass(frozen=True, slots=True)
class BatchParts:
    """What a batch app is made of beside Kafka."""

    batch: BatchRecord
    policy: ChunkPolicy
    counter: TokenCounter
    index: VectorIndex
    embedder: Embedder
    lender: Callable[[], Lender | None] = no_lender
    pace: Pace = field(default_factory=Pace)
    """How fast [parsed] is taken; set while the batch is built."""
    lanes: Lanes = field(default_factory=Lanes)
    """Shared by all batches of a worker."""
    is_live: Callable[[], bool] = lambda: True
    """False while the batch is built: then it yields to those that are served."""
    turn: Callable[[asyncio.Event], Awaitable[None]] = _at_once
    """Called before a record is taken; returns when the batch is not paused. Takes the app's `leaving`."""


def build_batch_app(settings: Settings, parts: BatchParts, now: Clock) -> SafeApp:
    """Return a Faust app, not yet started, with the chunker and the indexer of one batch."""
    topics = settings.topics
    batch = parts.batch.batch
    group = topics.batch_group(batch)
    app = make_app(group, settings, settings.worker.state_dir / group)
    partitions = settings.kafka.partitions
    parsed = raw_topic(app, topics.parsed, partitions)
    changes = raw_topic(app, topics.changes(batch), partitions)
    changelog = topics.changelog(group, topics.manifests_table)
    manifests = Manifests(FaustTable(raw_table(app, topics.manifests_table, partitions, changelog)))
    log, patience = FaustLog(app), Patience(app.leaving)
    chunker = ChunkerAgent(
        outbox=Outbox(log, topics, patience, now, stage="chunker", batch=batch),
        manifests=manifests,
        index=parts.index,
        collection=parts.batch.collection,
        policy=parts.policy,
        counter=parts.counter,
        embedder=parts.embedder,
        poison_attempts=settings.worker.poison_attempts,
    )
    indexer = IndexerAgent(
        outbox=Outbox(log, topics, patience, now, stage="indexer", batch=batch),
        manifests=manifests,
        index=parts.index,
        embedder=parts.embedder,
        collection=parts.batch.collection,
        lender=parts.lender,
        sparse=open_sparse(parts.policy.sparse.spec) if parts.policy.sparse else None,
        poison_attempts=settings.worker.poison_attempts,
    )
    worker = settings.worker

    precedence = Precedence(parts.lanes)

    async def chunk(record: InRecord) -> None:
        await parts.turn(app.leaving)
        if parts.is_live():
            async with precedence.turn(record, app.leaving):
                await chunker.handle(record)
            return
        await parts.pace.turn(app.leaving)
        async with parts.lanes.yielding(STARVED_SECONDS):
            await chunker.handle(record)

    def goes_first(record: InRecord) -> bool:
        return parts.is_live() and came_live(record)

    async def index(records: Sequence[InRecord]) -> None:
        await parts.turn(app.leaving)
        if all(goes_first(record) for record in records):
            with parts.lanes.busy():
                await indexer.handle(records)
            return
        seconds = BULK_YIELDS_SECONDS if parts.is_live() else STARVED_SECONDS
        for start in range(0, len(records), GROUP_DOCUMENTS):
            async with parts.lanes.yielding(seconds):
                await indexer.handle(records[start : start + GROUP_DOCUMENTS])

    KeyedRunner(app, "chunker", chunk, worker.in_flight).attach(parsed)
    BatchRunner(
        app,
        "indexer",
        index,
        worker.batch_documents,
        worker.batch_seconds,
        continuity=OffsetContinuity(),
        at_once=2,
        goes_first=goes_first,
    ).attach(changes)
    names = (topics.parsed, topics.changes(batch))
    lost = LostState(chunker, indexer, *names, changelog)
    duties = BatchDuties(Group(settings.kafka, group, names, changelog, patience), lost, manifests)
    Handover(app, duties, settings.handover_grace_seconds)
    return app
