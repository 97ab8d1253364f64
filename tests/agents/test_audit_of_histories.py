"""At any moment of any history of edits, deaths included, an audit finds nothing. What is broken behind the agents, it finds."""

from __future__ import annotations

import asyncio
import random
from dataclasses import dataclass, field

from hypothesis import given, settings
from hypothesis import strategies as st

from chunking.manifest import Manifest
from schemas.codec import decode
from schemas.dead_letter import DeadLetter
from schemas.record import document_key
from streams.audit.findings import Report
from streams.audit.run import Audit
from streams.audit.sources import Unsettled
from streams.audit.walk import Walk
from streams.ports import IndexPlan
from streams.repair.newest import Newest, NewestEvents
from tests.support.pipeline import Pipeline, sections

WORDS = ("ash", "birch", "cedar", "elm", "fir", "hazel")


@dataclass
class Live:
    """A pipeline that goes on one record at a time, and what an audit sees of its broker."""

    dice: random.Random
    pipeline: Pipeline = field(default_factory=Pipeline)
    revision: int = 0
    events: NewestEvents = field(default_factory=NewestEvents)
    manifests: dict[bytes, bytes] = field(default_factory=dict)

    async def step(self) -> None:
        """One thing that happens: an edit, an end, a page that can't be read, a record at one of the agents, or a death."""
        pipeline, names, dice = self.pipeline, self.pipeline.names, self.dice
        await pipeline._prepare()
        chance = dice.random()
        if chance < 0.3:
            self.revision += 1
            words = dice.sample(WORDS, dice.randint(1, 5))
            text = dice.choice([sections(*words), sections(*words), None, "%unreadable%"])
            pipeline.send(dice.choice("abc"), self.revision, text, event_id=f"e{self.revision}")
        elif chance < 0.35:
            pipeline.rewind(dice.randint(1, 5))
            pipeline.restart()
        elif chance < 0.55:
            await self._one(names.documents, pipeline.parser.handle)
        elif chance < 0.75:
            await self._one(names.parsed, pipeline.chunker.handle)
        else:
            await self._one(names.changes(pipeline.batch), lambda record: pipeline.indexer.handle([record]))

    async def _one(self, topic: str, handle) -> None:  # type: ignore[no-untyped-def]
        at = self.pipeline.positions.get(topic, 0)
        for record in self.pipeline.log.topics[topic][at : at + 1]:
            await handle(record)
            self.pipeline.positions[topic] = at + 1

    async def pause(self, seconds: float) -> None:
        """Editors and workers go on meanwhile."""
        for _ in range(self.dice.randint(0, 15)):
            await self.step()

    async def audit(self) -> Report:
        await self.pipeline._prepare()
        self.events, self.manifests = NewestEvents(), {}
        return await Audit(self, Walk(self.pipeline.index, self.pipeline.batch, 1), "b", pause=self.pause).run()

    # streams.audit.run.Broker

    def event(self, key: bytes) -> Newest | None:
        return self.events.found.get(key)

    def documents(self) -> set[bytes]:
        return {*self.manifests, *self.events.found}

    def manifest(self, key: bytes) -> Manifest | None:
        value = self.manifests.get(key)
        return Manifest.from_bytes(value) if value else None

    def partition(self, key: bytes) -> int:
        return 0

    def refresh_events(self) -> None:
        self.events = NewestEvents()
        for record in self.pipeline.log.topics[self.pipeline.names.documents]:
            self.events.take(record)

    def refresh_manifests(self) -> None:
        self.manifests = dict(self.pipeline.table.values)

    def unsettled(self) -> Unsettled:
        names, log = self.pipeline.names, self.pipeline.log
        flying = {
            record.key
            for topic in (names.documents, names.parsed, names.changes(self.pipeline.batch))
            for record in log.topics[topic][self.pipeline.positions.get(topic, 0) :]
        }
        letters = [decode(record.value or b"", DeadLetter) for record in log.topics[names.dead_letters]]
        refused = {
            key
            for letter in letters
            if (newest := self.event(key := document_key(letter.tenant_id, letter.document_id))) is not None
            and letter.revision == newest.revision
        }
        return Unsettled(frozenset(key for key in flying if key), frozenset(refused))


@given(st.randoms(use_true_random=False), st.integers(0, 40))
@settings(max_examples=60, deadline=None)
def test_an_audit_finds_nothing_at_any_moment_of_a_history(dice: random.Random, steps: int) -> None:
    async def history() -> None:
        live = Live(dice)
        for _ in range(steps):
            await live.step()
        report = await live.audit()
        assert report.clean, report.findings

    asyncio.run(history())


@given(st.randoms(use_true_random=False), st.integers(20, 40))
@settings(max_examples=25, deadline=None)
def test_a_point_that_is_lost_in_any_history_is_found_and_comes_back_when_sent_again(dice: random.Random, steps: int) -> None:
    async def history() -> None:
        live = Live(dice)
        for _ in range(steps):
            await live.step()
        await live.pipeline.drain()
        points = [point async for page in live.pipeline.index.scan(live.pipeline.batch) for point in page]
        if not points:
            return
        lost = dice.choice(points)
        tenant, document = lost.payload["tenant_id"], lost.payload["document_id"]
        plan = IndexPlan(tenant, document, 1 << 50, deletes=(lost.chunk_id,))
        await live.pipeline.index.apply(live.pipeline.batch, plan)

        async def nothing_moves(seconds: float) -> None:
            return

        live.pause = nothing_moves  # type: ignore[method-assign]
        report = await live.audit()
        assert [(found.kind, found.chunk_id) for found in report.findings] == [("missing_point", lost.chunk_id)]

    asyncio.run(history())
