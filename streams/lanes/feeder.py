"""The feeder's body: one record of [bulk] in, the same record on [documents] out, when its turn has come.

A turn comes when the window (`window.py`) has room and a batch is served, to one tenant after the other (`turns.py`). What was
passed on counts as under way until its outcome is heard: a receipt or dead letter of the parser, or of the batch that is served.

Order of effects, and what a crash in between leaves:
  ① publish the record to [documents], key and value as they came; the broker has it
       crash here: the record comes again and ① is repeated; the parser knows the event, or a newer revision
  ② the caller lets the offset advance
What is under way is remembered by nobody: after a restart the window begins anew.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field

import structlog

from schemas.codec import UndecodableRecord, decode
from schemas.dead_letter import DeadLetter
from schemas.receipt import Receipt
from schemas.record import split_document_key
from streams import metrics
from streams.agents.refusals import Outbox
from streams.crash_points import reached
from streams.errors import PoisonRecord, Stopping
from streams.lanes.mark import mark, number_of
from streams.lanes.turns import Turns
from streams.lanes.window import Window
from streams.ports import InRecord

log = structlog.get_logger(__name__)


@dataclass(frozen=True, slots=True, eq=False)
class _Waiter:
    turn: asyncio.Future[int]
    partition: int


@dataclass(slots=True)
class Feeder:
    """What the feeder may touch, its body `handle`, and `heard`, which is told of outcomes."""

    name: str
    """16 hex digits that no other feeder has: outcomes of its own changes are known by it."""
    outbox: Outbox
    """For records that [documents] does not take, and for its topics and patience."""
    forward: Callable[[InRecord, bytes], Awaitable[None]]
    """(record, mark): append it to [documents] as it is, marked. PoisonRecord, Unavailable, Stopping."""
    served: Callable[[], str | None]
    """The batch that is served; None where there is none yet: then nothing is passed on."""
    clock: Callable[[], float] = time.monotonic
    window: Window = field(default_factory=Window)
    wanted: asyncio.Event = field(default_factory=asyncio.Event)
    """Set when somebody waits for a turn: outcomes must be listened to."""
    listening: bool = False
    """True while outcomes are heard. Nothing is passed on before."""
    _turns: Turns[_Waiter] = field(default_factory=Turns)

    async def handle(self, record: InRecord) -> None:
        """Pass one record of [bulk] on. Raises only what stops the worker, and Stopping."""
        if record.value is None:
            # It means "delete the newest": passed on late, or twice after a crash, it would delete what came after it.
            words = "a null value has no revision, so it can't wait; send op=delete with a revision, or the null to [documents]"
            await self.outbox.refuse(record, PoisonRecord(words), None)
            return
        number = await self._turn(record)
        try:
            await self.outbox.patience.hold(
                lambda: self.forward(record, mark(self.name, number)), f"publish to {self.outbox.topics.documents}"
            )
        except PoisonRecord as error:
            self._give_back(number)
            await self.outbox.refuse(record, error, None)
            return
        except BaseException:
            self._give_back(number)
            raise
        reached("feeder.forwarded")
        metrics.bulk_forwarded(record.timestamp)

    async def _turn(self, record: InRecord) -> int:
        """Return the record's number when its turn has come. Stopping when partitions are given up first."""
        waiter = _Waiter(asyncio.get_running_loop().create_future(), record.partition)
        tenant = tenant_of(record.key)
        self._turns.add(tenant, waiter)
        self.wanted.set()
        self.let_in()
        try:
            return await waiter.turn
        except asyncio.CancelledError:
            self._turns.remove(tenant, waiter)
            if waiter.turn.done() and not waiter.turn.cancelled():
                self._give_back(waiter.turn.result())
            raise

    def let_in(self) -> None:
        """Give turns for as long as there is room."""
        batch = self.served() if self.listening else None
        while batch is not None and self._turns and not self.window.full:
            waiter = self._turns.take()
            if not waiter.turn.done():
                waiter.turn.set_result(self.window.send(self.clock(), batch, waiter.partition))
        metrics.bulk_window(len(self.window.under_way), int(self.window.size))

    def turn_away(self) -> None:
        """Have all who wait stop waiting: partitions are given up, and their records come again."""
        while self._turns:
            waiter = self._turns.take()
            if not waiter.turn.done():
                waiter.turn.set_exception(Stopping("bulk records wait for their turn; they come again"))

    @property
    def idle(self) -> bool:
        """True when nobody waits and nothing is under way."""
        return not self._turns and not self.window.under_way

    def heard(self, record: InRecord) -> None:
        """Take note of a record of [receipts] or [dead-letters], which may be an outcome of ours."""
        number = number_of(record.headers, self.name)
        sent = self.window.under_way.get(number) if number is not None else None
        if number is None or sent is None or record.value is None:
            return
        try:
            outcome = self._outcome(record.topic, record.value)
        except UndecodableRecord as error:
            log.warning("outcome skipped", topic=record.topic, offset=record.offset, reason=str(error))
            return
        if outcome.stage == "parser" or outcome.batch in (sent.batch, self.served()):
            self.window.settle(number, outcome.stage, self.clock())
            self.let_in()

    def _outcome(self, topic: str, value: bytes) -> Receipt | DeadLetter:
        if topic == self.outbox.topics.receipts:
            return decode(value, Receipt)
        return decode(value, DeadLetter)

    def overdue(self, seconds: float) -> dict[int, int]:
        """Return what has been under way for so long: number to partition."""
        before = self.clock() - seconds
        return {number: sent.partition for number, sent in self.window.under_way.items() if sent.at <= before}

    def through(self, numbers: set[int]) -> None:
        """Take note that changes are through although their outcome was not heard."""
        count = sum(self.window.drop(number) for number in numbers)
        if count:
            metrics.BULK_UNHEARD.inc(count)
            log.warning("bulk changes are through, their outcomes were not heard", changes=count)
            self.let_in()

    def _give_back(self, number: int) -> None:
        self.window.drop(number)
        self.let_in()


def tenant_of(key: bytes | None) -> str:
    """Return the tenant of a record's key; an empty name, shared by all, where the key is none of ours."""
    try:
        return split_document_key(key or b"")[0]
    except ValueError:
        return ""
