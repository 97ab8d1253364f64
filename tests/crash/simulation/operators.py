"""Operators: the commands that carry a batch through its life, run by the real code of streams/batches over the simulated world.

Those for dead letters, old deletes and held events: desk_commands.py.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from contextvars import ContextVar
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from typing import Any

from schemas.batch import BatchRecord, LaunchRecord
from streams.batches.ledger import Clerk, Ledger, with_state
from streams.batches.retire import Remover, RetirePlan, execute_retire, plan_retire
from streams.batches.rollout import Launcher, execute_rollout, plan_rollout
from streams.batches.switch import SwitchPlan, execute_switch, plan_rollback, plan_switch
from streams.errors import NotReachable, Unavailable, UsageError
from streams.ports import VectorIndex
from tests.crash.simulation.blocking import Killed
from tests.crash.simulation.desk_commands import DeskCommands
from tests.crash.simulation.documents import EPOCH
from tests.crash.simulation.histories import Command
from tests.crash.simulation.loop import SimulatedLoop
from tests.crash.simulation.member import Parts
from tests.crash.simulation.ports import IndexPort
from tests.crash.simulation.world import ALIAS, BLUE, GREEN, NAMES, Operation, World

AT_WORK: ContextVar[Operator] = ContextVar("AT_WORK")
"""Whose task it is that hands work to a thread."""


@dataclass(eq=False)
class Operator(DeskCommands):
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
