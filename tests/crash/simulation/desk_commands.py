"""Desk commands: dead letters, old deletes and held events, seen to by the real code of streams/repair and streams/controls.

That code blocks, so it runs in a thread that stands still at each call of the broker (blocking.py): there it may die.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from typing import Any

from schemas.control import Verdict
from streams.controls.desk import Desk
from streams.controls.standing import Standing, held_by_key
from streams.controls.state import fold
from streams.ports import InRecord
from streams.repair.broker import Broker
from streams.repair.dead_letters import drop, read_letters, replay
from streams.repair.gc import forget
from streams.repair.letter_reader import LetterReader
from streams.repair.letters import Letter, Wanted
from streams.settings import KafkaSettings, Settings
from tests.crash.simulation.blocking import Blocking, blocking
from tests.crash.simulation.histories import Command
from tests.crash.simulation.member import Parts
from tests.crash.simulation.world import NAMES, World

SETTINGS = Settings.model_construct(kafka=KafkaSettings(topic_prefix=NAMES.prefix))
PATIENCE = 3.0
"""Looks at what is still held, before a command leaves the rest to the next."""


class DeskCommands:
    """The part of an Operator that blocks. A command's name is that of its method."""

    world: World
    command: Command
    note: Callable[[Any, str], None]
    parts: Parts

    async def perform(self, kind: str, what: str, *steps: Callable[[], Any], may_begin: Callable[[], bool] = lambda: True) -> Any:
        """Hand an operation to the world and wait for its answer."""
        raise NotImplementedError

    async def _replay(self) -> None:
        await blocking(self, self._replayed)

    def _replayed(self, thread: Blocking) -> None:
        broker = self.parts.broker(self.world, thread)
        for each in replay(SETTINGS, self._chosen(broker), broker=broker):
            self.note(self, f"{each.letter.id}: {each.outcome}: {each.reason}")

    async def _drop(self) -> None:
        await blocking(self, self._dropped)

    def _dropped(self, thread: Blocking) -> None:
        broker = self.parts.broker(self.world, thread)
        drop(SETTINGS, self._chosen(broker), broker=broker)

    def _chosen(self, broker: Broker) -> list[Letter]:
        """Return the letters that are meant: those of a run before, or all that are open, or one of them."""
        book = read_letters(SETTINGS, broker)
        if self.command.names:
            return [letter for name in self.command.names if (letter := book.letter(name)) is not None]
        found = book.letters(Wanted())
        if self.command.which >= 0 and found:
            found = [found[self.command.which % len(found)]]
            self.command = replace(self.command, names=(found[0].id,))
        return found

    async def _forget(self) -> None:
        await blocking(self, self._forgotten)

    def _forgotten(self, thread: Blocking) -> None:
        since = self.world.now()
        self.world.old_before = since.timestamp()
        self.note(self, str(forget(SETTINGS, since, broker=self.parts.broker(self.world, thread))))

    async def _keep(self) -> None:
        """Keep the index of dead letters, as workers do beside reading lag (streams/lag.py)."""
        await blocking(self, self._kept)

    def _kept(self, thread: Blocking) -> None:
        broker = self.parts.broker(self.world, thread)
        reader = LetterReader(SETTINGS, broker=broker)
        book, now = reader.refresh(), broker.now()
        book.retire([batch.batch for batch in self.world.ledger.in_order() if batch.state == "retired"], now)
        reader.keep(now)

    async def _approve(self) -> None:
        await blocking(self, partial(self._rule, "approve"))

    async def _reject(self) -> None:
        await blocking(self, partial(self._rule, "reject"))

    def _rule(self, verdict: Verdict, thread: Blocking) -> None:
        desk = self._desk(thread)
        left = desk.rule(desk.plan(self.command.tenant, verdict, ""), PATIENCE)
        self.note(self, f"{left} still held")

    async def _pause(self) -> None:
        await blocking(self, lambda thread: self._desk(thread).pause(self.command.tenant, "", ""))

    async def _resume(self) -> None:
        await blocking(self, lambda thread: self._desk(thread).resume(self.command.tenant, "", PATIENCE))

    def _desk(self, thread: Blocking) -> Desk:
        broker, looks = self.parts.broker(self.world, thread), itertools.count()

        def records(topic: str) -> list[InRecord]:
            return list(broker.read(topic, broker.ends(topic)))

        return Desk(
            standing=lambda: Standing(fold(records(NAMES.controls)), held_by_key(records(NAMES.held))),
            controls=lambda: fold(records(NAMES.controls)),
            held=lambda: held_by_key(records(NAMES.held)),
            write=lambda made: broker.write(made) and None,
            ends=lambda: broker.ends(NAMES.documents),
            bulk_ends=lambda: broker.ends(NAMES.bulk),
            now=broker.now,
            documents=NAMES.documents,
            controls_topic=NAMES.controls,
            by=str(self),
            sleep=lambda seconds: thread.call("wait", "looks again in a while", lambda: None),
            clock=lambda: float(next(looks)),
        )

    async def _mend(self) -> None:
        await self.perform("wait", "what stood in the way is mended", self._put_right)

    def _put_right(self) -> None:
        self.world.mended = True
