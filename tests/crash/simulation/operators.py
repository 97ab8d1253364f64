"""Operators: the commands that carry a batch through its life, run by the real code of streams/batches over the simulated world."""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import Callable
from contextvars import ContextVar
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from functools import partial
from typing import Any

from schemas.batch import BatchRecord, LaunchRecord
from schemas.control import Verdict
from streams.batches.ledger import Clerk, Ledger, with_state
from streams.batches.retire import Remover, RetirePlan, execute_retire, plan_retire
from streams.batches.rollout import Launcher, execute_rollout, plan_rollout
from streams.batches.switch import SwitchPlan, execute_switch, plan_rollback, plan_switch
from streams.controls.desk import Desk
from streams.controls.standing import Standing, held_by_key
from streams.controls.state import fold
from streams.errors import NotReachable, Unavailable, UsageError
from streams.ports import InRecord, VectorIndex
from streams.repair.broker import Broker
from streams.repair.dead_letters import drop, read_letters, replay
from streams.repair.gc import forget
from streams.repair.letter_reader import LetterReader
from streams.repair.letters import Letter, Wanted
from streams.settings import KafkaSettings, Settings
from tests.crash.simulation.blocking import Blocking, Killed, blocking
from tests.crash.simulation.documents import EPOCH
from tests.crash.simulation.histories import Command
from tests.crash.simulation.loop import SimulatedLoop
from tests.crash.simulation.member import Parts
from tests.crash.simulation.ports import IndexPort
from tests.crash.simulation.world import ALIAS, BLUE, GREEN, NAMES, Operation, World

SETTINGS = Settings.model_construct(kafka=KafkaSettings(topic_prefix=NAMES.prefix))
PATIENCE = 3.0
"""Looks at what is still held, before a command leaves the rest to the next."""
AT_WORK: ContextVar[Operator] = ContextVar("AT_WORK")
"""Whose task it is that hands work to a thread."""


