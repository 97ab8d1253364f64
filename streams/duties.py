"""What the apps owe to partitions they take over (faustio/handover.py): look for lost state, re-check when the grace is over."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from itertools import islice
from typing import TypeVar

import structlog

from streams.agents.lost_state import LostState, never_worked_on
from streams.agents.manifests import Manifests
from streams.agents.memory import forgotten, remembered
from streams.agents.recheck import Place, Say, amiss, recheck, recheck_held, recheck_seen
from streams.agents.refusals import Outbox
from streams.controls.counts import Counts
from streams.controls.standing import held_by_key
from streams.daemon import in_daemon_thread
from streams.errors import NotReachable, Unavailable
from streams.faustio.handover import Taken
from streams.faustio.scope import standing_in
from streams.faustio.table import FaustTable
from streams.kafka.offsets import PartitionLag, end_offsets, group_lag
from streams.kafka.partitioner import partition_of
from streams.kafka.read import read_partitions, read_span, read_topic, record_at
from streams.patience import Patience
from streams.ports import InRecord
from streams.settings import KafkaSettings
from streams.steps.settle_change import HeldMark, Seen

log = structlog.get_logger(__name__)
Answer = TypeVar("Answer")
ROWS_AT_ONCE = 1000
"""Rows of a table that are read before others get their turn: about 5 ms."""
AT_ONCE = 64
"""Records of [changes] in memory during a re-check, one is about 2 MiB at most; rows that are saved at once."""


@dataclass(frozen=True, slots=True)
class Group:
    """A consumer group, its input topics in order, and the changelog of its table."""

    kafka: KafkaSettings
    name: str
    topics: tuple[str, ...]
    changelog: str
    patience: Patience

    async def places(self) -> list[PartitionLag]:
        """Return where topics and changelog begin and end, and what is committed; waits while the broker is away."""
        return await self.ask(partial(group_lag, self.kafka, self.name, {*self.topics, self.changelog}), "reading where topics end")

    async def ask(self, read: Callable[[], Answer], what: str) -> Answer:
        """Return what a blocking read from the broker returns; waits while the broker is away."""

        async def once() -> Answer:
            try:
                return await in_daemon_thread(read, what)
            except NotReachable as error:
                raise Unavailable(str(error)) from error

        return await self.patience.hold(once, what)


@dataclass(frozen=True, slots=True)
class ParserDuties:
    """streams.faustio.handover.Duties of the parser app."""

    group: Group
    seen: FaustTable
    counts: Counts
    outbox: Outbox
    say: Say

    async def begin(self, partitions: frozenset[int]) -> bool:
        """Remember again what is lost, count what is there; return whether the group begins with nothing behind it."""
        places = await self.group.places()
        lost = forgotten(places, self.group.topics[0], self.group.changelog, partitions)
        for partition, offsets in sorted(lost.items()):
            await self._remember(partition, offsets)
        for partition in sorted(partitions):
            self.counts.begin(partition)
            rows = self.seen.rows(partition)
            while some := list(islice(rows, ROWS_AT_ONCE)):
                self.counts.load(partition, some)
                await asyncio.sleep(0)
        return never_worked_on(places, self.group.changelog, partitions)

    async def _remember(self, partition: int, offsets: range) -> None:
        """Make the memory of a partition again. A death on the way leaves less of it: what is not remembered is taken as new."""
        kafka, documents, topics = self.group.kafka, self.group.topics[0], self.outbox.topics

        def read() -> dict[bytes, Seen]:
            waiting = held_by_key(read_topic(kafka, topics.held))
            held = {key: each.change for key, each in waiting.items() if each.change.partition == partition}
            ends = {number: end for (_, number), end in end_offsets(kafka, [topics.parsed]).items()}
            return remembered(
                read_partitions(kafka, documents, {partition: offsets.stop}, {partition: offsets.start}),
                held,
                read_partitions(kafka, topics.parsed, {partition: ends[partition]}),
            )

        rows = list((await self.group.ask(read, "reading documents again")).items())
        log.warning("what was seen is lost: remembering it again from the log", partition=partition, documents=len(rows))
        with standing_in(documents, partition):
            for start in range(0, len(rows), AT_ONCE):
                await asyncio.gather(*(self._put(key, seen) for key, seen in rows[start : start + AT_ONCE]))

    async def _put(self, key: bytes, seen: Seen) -> None:
        await self.group.patience.hold(lambda: self.seen.put(key, seen.to_bytes()), "remembering what was seen")

    async def recheck(self, partition: int, taken: Taken) -> None:
        """Remember once more what was remembered, and ask again what a predecessor let go of [held]."""
        with standing_in(self.group.topics[0], partition):
            await recheck_seen(self.seen, self.group.patience, taken.keys)
            there = ReadHeld(self.group, self.outbox.topics.held)
            await recheck_held(self.outbox, self.seen, self.counts, partition, taken.keys, there, self.say)


@dataclass(frozen=True, slots=True)
class ReadHeld:
    """streams.agents.recheck.HeldLog over the broker. Only the partitions are read in which the keys lie."""

    group: Group
    topic: str

    async def amiss(self, marks: Mapping[bytes, HeldMark]) -> Mapping[bytes, Place | None]:
        """As of HeldLog."""

        def read() -> dict[bytes, Place | None]:
            ends = {number: end for (_, number), end in end_offsets(self.group.kafka, [self.topic]).items()}
            numbers = {partition_of(key, len(ends)) for key in marks}
            return amiss(read_partitions(self.group.kafka, self.topic, {number: ends[number] for number in numbers}), marks)

        return await self.group.ask(read, "reading what is held again")

    async def at(self, place: Place) -> InRecord | None:
        """As of HeldLog."""
        return await self.group.ask(partial(record_at, self.group.kafka, self.topic, *place), "reading what is held again")


@dataclass(frozen=True, slots=True)
class BatchDuties:
    """streams.faustio.handover.Duties of a batch app. The last of the group's topics is [changes]."""

    group: Group
    lost: LostState
    manifests: Manifests

    async def begin(self, partitions: frozenset[int]) -> bool:
        """Look for lost state; return whether the group begins with nothing behind it."""
        places = await self.group.places()
        self.lost.look(places, partitions)
        fresh = never_worked_on(places, self.group.changelog, partitions)
        await self.lost.look_for_nothing(places, partitions, fresh)
        return fresh

    async def recheck(self, partition: int, taken: Taken) -> None:
        """Save manifests once more, then handle [changes] once more, read from the broker again."""
        changes, indexer = self.group.topics[-1], self.lost.indexer
        first, end = taken.spans.get(changes, (0, 0))
        with standing_in(changes, partition):
            await recheck(indexer, self.manifests, taken.keys, ())
            for begin in range(first, end, AT_ONCE):
                read = partial(read_span, self.group.kafka, changes, partition, begin, min(end, begin + AT_ONCE))
                records = await self.group.ask(read, "reading changes again")
                await recheck(indexer, self.manifests, (), records)
