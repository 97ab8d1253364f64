"""Doors: histories in which deletes are held, and people decide on them at any moment, over the same faults as all others.

The parser has its real door (streams/agents/holding.py); each owner hears of [controls] when the dice say so. What an operator does
is the real plan, his records go out one by one, and he may stop for good between any two of them. Once all is drained, he decides
whatever is still open and releases whatever is still held; then nothing may be held, and the points must equal the oracle.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from schemas.codec import decode
from schemas.control import Verdict
from schemas.parsed_document import ParsedDocument
from schemas.receipt import Receipt
from streams.agents.holding import Answer, Drop, Holding, Keep, Pass
from streams.agents.holding import Event as AtTheDoor
from streams.agents.order import says
from streams.agents.parse_document import ParserAgent
from streams.agents.refusals import About
from streams.controls.counts import Counts
from streams.controls.standing import Standing, held_by_key
from streams.controls.state import Controls, fold
from streams.ports import NO_HEADERS
from streams.steps.settle_change import UNSEEN, AlreadySettled, HeldMark, Seen
from tests.crash.simulation.door_laws import LIMITS, Share, Spared, rows_of
from tests.crash.simulation.histories import UNEMBEDDABLE, UNREADABLE, WORDS, Command, Event, History, history_of
from tests.crash.simulation.member import Member, Parts
from tests.crash.simulation.operators import Operator
from tests.crash.simulation.ports import Log
from tests.crash.simulation.scheduler import Simulation
from tests.crash.simulation.world import NAMES, World

RULINGS = ("approve", "reject")
TENANTS = ("a", "b")


@dataclass
class SimulatedView:
    """[controls] as one owner has heard of it."""

    world: World
    now: Controls = field(default_factory=Controls)
    heard: dict[int, int] = field(default_factory=dict)

    def hear(self) -> bool:
        """Take what came since. Whether there was anything."""
        came = [r for r in self.world.records(NAMES.controls) if r.offset >= self.heard.get(r.partition, 0)]
        for record in came:
            self.now.apply(record)
            self.heard[record.partition] = record.offset + 1
        return bool(came)

    async def know(self, release: str) -> None:
        self.hear()

    async def know_topics(self) -> None:
        """Topics are never made anew here."""


class DoorLog(Log):
    """A log that takes tombstones."""

    async def publish(self, topic: str, key: bytes, value: bytes | None, more: Mapping[str, bytes] = NO_HEADERS) -> None:
        if value is not None:
            await Log.publish(self, topic, key, value, more)
            return
        await self._member.perform(
            "publish", f"publish {topic} {key.decode()} tombstone", lambda: self._member.world.append(topic, key, None)
        )


class MarkedFirst(Holding):
    """Remembers that an event is held before [held] has it."""

    async def keep(self, event: AtTheDoor, keep: Keep, about: About) -> Seen:
        row = _mark_of(event, keep)
        member: Member = self.outbox.log._member  # type: ignore[attr-defined]
        key = event.record.key or b""
        changelog = member.world.changelogs[member.group, member.partition]
        await member.perform("put", f"changelog {key.decode()} marked first", lambda: changelog.append((key, row.to_bytes())))
        member.table[key] = row.to_bytes()
        return await Holding.keep(self, event, keep, about)


def _mark_of(event: AtTheDoor, keep: Keep) -> Seen:
    assert not isinstance(event.decision, AlreadySettled)
    said = event.decision.seen
    mark = HeldMark(keep.reason, said.revision, said.fingerprint, said.deleted, said.event_id, event.standing.offset)
    return replace(event.row or Seen(UNSEEN, ""), held=mark)


class ForgetsHeld(Holding):
    """Says "held" and keeps nothing."""

    async def keep(self, event: AtTheDoor, keep: Keep, about: About) -> Seen:
        await self.outbox.settle(self.outbox.receipt(about, "held", keep.why))
        return _mark_of(event, keep)


class DropsWhatIsApproved(Holding):
    """Takes whatever is decided for a rejection."""

    async def look(self, event: AtTheDoor) -> Answer:
        answer = await Holding.look(self, event)
        return Drop("somebody decided against it") if isinstance(answer, Pass) and answer.covered else answer


def doors(holding: type[Holding] = Holding, counting: type[Counts] = Counts) -> Parts:
    """Return the parts of a simulation whose parser has a door."""

    def guarded(outbox: Any, seen: Any, *rest: Any, **more: Any) -> ParserAgent:
        member: Member = outbox.log._member
        view, counts = SimulatedView(member.world), counting(LIMITS.window_seconds)
        view.hear()
        counts.load(member.partition, member.table.items())
        door = holding(outbox, view, counts, LIMITS, lambda: {member.partition}, member.world.partitions, str(member))
        member.__dict__["view"] = view
        return ParserAgent(outbox, seen, *rest, **more, holding=door)

    return Parts(parser=guarded, log=DoorLog)  # type: ignore[arg-type]


def door_history(seed: int) -> History:
    """Return a history in which deletes are many, with a parser that keeps its memory, and tenants who are paused now and then.

    Half of them have a tenant of so many documents that some may go before the breaker trips; of half a part comes through [bulk].
    """
    history, dice = history_of(seed), random.Random(seed * 43 + 17)
    events = tuple(replace(event, bulk=False) for event in history.events if event.kind != "null")
    events = _with_a_crowd(events, random.Random(seed * 47 + 3))
    if dice.random() < 0.5:
        events = tuple(replace(event, bulk=dice.random() < 0.6) for event in events)
    faults = history.faults - {"lose_seen", "lose_manifests"} | ({"kill_command"} if dice.random() < 0.6 else set())
    return replace(
        history,
        events=events,
        faults=faults,
        fault_limit=max(history.fault_limit, 2) if faults else 0,
        commands=_pauses(dice, len(events)) if dice.random() < 0.5 and _may_pause(events) else (),
        compaction=False,
        repaired=False,
    )


def _with_a_crowd(events: tuple[Event, ...], dice: random.Random) -> tuple[Event, ...]:
    """Return events with those of four to six more documents of one tenant among them: all come, and most go."""
    if dice.random() < 0.5:
        return events
    tenant, mixed = dice.choice(TENANTS), list(events)
    for number in range(dice.randint(4, 6)):
        name = f"c{number}"
        ends = [Event("delete", tenant, name, 2, event_id=f"{name}@2")] if dice.random() < 0.8 else []
        place = 0
        for event in (Event("upsert", tenant, name, 1, (dice.choice(WORDS),), event_id=f"{name}@1"), *ends):
            place = dice.randint(place, len(mixed))
            mixed.insert(place, event)
            place += 1
    return tuple(mixed)


def rejecting_history(seed: int) -> History:
    """Return one for operators who reject. No pauses, see `_may_pause`."""
    return replace(door_history(seed), commands=())


def _may_pause(events: tuple[Event, ...]) -> bool:
    """Return whether a tenant may be paused. What is known to go wrong then is left out (ARCHITECTURE.md, "If X dies"): a parked
    event that gives way to a newer one which does not go itself, unreadable or rejected."""
    return not any(UNREADABLE in event.paragraphs for event in events)


def _pauses(dice: random.Random, events: int) -> tuple[Command, ...]:
    begin, tenant = dice.randint(0, events), dice.choice(TENANTS)
    return (Command("pause", begin, tenant=tenant), Command("resume", dice.randint(begin, events), "pause", tenant=tenant))


class ForgetsWhoPasses(Counts):
    """Counts an event only when it has passed."""

    def _count(self, partition: int, tenant: str, seen: Seen, sign: int) -> None:
        super()._count(partition, tenant, replace(seen, passing=-1, at=0.0) if seen.ending else seen, sign)


@dataclass
class DoorSimulation(Simulation):
    """One history with operators who decide. `rejects`: they may also reject."""

    rejects: bool = False
    rulings_left: int = 3
    decided: int = 0

    def __post_init__(self) -> None:
        super().__post_init__()
        self._spared = Spared(self.world, self.history, self.failures.append)
        share = Share(self.world, self.history, self.failures.append)
        self.world.at_append = lambda record: (self._spared.look(record), share.look(record))[0]

    def _operations(self) -> list[tuple[float, Callable[[], None]]]:
        choices = super()._operations()
        for member in self.members:
            view: SimulatedView | None = member.__dict__.get("view")
            if view is not None and any(r.offset >= view.heard.get(r.partition, 0) for r in self.world.records(NAMES.controls)):
                choices.append((0.5, lambda view=view: self._hear(view)))  # type: ignore[misc]
        if self.rulings_left and not any(operator.command.name in RULINGS for operator in self._operators):
            for tenant in self._undecided():
                choices.append((0.2, lambda tenant=tenant: self._decide(tenant)))  # type: ignore[misc]
        return choices

    def _hear(self, view: SimulatedView) -> None:
        view.hear()

    def _end(self, operator: Operator) -> None:
        """An operator who was killed amid a decision need not come back: what is held tells the next one."""
        if operator.command.name in RULINGS and operator.state != "done":
            self._operators.remove(operator)
        else:
            super()._end(operator)

    def _standing(self) -> Standing:
        return Standing(fold(self.world.records(NAMES.controls)), held_by_key(self.world.records(NAMES.held)))

    def _undecided(self) -> list[str]:
        return [each.tenant for each in self._standing().breakers()]

    def _decide(self, tenant: str) -> None:
        standing = self._standing()
        newest = standing.controls.newest_decision(tenant)
        verdict: Verdict = "reject" if self.rejects and self._dice.random() < 0.5 else "approve"
        if standing.controls.open_breaker(tenant) is None and newest is not None:
            verdict = newest.verdict  # the same command again
        self.decided += 1
        self.rulings_left = max(0, self.rulings_left - 1)
        self._spared.bulk_ends[tenant] = {n: len(self.world.logs[NAMES.bulk, n]) for n in range(self.world.partitions)}
        self._run(Command(verdict, tenant=tenant))

    def _repair(self) -> bool:
        self._faults_left, self._outage = 0, None
        undecided, standing = self._undecided(), self._standing()
        paused = sorted({held.change.tenant_id for held in standing.held_of(None, "paused")} | {*self._paused(standing)})
        if self.decided > 40:
            self.failures.append(f"what is held is never released: {sorted(standing.held)}")
        elif undecided:
            self._decide(undecided[0])
            return True
        elif paused:
            self.decided += 1
            self._run(Command("resume", tenant=paused[0]))
            return True
        else:
            self.failures += self._left()
            if not self._feeds:
                self._events = tuple(event for event in self._events if not self._was_dropped(event))
        return False

    @staticmethod
    def _paused(standing: Standing) -> list[str]:
        return [tenant for tenant in TENANTS if standing.controls.pause_of_tenant(tenant) is not None]

    def _complaints(self) -> list[str]:
        if self._feeds:
            self._events = tuple(event for event in self._events if not self._was_dropped(event))
        # What can't be read or embedded is tried, and refused, also where it is late: while the newer event is held.
        refused = {event.event_id for event in self._events if {UNREADABLE, UNEMBEDDABLE} & {*event.paragraphs}}
        tried = {f"event {name}: a good event is a dead letter" for name in refused}
        # What is parked and overtaken is never looked at: it is settled as stale.
        told = [decode(r.value, Receipt) for r in self.world.records(NAMES.receipts) if r.value]
        parked = {receipt.event_id for receipt in told if receipt.outcome == "stale" and "while it was held" in receipt.reason}
        tried |= {f"event {name}: a bad event is no dead letter" for name in parked}
        return [each for each in super()._complaints() if each not in tried]

    @property
    def _is_ordered(self) -> bool:
        """With rejections, which delete came last is only told by the parser's rows: `_left`."""
        return not self.rejects

    def _left(self) -> list[str]:
        """Return marks of held events that are held no more, and documents that end in the log otherwise than in their row."""
        rows = [each for number in range(self.world.partitions) for each in rows_of(self.world, number).items()]
        last = {record.key: record.value for record in self.world.records(NAMES.documents)}
        found = [f"{key.decode()}: marked as held, and nothing is" for key, row in rows if row.held is not None]
        return found + [
            f"{key.decode()}: [documents] ends in {last[key]!r}, the parser remembers {row}"
            for key, row in rows
            if row.known is not None and not says(last[key] or b"", row)
        ]

    def _was_dropped(self, event: Event) -> bool:
        """Return whether a delete never went on: dropped, or overtaken while it was held. Only where there were rejections.

        One that was let pass and told nothing new, after another delete, counts: the parser's row says so.
        """
        if not self.rejects or event.kind != "delete":
            return False
        passed = {decode(r.value, ParsedDocument).event_id for r in self.world.records(NAMES.parsed) if r.value}
        told = [decode(r.value, Receipt) for r in self.world.records(NAMES.receipts) if r.value]
        row = rows_of(self.world, self.world.partition_of(event.key)).get(event.key)
        if row is not None and row.deleted and row.revision >= event.revision:
            return False
        held = any(receipt.event_id == event.event_id and receipt.outcome == "held" for receipt in told)
        dropped = any(receipt.event_id == event.event_id and "decided against it" in receipt.reason for receipt in told)
        beside = any(receipt.outcome == "held" and receipt.document_id == event.document for receipt in told)
        settled = any(receipt.event_id == event.event_id and receipt.outcome in ("stale", "unchanged") for receipt in told)
        return event.event_id not in passed and settled and (held or dropped or beside)


def first_door_failure(
    seeds: range,
    holding: type[Holding] = Holding,
    rejects: bool = False,
    broken: Parts | None = None,
    counting: type[Counts] = Counts,
) -> tuple[int, list[str]] | None:
    """Return the first seed whose history does not come to its oracle, with what is wrong; None where all do."""
    parts = doors(holding, counting)
    if broken is not None:
        parts = replace(parts, broker=broken.broker, feeder=broken.feeder)
    for seed in seeds:
        history = rejecting_history(seed) if rejects else door_history(seed)
        found = DoorSimulation(history, parts, rejects=rejects).run()
        if found:
            return seed, found
    return None
