"""Simulation: one history, run by a scheduler whose dice decide at every await what happens next, and what goes wrong."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import structlog

from streams.steps import plan_changes
from tests.crash.simulation.faults import Faults
from tests.crash.simulation.histories import Command, Event, History, repairs
from tests.crash.simulation.loop import SimulatedLoop
from tests.crash.simulation.member import Member, Parts
from tests.crash.simulation.operators import Operator, in_thread
from tests.crash.simulation.oracle import as_they_came, complaints, judge, named, never_passed_on
from tests.crash.simulation.readers import Readers
from tests.crash.simulation.runners import Intake
from tests.crash.simulation.world import BATCHES, BLUE, FEEDER, NAMES, PARSER, Operation, World

STEP_LIMIT = 20_000
"""A history that is not drained by then never will be."""


@dataclass
class Simulation(Faults):
    """Runs one history to its end."""

    history: History
    parts: Parts = field(default_factory=Parts)
    tracing: bool = False
    world: World = field(init=False)
    loop: SimulatedLoop = field(default_factory=SimulatedLoop)
    timeline: list[tuple[str, str]] = field(default_factory=list)
    failures: list[str] = field(default_factory=list)
    members: list[Member] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.world = World(self.history.partitions, make_index=self.parts.index)
        self._dice = random.Random(self.history.seed * 7919 + 1)
        self._faults_left = self.history.fault_limit
        self._produced = 0
        self._generations = 0
        self._outage: tuple[str, int] | None = None
        self._weights = {kind: self._dice.choice((0.2, 1.0, 4.0)) for kind in ("produce", "commit", "chunk", "index", "timer")}
        self._zombie_life: dict[Member, int] = {}
        self._events = self.history.events
        self._waiting = list(self.history.commands)
        self._operators: list[Operator] = []
        self._ended: list[str] = []
        self._hosted: set[str] = set()
        self._compactions = self.history.compactions if self.history.compaction else 0
        self.loop.executor = in_thread
        Readers(self.history, self.world, self.failures.append)

    def run(self) -> list[str]:
        """Return what is wrong at the end; empty when nothing is."""
        with self.loop.running(), _silence(), _part_size(700 if self.history.small_parts else None):
            self._host(PARSER)
            self._host(BLUE.name)
            if self._feeds:
                self._host(FEEDER)
            for _ in range(STEP_LIMIT):
                self.loop.run_ready()
                if self.failures or not (self._step() or self._repair()):
                    break
            else:
                self.failures.append("not drained: something waits for ever")
            self.failures += [f"{operator} waits for ever" for operator in self._operators if operator.state == "at work"]
            for one in (*self.members, *self._operators):
                one.die()
            self.loop.run_ready()
        self.failures += self.loop.complaints
        if self._feeds:
            self.failures += never_passed_on(self.world, self._events)
            self._events = as_they_came(self.world)
        return self.failures or self._complaints()

    def _complaints(self) -> list[str]:
        """Return what is wrong with the world at the end."""
        two_owners = "zombie" in self.history.faults
        events = self._events if self._feeds or self.history.repaired else named(self.world, self._events)
        return complaints(self.world, events, self._is_ordered, two_owners)

    @property
    def _is_ordered(self) -> bool:
        """Whether the parser knows at the end which revision of each document is the newest."""
        return "lose_seen" not in self.history.faults

    @property
    def events(self) -> tuple[Event, ...]:
        """The events that the end is held against, in the order of [documents] where some came through [bulk]."""
        return self._events

    def note(self, who: Any, what: str) -> None:
        """Write a line of the timeline."""
        if self.tracing:
            self.timeline.append((str(who), what))

    def _step(self) -> bool:
        """Let one thing happen. False when there is nothing left to happen."""
        if self._end_drained() or self._end_grace():
            return True
        if self._faults_left and self._dice.random() < self.history.fault_rate:
            self._fault()
            return True
        choices: list[tuple[float, Callable[[], None]]] = []
        for operation in self.world.pending:
            if operation.may_begin():
                choices.append((1.0, lambda operation=operation: self._advance(operation)))
        choices += self._operations()
        if self._produced < len(self._events):
            choices.append((self._weights["produce"], self._produce))
        for member in self.members:
            for runner in member.runners:
                if runner.can_deliver:
                    choices.append((self._weights["index" if runner.topic != NAMES.parsed else "chunk"], self._deliver(runner)))
                if member.state == "owner" and not member.in_grace and runner.acked > self.world.committed[runner.place]:
                    choices.append((self._weights["commit"] * 0.5, lambda runner=runner: self._commit(runner)))
        if self.loop.has_timer:
            choices.append((self._weights["timer"], self.loop.fire_timer))
        if self._zombie_life:
            choices.append((1.0, self._age_zombies))
        if not choices:
            return False
        self._dice.choices([choice for _, choice in choices], [weight for weight, _ in choices])[0]()
        return True

    def _operations(self) -> list[tuple[float, Callable[[], None]]]:
        """Return what operators, and workers who hear of it, may do next."""
        choices: list[tuple[float, Callable[[], None]]] = []
        for batch in self.world.live if self.history.commands else ():
            if batch.name not in self._hosted:
                choices.append((1.0, lambda name=batch.name: self._host(name)))
        for member in self.members if self._retires else ():
            if member.group in BATCHES and BATCHES[member.group] not in self.world.live:
                choices.append((1.0, lambda member=member: self._stop_hosting(member)))
        for command in self._waiting:
            if self._produced >= command.at and (not command.after or command.after in self._ended):
                choices.append((1.0, lambda command=command: self._begin(command)))
        for operator in self._operators:
            if operator.state != "at work":
                choices.append((1.0, lambda operator=operator: self._end(operator)))
        if self._compactions:
            choices.append((0.1, self._compact))
        for member in self.members if self._feeds else ():
            if member.group == FEEDER and not member.feeder.idle:
                if member.outcomes_heard != self.world.outcomes:
                    choices.append((0.5, lambda member=member: self._hear_outcomes(member)))
                elif member.feeder.window.under_way and member.looked_at != member.stages:
                    choices.append((0.5, lambda member=member: self._chase(member)))
        return choices

    @property
    def _retires(self) -> bool:
        return any(command.name == "retire" for command in self.history.commands)

    def _stop_hosting(self, member: Member) -> None:
        self._zombie_life.pop(member, None)
        self.world.pending[:] = [o for o in self.world.pending if o.owner is not member]
        self._leave(member)

    @property
    def _feeds(self) -> bool:
        return any(event.bulk for event in self.history.events)

    def _hear_outcomes(self, member: Member) -> None:
        member.hear()
        self.note(member, "hears of outcomes")

    def _chase(self, member: Member) -> None:
        self.note(member, "asks what is through without an outcome")
        member.chase()

    # What happens in good order

    def _host(self, group: str) -> None:
        """Have workers take a group's partitions for the first time."""
        self._hosted.add(group)
        for partition in range(self.world.partitions):
            if not self.parts.builds_from_the_beginning and group != PARSER:
                place = (group, NAMES.parsed, partition)
                self.world.committed[place] = len(self.world.logs[NAMES.parsed, partition])
            self._join(group, partition)

    def _begin(self, command: Command) -> None:
        self._waiting.remove(command)
        self._run(command)

    def _run(self, command: Command) -> None:
        self._generations += 1
        kind = self.parts.operator or Operator
        members = self._members_of
        operator = kind(self.world, self.loop, command, self._generations, self.note, self.failures.append, self.parts, members)
        self.note(operator, "begins")
        self._operators.append(operator)

    def _members_of(self, group: str) -> list[Member]:
        return [member for member in self.members if member.group == group and member.state != "zombie"]

    def _end(self, operator: Operator) -> None:
        self._operators.remove(operator)
        if operator.state == "done":
            self.note(operator, "has ended")
            self._ended.append(operator.command.name)
        else:
            self._run(operator.command)

    def _compact(self) -> None:
        """Compact [parsed], as far as the batch that is served has come, and [documents], as far as the parser has.

        Where there is no other way to make one, a topic's `min.compaction.lag.ms` is that promise."""
        self._compactions -= 1
        for partition in range(self.world.partitions):
            passed = self.world.committed[PARSER, NAMES.documents, partition]
            self.note("world", f"compacts {NAMES.documents}/{partition} up to {passed}")
            self.world.compact(NAMES.documents, partition, passed, looks_until=passed)
            end = self.world.committed[self.world.served.name, NAMES.parsed, partition]
            self.note("world", f"compacts {NAMES.parsed}/{partition} up to {end}")
            self.world.compact(NAMES.parsed, partition, end)

    def _repair(self) -> bool:
        """Once all is drained, send the end of every document again, and let nothing more go wrong."""
        if not self.history.repaired or self._events is not self.history.events:
            return False
        self._faults_left, self._outage, self._produced = 0, None, 0
        found = judge(self.history.events).documents
        self._events = repairs(self.history.events, {key: expected.good for key, expected in found.items()})
        return bool(self._events)

    def _join(self, group: str, partition: int) -> Member:
        self._generations += 1
        member = Member(
            self.world,
            self.loop,
            group,
            partition,
            self._generations,
            self.note,
            self.failures.append,
            self.history.eager_store,
            self.parts,
        )
        member.in_grace = self.parts.rechecks and group != FEEDER and bool(self._zombies(group, partition))
        self.members.append(member)
        self.note(member, f"owns the partition, from {[runner.position for runner in member.runners]}")
        return member

    def _produce(self) -> None:
        event = self._events[self._produced]
        self._produced += 1
        topic = NAMES.bulk if event.bulk else NAMES.documents
        record = self.world.append(topic, event.key, event.value)
        self.world.produced.append(record)
        self.note("producer", f"{record.topic}@{record.offset}: {event}")

    def _deliver(self, runner: Intake) -> Callable[[], None]:
        return lambda: runner.deliver(self._dice.randint(1, 4))

    def _commit(self, runner: Intake) -> None:
        self.world.committed[runner.place] = runner.acked
        self.note(runner.member, f"commits {runner.topic}@{runner.acked}")

    def _advance(self, operation: Operation) -> None:
        if self._outage and operation.kind == self._outage[0] and operation.owner.state != "dead":
            kind, left = self._outage
            self._outage = (kind, left - 1) if left > 1 else None
            self._refuse(operation, "outage")
            return
        if not operation.complete:
            try:
                operation.advance()
            except Exception as error:  # noqa: BLE001  (the answer is an error)
                self._answer(operation, error)
                return
            if not operation.complete:
                return
        self._answer(operation, None)

    def _answer(self, operation: Operation, error: Exception | None) -> None:
        self.world.pending.remove(operation)
        self.note(operation.owner, f"{operation.what}{f' → {error}' if error else ''}")
        if operation.answer.done():
            return
        if error is not None:
            operation.answer.set_exception(error)
        else:
            operation.answer.set_result(operation.result)

    def _end_drained(self) -> bool:
        for member in self.members:
            if member.state == "draining" and member.idle:
                for runner in member.runners:
                    self.world.committed[runner.place] = max(runner.acked, self.world.committed[runner.place])
                self._leave(member)
                self._join(member.group, member.partition)
                return True
        return False

    def _zombies(self, group: str, partition: int) -> list[Member]:
        return [m for m in self.members if m.state == "zombie" and (m.group, m.partition) == (group, partition)]

    def _end_grace(self) -> bool:
        for member in self.members:
            if member.in_grace and member.state == "owner" and not self._zombies(member.group, member.partition):
                if not member.paused:
                    member.pause()
                    self.note(member, "grace is over")
                    return True
                if member.idle:
                    self.note(member, "checks again")
                    member.recheck()
                    return True
        return False

    def _leave(self, member: Member) -> None:
        self.note(member, "is gone")
        member.die()
        self.members.remove(member)


@contextmanager
def _silence() -> Iterator[None]:
    """Keep the agents from logging: thousands of histories say the same things."""
    before = structlog.get_config()["wrapper_class"]
    structlog.configure(wrapper_class=structlog.make_filtering_bound_logger(50))
    try:
        yield
    finally:
        structlog.configure(wrapper_class=before)


@contextmanager
def _part_size(size: int | None) -> Iterator[None]:
    before = plan_changes.MAX_PART_BYTES
    plan_changes.MAX_PART_BYTES = size if size is not None else before
    try:
        yield
    finally:
        plan_changes.MAX_PART_BYTES = before
