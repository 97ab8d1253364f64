"""What both runners share: handlers in flight, acknowledgement in offset order, draining, and what a failure does.

A record is acknowledged when its handler has returned and every earlier record of its partition is acknowledged. Faust's own rules
would commit past a record that failed or is still in work, so nothing is left to them: `enable_acks` is off, and no
exception leaves the agent.
"""

from __future__ import annotations

import asyncio
import logging
from abc import ABC, abstractmethod
from collections import defaultdict, deque
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from typing import Any

from streams import metrics, telemetry
from streams.crash_points import reached
from streams.errors import InvariantBroken, Stopping
from streams.faustio.continuity import OffsetContinuity
from streams.faustio.scope import handling
from streams.ports import InRecord

log = logging.getLogger(__name__)

COMMIT_BEFORE_CRASH_SECONDS = 2.0
CANCEL_SECONDS = 2.0
"""How long a cancelled handler may take to end. One that shields itself is left behind; its record is not acknowledged."""


@dataclass(eq=False, slots=True)
class Slot:
    """A record in its place of the queue of its partition."""

    event: Any
    stream: Any
    done: bool = False


def record_of(event: Any) -> InRecord:
    """Return the record of a Faust event."""
    message = event.message
    return InRecord(
        topic=message.topic,
        partition=message.partition,
        offset=message.offset,
        key=message.key,
        value=message.value,
        headers={name: value or b"" for name, value in dict(message.headers or ()).items()},  # Kafka allows a null value
        timestamp=message.timestamp or 0.0,
    )


def _traced(event: Any) -> tuple[bytes | None, dict[str, bytes], dict[str, str | int]]:
    """Return what a span wants to know of a record: key, headers, place."""
    record = record_of(event)
    topic, partition, offset = "messaging.destination.name", "messaging.destination.partition.id", "messaging.kafka.offset"
    return record.key, dict(record.headers), {topic: record.topic, partition: str(record.partition), offset: record.offset}


def _as_failure(error: BaseException) -> InvariantBroken:
    failure = InvariantBroken("a handler was cancelled, and not by its runner")
    failure.__cause__ = error
    return failure


