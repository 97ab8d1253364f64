"""The parser app: [documents] to [parsed]. One consumer group for all batches; parsing is done once."""

from __future__ import annotations

from streams.agents.holding import Holding
from streams.agents.parse_document import ParserAgent
from streams.agents.refusals import Clock, Outbox
from streams.batches.ledger import operator
from streams.content_refs import ContentRefs
from streams.controls.counts import Counts
from streams.controls.following import AppView, Following
from streams.duties import Group, ParserDuties
from streams.faustio.app import SafeApp, make_app, raw_table, raw_topic
from streams.faustio.handover import Handover
from streams.faustio.keyed_runner import KeyedRunner
from streams.faustio.log import FaustLog
from streams.faustio.table import FaustTable
from streams.patience import Patience
from streams.ports import InRecord
from streams.sandbox import ParsePool
from streams.settings import Settings


def build_parser_app(
    settings: Settings, pool: ParsePool, refs: ContentRefs, now: Clock, following: Following
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
    agent = ParserAgent(
        outbox=outbox,
        seen=seen,
        parse=pool.parse,
        fetch=refs.fetch,
        max_document_bytes=settings.parser.max_document_bytes,
        poison_attempts=settings.worker.poison_attempts,
        holding=holding,
    )

    async def parse(record: InRecord) -> None:
        await following.turn("parser", app.leaving)
        await agent.handle(record)

    KeyedRunner(app, "parser", parse, settings.worker.in_flight).attach(documents)
    group = Group(settings.kafka, topics.parser_group, (topics.documents,), changelog, patience)
    Handover(app, ParserDuties(group, seen, holding.counts, topics.held, topics.parsed), settings.handover_grace_seconds)
    return app, holding
