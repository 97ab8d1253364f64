"""Following: what a worker knows of [controls], read to its end before the first record is taken and followed from then on."""

from __future__ import annotations

import asyncio
import time
from dataclasses import dataclass, field

import structlog

from schemas.codec import UndecodableRecord
from streams.controls.state import Controls
from streams.daemon import in_daemon_thread
from streams.errors import NotReachable, Stopping, Unavailable
from streams.kafka.admin import topic_ids
from streams.kafka.offsets import end_offsets
from streams.kafka.read import Follower
from streams.patience import Patience
from streams.settings import Settings

log = structlog.get_logger(__name__)
KNOWN_RELEASES = 1000
TOPICS_SECONDS = 1.0
"""How long an answer about topics holds: they are asked about only while events come that a decision covers."""


@dataclass
class Following:
    """[controls] as this worker knows it, and who waits for a pause to end. `start`, then `follow` for as long as it lives."""

    settings: Settings
    now: Controls = field(default_factory=Controls)
    _position: int = 0
    """Offset of the next record to be read."""
    _changed: asyncio.Event = field(default_factory=asyncio.Event)
    _topics_at: float = -TOPICS_SECONDS
    """When it was last asked which topics these are, by a clock that only goes forward."""
    _releases: dict[str, None] = field(default_factory=dict)
    _reading: asyncio.Lock = field(default_factory=asyncio.Lock)

    async def start(self) -> Follower:
        """Begin to read, and return what `follow` takes. NotPrepared when the topic is missing, NotReachable when the broker is."""
        follower = Follower(self.settings.kafka, self.settings.topics.controls)
        await follower.start()
        return follower

    async def follow(self, follower: Follower) -> None:
        """Take records for ever."""
        try:
            async for record in follower:
                self._position = max(self._position, record.offset + 1)
                try:
                    self.now.apply(record)
                except UndecodableRecord as error:
                    log.warning("control skipped", reason=str(error))
                self._tell()
        finally:
            await follower.stop()

    def _tell(self) -> None:
        self._changed.set()
        self._changed = asyncio.Event()

    async def know(self, release: str, patience: Patience) -> None:
        """Return when all is known that stood in [controls] when this release was first seen here. Raises Stopping.

        Whoever sends held events again has written first what was decided: one look at the end of the topic per release will do.
        """
        async with self._reading:
            if release in self._releases:
                return
            topic = self.settings.topics.controls

            async def end() -> int:
                try:
                    ends = await in_daemon_thread(lambda: end_offsets(self.settings.kafka, [topic]), "reading what was decided")
                except NotReachable as error:
                    raise Unavailable(str(error)) from error
                return ends[topic, 0]

            wanted = await patience.hold(end, "reading what was decided")
            while self._position < wanted:
                await _either(self._changed, patience.stopping, "reading what was decided")
            self._releases[release] = None
            while len(self._releases) > KNOWN_RELEASES:
                del self._releases[next(iter(self._releases))]

    async def know_topics(self, patience: Patience) -> None:
        """Return when it is known which topics [documents] and [bulk] are, as of a second ago at most. Raises Stopping."""
        topics, settings = self.settings.topics, self.settings.kafka
        async with self._reading:
            if time.monotonic() - self._topics_at < TOPICS_SECONDS:
                return

            async def ids() -> dict[str, str]:
                names = (topics.documents, topics.bulk)
                try:
                    return await in_daemon_thread(lambda: topic_ids(settings, names), "reading what was decided")
                except NotReachable as error:
                    raise Unavailable(str(error)) from error

            found = await patience.hold(ids, "reading what was decided")
            known, self.now.topic_id = self.now.topic_id, found.get(topics.documents, "")
            self.now.bulk_topic_id = found.get(topics.bulk, "")
            self._topics_at = time.monotonic()
            if known and known != self.now.topic_id:
                words = "a topic was made anew: what was decided of the one before covers nothing of it"
                log.warning(words, topic=topics.documents)

    async def turn(self, stage: str, leaving: asyncio.Event) -> None:
        """Return when a stage (``parser``, ``batch:<id>``) is not paused. Raises Stopping when partitions are given up first."""
        while self.now.pause_of_stage(stage) is not None:
            await _either(self._changed, leaving, "the stage is paused")


@dataclass(frozen=True, slots=True)
class AppView:
    """Following as one app's agents use it: a wait ends when that app gives up its partitions."""

    following: Following
    patience: Patience

    @property
    def now(self) -> Controls:
        """Return what is in force."""
        return self.following.now

    async def know(self, release: str) -> None:
        """As of Following."""
        await self.following.know(release, self.patience)

    async def know_topics(self) -> None:
        """As of Following."""
        await self.following.know_topics(self.patience)


async def _either(changed: asyncio.Event, leaving: asyncio.Event, what: str) -> None:
    """Return when something has changed. Raises Stopping when `leaving` is set first."""
    waits = [asyncio.ensure_future(event.wait()) for event in (changed, leaving)]
    try:
        await asyncio.wait(waits, return_when=asyncio.FIRST_COMPLETED)
    finally:
        for wait in waits:
            wait.cancel()
    if leaving.is_set():
        raise Stopping("shutting down", what=what)
