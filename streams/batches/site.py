"""Site: one installation as an operator acts on it: its ledger, broker and index, put together for the commands."""

from __future__ import annotations

import asyncio
import time
from contextlib import suppress
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import partial
from pathlib import Path

from schemas.batch import BatchRecord, LaunchRecord
from streams.batches.done import standing
from streams.batches.gate import Limits, Recall, Verdict, judge
from streams.batches.gather import Compare, gather, note_launch
from streams.batches.ledger import Clerk, Ledger, clerk_of, with_state
from streams.batches.outcomes import Outcomes
from streams.batches.preview import Preview, preview, sample_of
from streams.batches.record import policy_as_read_here, policy_of
from streams.batches.retire import Remover, RetirePlan, plan_retire
from streams.batches.rollout import Launcher
from streams.controls.desk import desk_of
from streams.controls.refusing import forget_refusals, writer_of
from streams.controls.standing import read_controls
from streams.crash_points import reached
from streams.errors import NotPrepared
from streams.kafka.admin import apply_topics, delete_groups, delete_topics, group_lag
from streams.kafka.client import make_admin
from streams.kafka.read import read_span, read_topic
from streams.ports import Embedder, VectorIndex
from streams.settings import Settings
from streams.topics import batch_topics
from streams.words import counted

LEAVE_SECONDS = 90.0
"""How long workers may take to leave a retired batch's group: a clean stop, or a dead worker's session, ends within this."""
_RECALL_K = 5


def utc_now() -> datetime:
    """Return the present moment, UTC."""
    return datetime.now(UTC)


@dataclass(frozen=True, slots=True)
class Site:
    """The installation that `settings` name. `index` is open and closed by the caller."""

    settings: Settings
    index: VectorIndex
    clerk: Clerk

    @property
    def alias(self) -> str:
        """The alias whose batches are meant."""
        return self.settings.qdrant.alias

    async def ledger(self) -> Ledger:
        """Return the ledger as it is now."""
        return await asyncio.to_thread(self.clerk.read)

    def batch(self, ledger: Ledger, name: str) -> BatchRecord:
        """Return a batch by its id. NotPrepared naming those that exist."""
        if name not in ledger.batches:
            raise NotPrepared(f"batch {name} does not exist; there are: {ledger.alive()}")
        return ledger.batches[name]

    @property
    def launcher(self) -> Launcher:
        """What a rollout does to the broker."""

        def create(batch: BatchRecord) -> None:
            kafka = self.settings.kafka
            apply_topics(kafka, batch_topics(self.settings.topics, batch.batch, kafka.partitions))

        def launch(served: BatchRecord) -> LaunchRecord:
            return note_launch(self.settings, served)

        return Launcher(create, launch)

    @property
    def remover(self) -> Remover:
        """What `retire` does to the broker."""
        admin = make_admin(self.settings.kafka)

        def wait_until_left(group: str) -> None:
            deadline = time.monotonic() + LEAVE_SECONDS
            while members := _members(admin, group):
                if time.monotonic() > deadline:
                    raise NotPrepared(
                        f"{counted(members, 'worker is still a member', 'workers are still members')} of group {group} "
                        f"after {LEAVE_SECONDS:.0f} s: "
                        "stop those that do not follow [batches], then run the command again"
                    )
                time.sleep(0.3)

        def end_pause(batch: str) -> None:
            with suppress(NotPrepared):  # a cluster from before there were pauses
                desk_of(self.settings, utc_now).resume(None, f"batch:{batch}", 0)
                forget_refusals(read_controls(self.settings), batch, writer_of(self.settings))

        return Remover(
            wait_until_left,
            lambda group: delete_groups(admin, [group]),
            lambda topics: delete_topics(admin, topics),
            end_pause,
        )

    async def plan_retire(self, ledger: Ledger, name: str, force: bool) -> RetirePlan:
        """Return what retiring a batch removes. Raises NotPrepared where it must not go."""
        batch, topics, kafka = self.batch(ledger, name), self.settings.topics, self.settings.kafka
        aliases = {
            alias: target for alias in {batch.alias, self.alias} if (target := await self.index.alias_target(alias)) is not None
        }
        points = await self.index.count(batch.collection) if batch.collection in await self.index.collections() else None
        names = (topics.batch_group(name), tuple(topic.name for topic in batch_topics(topics, name, kafka.partitions)))
        return plan_retire(ledger, name, aliases, points, utc_now(), self.settings.batches.grace_seconds, names, force)

    async def gate(self, batch: BatchRecord, ledger: Ledger, golden: Path | None) -> Verdict:
        """Return what the gate says of a batch now."""
        limits = Limits(self.settings.batches.max_lag, self.settings.batches.recall_tolerance)
        compare = comparison(self.settings, self.index, golden) if golden is not None else None
        return judge(await gather(self.settings, self.index, batch, ledger.served(batch.alias), compare), limits)

    async def mark_ready(self, ledger: Ledger, name: str, verdict: Verdict) -> Ledger:
        """Claim that a build passed the gate. Nothing to do for one that did before, or is kept warm."""
        batch = ledger.batches[name]
        if batch.state != "building":
            return ledger
        figures = "; ".join(f"{line.name}: {line.figure}" for line in verdict.lines)
        ledger = await asyncio.to_thread(self.clerk.claim, ledger, with_state(batch, state="ready", note=figures[:2000]))
        reached("rollout.ready")
        return ledger

    async def lag(self, batch: BatchRecord, enough: int = 0) -> int:
        """Return the records that a batch is behind. With more than `enough`, those done and not committed yet are left out."""
        kafka, topics = self.settings.kafka, self.settings.topics

        def work() -> int:
            places = [topics.parsed, topics.changes(batch.batch)]
            committed = group_lag(kafka, topics.batch_group(batch.batch), places)
            if (lag := sum(part.lag for part in committed)) <= enough:
                return lag
            outcomes = Outcomes(batch.batch)
            for record in read_topic(kafka, topics.receipts, begin=batch.launch.receipts if batch.launch else None):
                outcomes.take(record)
            return sum(part.lag for part in standing(committed, outcomes, topics.parsed, partial(read_span, kafka)))

        return await asyncio.to_thread(work)

    async def preview(self, served: BatchRecord, wanted: BatchRecord) -> Preview:
        """Return what changes from one batch's policy to another's, on a sample of [parsed]."""
        from chunking.tokens import counter

        old, new = policy_as_read_here(served), policy_of(wanted)

        def work() -> Preview:
            sample = sample_of(read_topic(self.settings.kafka, self.settings.topics.parsed))
            return preview(sample, (old, counter(old.limits.tokenizer)), (new, counter(new.limits.tokenizer)))

        return await asyncio.to_thread(work)