class Runner(ABC):
    """One agent's records. Made once per agent and app, tied to its topic with `attach`."""

    def __init__(self, app: Any, name: str, continuity: OffsetContinuity | None = None) -> None:
        """`name` names the agent. `continuity`: give one for topics that are neither compacted nor aged out."""
        self.name = name
        self._app = app
        self._continuity = continuity
        self._queues: dict[Any, deque[Slot]] = defaultdict(deque)
        self._tasks: set[asyncio.Task[None]] = set()
        self._open = asyncio.Event()
        self._open.set()
        self._failed = False
        self.group = self.topic = ""
        """Consumer group and input topic, once attached."""
        self.on_taken: Callable[[Any], None] | None = None
        """Told of each event that is taken into work."""

    @property
    def records_in_hand(self) -> int:
        """Number of records taken and not acknowledged."""
        return sum(len(queue) for queue in self._queues.values())

    @property
    def in_flight(self) -> int:
        """Number of handler calls under way or waiting for their turn."""
        return len(self._tasks)

    def attach(self, topic: Any) -> None:
        """Make this runner the agent of a raw topic. Before the app starts."""

        async def agent(stream: Any) -> None:
            await self.run(stream)

        agent.__name__ = agent.__qualname__ = self.name  # what Faust's log lines call it
        self._app.agent(topic, name=self.name)(agent)
        self._app.runners.append(self)
        self.group, self.topic = self._app.conf.id, topic.get_topic_name()

    async def run(self, stream: Any) -> None:
        """Take the records of a stream until it ends or this task is cancelled. Raises nothing else."""
        stream.enable_acks = False
        try:
            async for event in stream.events():
                await self._admit(stream, event)
        except Exception as error:  # noqa: BLE001 - leaving an agent would acknowledge the record
            await self._fail(error)
            await asyncio.Event().wait()  # hold the record, unacknowledged, until the app is taken down

    @abstractmethod
    async def _admit(self, stream: Any, event: Any) -> None:
        """Take one record, waiting for room."""

    @abstractmethod
    def _forget(self) -> None:
        """Drop what was admitted and not begun. Called when a generation ends."""

    async def _enter(self, event: Any) -> bool:
        """Wait until records are let in. True when the event is of the present generation and may be worked on."""
        await self._open.wait()
        if self._failed or not self._is_current(event):
            return False  # comes again to whoever owns the partition now
        if self._continuity is not None:
            message = event.message
            begins = self._app.consumer._committed_offset.get(message.tp) or self._app.fronts.get(message.tp, 0)
            self._continuity.check(message.topic, message.partition, message.generation_id, message.offset, begins)
        return True

    def _is_current(self, event: Any) -> bool:
        return bool(event.message.generation_id == self._app.consumer_generation_id)

    def _place(self, stream: Any, event: Any) -> Slot:
        slot = Slot(event, stream)
        self._queues[event.message.tp].append(slot)
        if self.on_taken is not None:
            self.on_taken(event)
        return slot

    def _spawn(self, work: Any) -> asyncio.Task[None]:
        task: asyncio.Task[None] = asyncio.get_running_loop().create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        return task

    async def _work(self, slots: Sequence[Slot], call: Callable[[], Awaitable[None]]) -> None:
        """Await a handler call and acknowledge its records. Ends silently when cancelled or stopping: they come again."""
        try:
            traced = (_traced(slot.event) for slot in slots)
            with telemetry.stage(self.name, self.group, traced), handling([slot.event for slot in slots]):
                await call()
        except Stopping as stopping:
            if self._open.is_set():
                log.warning("%s: a handler stops while the app does not; its partition waits: %s", self.name, stopping)
            return
        except asyncio.CancelledError as error:
            if not self._open.is_set():
                raise  # by `cancel` or `_fail`
            await self._fail(_as_failure(error))  # something the handler awaited was cancelled: nobody would bring the record again
            return
        except Exception as error:  # noqa: BLE001 - any exception of a handler is a broken invariant
            await self._fail(error)
            return
        for slot in slots:
            slot.done = True
            metrics.handled(self.group, self.name, slot.event.message.timestamp)
        try:
            for partition in {slot.event.message.tp: None for slot in slots}:
                await self._acknowledge(partition)
        except Exception as error:  # noqa: BLE001 - an offset that can't be counted must not be passed
            await self._fail(error)

    async def _acknowledge(self, partition: Any) -> None:
        queue = self._queues[partition]
        while queue and queue[0].done:
            slot = queue.popleft()
            if self._is_current(slot.event):
                await slot.stream.ack(slot.event)
                reached("offset.passed")

    async def _fail(self, error: Exception) -> None:
        """Take the app down: begin nothing more, commit what is acknowledged, crash. Only the first failure counts."""
        if self._failed:
            return
        self._failed = True
        self._open.clear()
        for task in self._tasks - {asyncio.current_task()}:
            task.cancel()
        try:
            await asyncio.wait_for(self._app.consumer.commit(), COMMIT_BEFORE_CRASH_SECONDS)
        except Exception as late:  # noqa: BLE001 - duplicates only
            log.info("%s: no commit before the crash: %r", self.name, late)
        await self._app.crash(error)

    def close(self) -> None:
        """Begin nothing more: a generation ends."""
        self._open.clear()
        self._forget()

    def hold(self) -> None:
        """Begin nothing more until `reopen`, within the same generation: what was admitted stays, handlers go on to their end."""
        self._open.clear()

    async def finish(self, seconds: float | None) -> None:
        """Return when no handler is at work, or after `seconds` (None: however long it takes)."""
        if self._tasks:
            await asyncio.wait(set(self._tasks), timeout=seconds)

    async def cancel(self) -> None:
        """Cancel the handlers that are left, and forget the generation's records. Ends within CANCEL_SECONDS."""
        for task in self._tasks:
            task.cancel()
        await self.finish(CANCEL_SECONDS)
        if self._tasks:
            log.warning("%s: %d handlers don't end when cancelled; left behind", self.name, len(self._tasks))
        self._queues.clear()

    def reopen(self) -> None:
        """Let records in again, those of the generation that begins."""
        if not self._failed:
            self._open.set()