@dataclass(eq=False)
class Operator:
    """One run of one command. state: at work → done, again (it failed, and is to be run again) or dead."""

    world: World
    loop: SimulatedLoop
    command: Command
    number: int
    note: Callable[[Any, str], None]
    fail: Callable[[str], None]
    parts: Parts
    members: Callable[[str], list[Any]]
    """Who works for a group now."""
    state: str = "at work"
    effects_left: int | None = None
    """Effects until it dies; None: it lives."""
    clerk: Clerk = field(init=False)
    task: asyncio.Task[None] = field(init=False)

    def __post_init__(self) -> None:
        self.clerk = Clerk(self._read, self._write, self._now, by=str(self))
        self.task = self.loop.create_task(self._run())

    def __str__(self) -> str:
        return f"{self.command.name} {self.number}"

    async def _run(self) -> None:
        AT_WORK.set(self)
        try:
            await getattr(self, f"_{self.command.name}")()
        except (Unavailable, NotReachable) as error:
            self.note(self, f"fails: {error}")
            self.state = "again"
            return
        except UsageError as error:
            self.note(self, f"is refused: {error}")
        except Exception as error:  # noqa: BLE001  (whatever leaves a command is a finding)
            self.fail(f"{self}: {type(error).__name__} left the command: {error}")
        self.state = "done"

    async def perform(self, kind: str, what: str, *steps: Callable[[], Any], may_begin: Callable[[], bool] = lambda: True) -> Any:
        """Hand an operation to the world and wait for its answer."""
        operation = Operation(self, kind, what, list(steps), self.loop.create_future(), may_begin=may_begin)
        self.world.pending.append(operation)
        return await operation.answer

    def die(self) -> None:
        """End at once, as after SIGKILL."""
        self.state = "dead"
        self.task.cancel()

    # The commands, as streams/cli has them

    async def _rollout(self) -> None:
        ledger = await self._look()
        plan = plan_rollout(GREEN.policy, "green", ledger, ALIAS, self._now())
        if not plan.done:
            launcher = Launcher(lambda batch: self._effect(lambda: None), self._launch)
            ledger = await asyncio.to_thread(execute_rollout, plan, self.clerk, launcher, ledger)
            launch = ledger.batches[GREEN.name].launch
            assert launch is not None
            if self.parts.waits_for_the_build:
                await self.perform("wait", "the build is through", lambda: None, may_begin=lambda: self._is_built(launch))
            ledger = await self._look()
            if ledger.batches[GREEN.name].state == "building":
                ready = with_state(ledger.batches[GREEN.name], state="ready")
                ledger = await asyncio.to_thread(self.clerk.claim, ledger, ready)
        await self._switch_to(GREEN.name)

    async def _rollback(self) -> None:
        ledger, index = await self._look(), self._index
        plan = plan_rollback(ledger, ALIAS, await index.alias_target(ALIAS))
        await self.execute(plan, ledger, self.clerk, index)

    async def _switch(self) -> None:
        await self._switch_to(GREEN.name)

    async def _switch_back(self) -> None:
        await self._switch_to(BLUE.name)

    async def _switch_to(self, batch: str) -> None:
        ledger, index = await self._look(), self._index
        plan = plan_switch(ledger, batch, await index.alias_target(ALIAS))
        if not plan.done:
            await self.execute(plan, ledger, self.clerk, index)

    async def _retire(self) -> None:
        ledger, index, name = await self._look(), self._index, BLUE.name
        if ledger.batches[name].state == "retired":
            await self.perform("wait", "nobody hosts it any more", lambda: None, may_begin=lambda: not self.members(name))
        aliases = {ALIAS: await index.alias_target(ALIAS)}
        plan = plan_retire(ledger, name, aliases, None, self._now(), 0.0, (name, (BLUE.changes,)), force=True)
        remover = Remover(
            self._look_for_members, self._effect_of(lambda group: None), self._effect_of(self._remove), lambda batch: None
        )
        await self.retire(plan, ledger, self.clerk, index, remover)

    async def retire(self, plan: RetirePlan, ledger: Ledger, clerk: Clerk, index: VectorIndex, remover: Remover) -> None:
        """Carry a retirement out."""
        await execute_retire(plan, ledger, clerk, index, remover)

    def _look_for_members(self, group: str) -> None:
        if self.members(group):
            raise NotReachable("workers are still members")

    def _remove(self, topics: Any) -> None:
        self.world.remove_group(BLUE.name)

    def _effect_of(self, effect: Callable[[Any], None]) -> Callable[[Any], None]:
        return lambda given: self._effect(lambda: effect(given))

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

    async def execute(self, plan: SwitchPlan, ledger: Ledger, clerk: Clerk, index: VectorIndex) -> None:
        """Carry a switch out."""
        await execute_switch(plan, ledger, clerk, index)

    # What they touch

    @property
    def _index(self) -> Any:
        return IndexPort(self)

    async def _look(self) -> Ledger:
        found: Ledger = await self.perform("read", "read [batches]", self._read)
        return found

    def _read(self) -> Ledger:
        ledger = self.world.ledger
        return replace(ledger, batches=dict(ledger.batches), claims=set(ledger.claims))

    def _write(self, key: bytes, value: bytes) -> None:
        self._effect(lambda: self.world.claim(key, value))

    def _now(self) -> datetime:
        return EPOCH + timedelta(days=1, seconds=self.world.ledger.position)

    def _launch(self, served: BatchRecord) -> LaunchRecord:
        world = self.world
        self._effect(lambda: None)
        world.launched = world.settled_documents()
        ends = {number: len(world.logs[NAMES.parsed, number]) for number in range(world.partitions)}
        return LaunchRecord(at=self._now(), parsed=ends)

    def _is_built(self, launch: LaunchRecord) -> bool:
        """Return whether all that was there at the launch is in the batch, as the gate asks."""
        committed = self.world.committed
        past = all(committed[GREEN.name, NAMES.parsed, number] >= end for number, end in launch.parsed.items())
        return past and not any(self.world.lag(GREEN.name, GREEN.changes))

    def _effect(self, effect: Callable[[], None]) -> None:
        """Do something that outlives this command, unless it dies before; it may die right after."""
        for step in (lambda: None, effect):
            if self.effects_left is not None:
                if not self.effects_left:
                    raise Killed
                self.effects_left -= 1
            step()


def in_thread(work: Callable[[], Any]) -> asyncio.Future[Any]:
    """Have the command at work wait while `work` is done in one step (the loop's `executor`)."""
    operator = AT_WORK.get()
    answer = operator.loop.create_future()
    operator.world.pending.append(Operation(operator, "thread", "works on [batches]", [work], answer))
    return answer