def site_of(settings: Settings, index: VectorIndex) -> Site:
    """Return the installation of these settings, acted on by this process."""
    return Site(settings, index, clerk_of(settings, utc_now))


def comparison(settings: Settings, index: VectorIndex, golden: Path) -> Compare:
    """Return how two batches' answers to golden questions are compared: recall@k of both, each with its own model."""
    from streams.embedders import open_embedder
    from streams.evaluation.golden import load_golden
    from streams.evaluation.run import evaluate

    questions = load_golden(golden)
    embedders: dict[str, Embedder] = {}

    async def compare(green: BatchRecord, blue: BatchRecord) -> Recall:
        found = []
        for batch in (green, blue):
            embedding = policy_as_read_here(batch).embedding
            if embedding.spec not in embedders:
                embedders[embedding.spec] = await asyncio.to_thread(open_embedder, settings.embedder, embedding)
            embedder = embedders[embedding.spec]
            result = await evaluate(index, batch.collection, embedder, questions, (_RECALL_K,), name=batch.batch, sizes=False)
            found.append(result.recall(_RECALL_K))
        return Recall(_RECALL_K, found[0], found[1], len(questions.questions))

    return compare


def _members(admin: object, group: str) -> int:
    from confluent_kafka import KafkaException

    from streams.kafka.client import REQUEST_SECONDS

    (answer,) = admin.describe_consumer_groups([group], request_timeout=REQUEST_SECONDS).values()  # type: ignore[attr-defined]
    try:
        return len(answer.result().members)
    except KafkaException:  # no such group: nobody ever joined, or an earlier run deleted it
        return 0
