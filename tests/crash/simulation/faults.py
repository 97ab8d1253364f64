"""Faults: what may go wrong in a simulation. Each returns whether there was anything that it could hit."""

from __future__ import annotations

import random
from typing import Any

from streams.errors import Unavailable, UsageError
from tests.crash.simulation.blocking import Killed
from tests.crash.simulation.histories import History
from tests.crash.simulation.member import Member
from tests.crash.simulation.operators import Operator
from tests.crash.simulation.world import PARSER, Operation, World

REFUSALS = ("429 too many requests", "500 no space left on device", "timeout")


class Faults:
    """The part of a Simulation that breaks things."""

    history: History
    world: World
    members: list[Member]
    _dice: random.Random
    _faults_left: int
    _outage: tuple[str, int] | None
    _zombie_life: dict[Member, int]
    _operators: list[Operator]
    _hosted: set[str]

    def note(self, who: Any, what: str) -> None:
        """Write a line of the timeline."""
        raise NotImplementedError

    def _answer(self, operation: Operation, error: Exception | None) -> None:
        raise NotImplementedError

    def _join(self, group: str, partition: int) -> Member:
        raise NotImplementedError

    def _leave(self, member: Member) -> None:
        raise NotImplementedError

    def _fault(self) -> None:
        kind = self._dice.choice(sorted(self.history.faults))
        if getattr(self, f"_do_{kind}")():
            self._faults_left -= 1

    def _victim(self, *kinds: str) -> Operation | None:
        living = [o for o in self.world.pending if o.owner.state != "dead" and (not kinds or o.kind in kinds)]
        return self._dice.choice(living) if living else None

    def _refuse(self, operation: Operation, how: str) -> None:
        self._answer(operation, Unavailable(f"{how}: {self._dice.choice(REFUSALS)}"))

    def _do_refuse(self) -> bool:
        operation = self._victim()
        if operation is None or operation.done:
            return False
        self._refuse(operation, "refused")
        return True

    def _do_lose_answer(self) -> bool:
        operation = self._victim("publish", "put", "apply", "alias")
        if operation is None:
            return False
        while not operation.complete:
            operation.advance()
        self._refuse(operation, "done, but the answer is lost")
        return True

    def _do_prefix(self) -> bool:
        living = [o for o in self.world.pending if o.owner.state != "dead" and len(o.steps) > 1 and o.kind in ("apply", "publish")]
        if not living:
            return False
        operation = self._dice.choice(living)
        for _ in range(self._dice.randint(0, len(operation.steps) - operation.done)):
            operation.advance()
        self._refuse(operation, f"ended after {operation.done} of {len(operation.steps)} steps")
        return True

    def _do_outage(self) -> bool:
        self._outage = (self._dice.choice(("publish", "put", "read", "apply", "embed")), self._dice.randint(2, 12))
        self.note("world", f"outage: the next {self._outage[1]} of {self._outage[0]} fail")
        return True

    def _do_crash(self) -> bool:
        member = self._dice.choice(self.members)
        self._crash(member)
        return True

    def _crash(self, member: Member) -> None:
        """Kill a member and start its successor. What it had under way lands whole, in part, or not at all; nothing lands later."""
        self.note(member, "is killed")
        for operation in [o for o in self.world.pending if o.owner is member]:
            self.world.pending.remove(operation)
            landed = self._dice.choice((0, len(operation.steps), self._dice.randint(0, len(operation.steps))))
            while operation.done < landed and operation.kind in ("publish", "put", "apply"):
                operation.advance()
            self.note(member, f"had under way: {operation.what}: {operation.done} of {len(operation.steps)} steps landed")
        successor_follows = member.state in ("owner", "draining")
        self._zombie_life.pop(member, None)
        self._leave(member)
        if successor_follows:
            self._join(member.group, member.partition)

    def _do_graceful(self) -> bool:
        owners = [member for member in self.members if member.state == "owner" and not member.in_grace]
        if not owners:
            return False
        member = self._dice.choice(owners)
        self.note(member, "gives the partition up")
        member.give_up()
        return True

    def _do_lose_manifests(self) -> bool:
        hosted = sorted({batch.name for batch in self.world.live} & self._hosted)
        return bool(hosted) and self._lose(self._dice.choice(hosted))

    def _do_lose_seen(self) -> bool:
        return self._lose(PARSER)

    def _lose(self, group: str) -> bool:
        """Lose the table of a partition altogether, changelog and all, with the worker."""
        partition = self._dice.randrange(self.world.partitions)
        self.note("world", f"the table of {group}/{partition} is lost, changelog too")
        for member in [m for m in self.members if m.group == group and m.partition == partition]:
            self._crash_and_lose(member)
        return True

    def _crash_and_lose(self, member: Member) -> None:
        for operation in [o for o in self.world.pending if o.owner is member and o.kind == "put"]:
            self.world.pending.remove(operation)
        self.world.changelogs[member.group, member.partition].clear()
        self._crash(member)

    def _do_kill_command(self) -> bool:
        """Kill a command. What it had under way lands whole, in part or not at all. Its operator runs it again."""
        running = [operator for operator in self._operators if operator.state == "at work"]
        if not running:
            return False
        operator = self._dice.choice(running)
        operator.effects_left = self._dice.randint(0, 6)
        for operation in [o for o in self.world.pending if o.owner is operator]:
            self.world.pending.remove(operation)
            if operation.kind in ("thread", "alias") and self._dice.random() < 0.7:
                self._advance_dying(operation)
            elif operation.kind == "publish":
                for _ in range(self._dice.randint(0, len(operation.steps) - operation.done)):
                    operation.advance()
        self.note(operator, "is killed")
        operator.die()
        return True

    @staticmethod
    def _advance_dying(operation: Operation) -> None:
        try:
            operation.advance()
        except (Killed, UsageError):
            return

    def _do_zombie(self) -> bool:
        """A second owner begins while the first, which has not heard of it, goes on."""
        owners = [m for m in self.members if m.state == "owner" and not m.in_grace]
        if not owners:
            return False
        member = self._dice.choice(owners)
        self.note(member, "is believed dead, but goes on")
        member.state = "zombie"
        self._zombie_life[member] = self._dice.randint(1, 60)
        self._join(member.group, member.partition)
        return True

    def _age_zombies(self) -> None:
        for member in list(self._zombie_life):
            self._zombie_life[member] -= 1
            if self._zombie_life[member] <= 0:
                del self._zombie_life[member]
                self.world.pending[:] = [o for o in self.world.pending if o.owner is not member]
                self._leave(member)
