"""What the real runners (streams/faustio) stand on in the simulation: an app, and a stream that hands out a log's records."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

from streams.faustio.runner import Runner
from streams.ports import InRecord
from tests.agents.fake_faust import FakeEvent, FakeMessage
from tests.crash.simulation.world import BATCHES

if TYPE_CHECKING:
    from tests.crash.simulation.member import Member

READ_AHEAD = 3
"""Records that wait in a stream for its runner."""


class SimulatedApp:
    """What runners use of a Faust app. `leaving` is the member's."""

    def __init__(self, member: Member) -> None:
        self.conf = SimpleNamespace(id=member.group)
        self.leaving = member.stopping
        self.consumer_generation_id = member.generation
        self.fronts: dict[Any, int] = {}
        self.consumer = SimpleNamespace(commit=self._commit, _committed_offset={})
        self._member = member

    async def _commit(self) -> bool:
        return True

    async def crash(self, error: BaseException) -> None:
        """Take note of what a runner could not get over: in these histories nothing may, but that the batch of one that
        was left behind is retired."""
        retired = self._member.group in BATCHES and BATCHES[self._member.group] not in self._member.world.live
        if retired and self._member.state == "zombie":
            return
        self._member.fail(f"{self._member}: {type(error).__name__} left the agent: {error}")


class Intake:
    """One topic of a member: a real runner, the stream that it reads, and how far it has come."""

    def __init__(self, member: Member, topic: str, runner: Runner) -> None:
        self.member, self.topic, self.runner = member, topic, runner
        self.place = (member.group, topic, member.partition)
        self.position = self.acked = member.world.committed[self.place]
        self.handled: list[InRecord] = []
        """What was taken into work, as a handover notes it."""
        self.enable_acks = True
        self._in_hand = 0
        self._coming: asyncio.Queue[FakeEvent] = asyncio.Queue()
        runner.group, runner.topic = member.group, topic
        runner.on_taken = self._note
        self._reading = member.loop.create_task(runner.run(self))

    @property
    def can_deliver(self) -> bool:
        """True when there is a record to hand out, and somebody to take it."""
        log, gone = self._log, self.member.world.gone
        while self.position < len(log) and (self.topic, self.member.partition, self.position) in gone:
            self.position += 1
            if not self._in_hand:
                self.acked = self.position
        return self.position < len(log) and self._coming.qsize() < READ_AHEAD and not self.member.is_closed

    def deliver(self, most: int) -> None:
        """Hand out up to so many records."""
        first = self.position
        while most and self.can_deliver:
            self._coming.put_nowait(self._event(self._log[self.position]))
            self.position += 1
            self._in_hand += 1
            most -= 1
        self.member.note(self.member, f"takes {self.topic}@{first}..{self.position - 1}")

    async def events(self) -> AsyncIterator[FakeEvent]:
        """Yield what is handed out."""
        while True:
            yield await self._coming.get()

    async def ack(self, event: FakeEvent) -> bool:
        """Take note that a record may be passed."""
        self.acked = max(self.acked, event.message.offset + 1)
        self._in_hand -= 1
        return True

    def die(self) -> None:
        """End reading and handlers at once."""
        self.runner.close()
        for task in [self._reading, *self.runner._tasks]:
            task.cancel()

    @property
    def _log(self) -> list[InRecord]:
        return self.member.world.logs[self.topic, self.member.partition]

    def _note(self, event: FakeEvent) -> None:
        self.handled.append(self._log[event.message.offset])

    def _event(self, record: InRecord) -> FakeEvent:
        headers = dict(record.headers)
        message = FakeMessage(
            record.topic, record.partition, record.offset, record.key, record.value, self.member.generation, headers
        )
        return FakeEvent(message)
