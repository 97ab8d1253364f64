"""The parser app: [documents] to [parsed]. One consumer group for all batches; parsing is done once."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping

from streams.agents.holding import Holding
from streams.agents.order import Order
from streams.agents.parse_document import ParserAgent
from streams.agents.refusals import Clock, Outbox
from streams.batches.ledger import operator
from streams.content_refs import ContentRefs
from streams.controls.counts import Counts
from streams.controls.following import AppView, Following
from streams.daemon import in_daemon_thread
from streams.duties import Group, ParserDuties
from streams.errors import NotReachable, Unavailable
from streams.faustio.app import SafeApp, make_app, raw_table, raw_topic
from streams.faustio.delivery import deliver
from streams.faustio.handover import Handover
from streams.faustio.keyed_runner import KeyedRunner
from streams.faustio.log import FaustLog
from streams.faustio.table import FaustTable
from streams.kafka.read import record_at
from streams.lanes.precedence import BULK_AT_ONCE, BULK_BESIDE_LIVE, Lanes, Precedence, elsewhere
from streams.patience import Patience
from streams.ports import InRecord
from streams.sandbox import ParsePool
from streams.settings import Settings
from streams.topics import FRAME_BYTES, MAX_EVENT_BYTES

RECALLS_AT_ONCE = 4
WHAT = "reading a newest event again"


def build_parser_app(
    settings: Settings, pool: ParsePool, refs: ContentRefs, now: Clock, following: Following, lanes: Lanes
) -> tuple[SafeApp, Holding]:
    """Return a Faust app, not yet started, whose one agent parses documents, and its door. `following`: knows what is in force."""
    topics = settings.topics
    app = make_app(topics.parser_group, settings, settings.worker.state_dir / topics.parser_group)
    documents = raw_topic(app, topics.documents, settings.kafka.partitions)
    changelog = topics.changelog(topics.parser_group, topics.seen_table)
    seen = FaustTable(raw_table(app, topics.seen_table, settings.kafka.partitions, changelog))
    patience = Patience(app.leaving)
    outbox = Outbox(FaustLog(app), topics, patience, now, stage="parser")
    limits = settings.breaker.limits
    holding = Holding(
        outbox=outbox,
        controls=AppView(following, patience),
        counts=Counts(limits.window_seconds),
        limits=limits,
        owned=lambda: app.handover.begun if app.handover is not None else frozenset(),
        partitions=settings.kafka.partitions,
        by=operator(),
    )

    async def fetch(reference: str, max_bytes: int) -> bytes:
        with elsewhere():
            return await refs.fetch(reference, max_bytes)

    order = _order(app, settings, patience)
    agent = ParserAgent(
        outbox=outbox,
        seen=seen,
        parse=pool.parse,
        fetch=fetch,
        max_document_bytes=settings.parser.max_document_bytes,
        poison_attempts=settings.worker.poison_attempts,
        holding=holding,
        order=order,
    )

    at_once = max(BULK_AT_ONCE, 2 * settings.parser.processes)  # one that is parsed and one that comes next, each
    beside_live = max(BULK_BESIDE_LIVE, settings.parser.processes)
    precedence = Precedence(lanes, asyncio.Semaphore(at_once), asyncio.Semaphore(beside_live))

    async def parse(record: InRecord) -> None:
        await following.turn("parser", app.leaving)
        async with precedence.turn(record, app.leaving):
            await agent.handle(record)

    KeyedRunner(app, "parser", parse, settings.worker.in_flight).attach(documents)
    group = Group(settings.kafka, topics.parser_group, (topics.documents,), changelog, patience)
    Handover(app, ParserDuties(group, seen, holding.counts, outbox, order.say), settings.handover_grace_seconds)
    return app, holding


def _order(app: SafeApp, settings: Settings, patience: Patience) -> Order:
    """Return how the newest events of documents are read back and said again."""
    topic, turns = settings.topics.documents, asyncio.Semaphore(RECALLS_AT_ONCE)

    async def recall(late: InRecord, offset: int) -> InRecord | None:
        async def once() -> InRecord | None:
            try:
                return await in_daemon_thread(lambda: record_at(settings.kafka, topic, late.partition, offset), WHAT)
            except NotReachable as error:
                raise Unavailable(str(error)) from error

        async with turns:
            return await patience.hold(once, WHAT)

    async def say(late: InRecord, value: bytes, headers: Mapping[str, bytes]) -> None:
        limit = MAX_EVENT_BYTES + FRAME_BYTES
        await deliver(app, topic, late.key, value, limit=limit, partition=late.partition, headers=list(headers.items()))

    return Order(recall, say)
