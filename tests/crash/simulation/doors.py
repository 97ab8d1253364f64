"""Doors: histories in which deletes are held, and people decide on them at any moment, over the same faults as all others.

The parser has its real door (streams/agents/holding.py); each owner hears of [controls] when the dice say so. What an operator does
is the real plan, his records go out one by one, and he may stop for good between any two of them. Once all is drained, he decides
whatever is still open and releases whatever is still held; then nothing may be held, and the points must equal the oracle.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Any

from schemas.codec import decode, encode
from schemas.control import Verdict
from schemas.parsed_document import ParsedDocument
from schemas.receipt import Receipt
from streams.agents.holding import Event as AtTheDoor
from streams.agents.holding import Holding, Keep
from streams.agents.order import says
from streams.agents.parse_document import ParserAgent
from streams.agents.refusals import About
from streams.controls.counts import Counts
from streams.controls.desk import Ruling, plan_ruling, sent_again
from streams.controls.standing import Standing, held_by_key
from streams.controls.state import Controls, fold
from streams.kafka.produce import OutRecord
from streams.ports import InRecord
from streams.steps.limits import Limits
from streams.steps.settle_change import UNSEEN, AlreadySettled, HeldMark, Seen
from tests.crash.simulation.documents import EPOCH
from tests.crash.simulation.histories import Event, History, history_of
from tests.crash.simulation.member import Member, Parts
from tests.crash.simulation.ports import Log
from tests.crash.simulation.scheduler import Simulation
from tests.crash.simulation.world import NAMES, World

LIMITS = Limits(share=0.5, minimum=1)
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

    async def publish(self, topic: str, key: bytes, value: bytes | None) -> None:
        if value is not None:
            await Log.publish(self, topic, key, value)
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


def doors(holding: type[Holding] = Holding) -> Parts:
    """Return the parts of a simulation whose parser has a door."""

    def guarded(outbox: Any, seen: Any, *rest: Any, **more: Any) -> ParserAgent:
        member: Member = outbox.log._member
        view, counts = SimulatedView(member.world), Counts(LIMITS.window_seconds)
        view.hear()
        counts.load(member.partition, member.table.items())
        door = holding(outbox, view, counts, LIMITS, lambda: {member.partition}, member.world.partitions, str(member))
        member.__dict__["view"] = view
        return ParserAgent(outbox, seen, *rest, **more, holding=door)

    return Parts(parser=guarded, log=DoorLog)  # type: ignore[arg-type]


def door_history(seed: int) -> History:
    """Return a history in which deletes are many, with a parser that keeps its memory."""
    history = history_of(seed)
    faults = history.faults - {"lose_seen", "lose_manifests", "kill_command"}
    return replace(
        history,
        events=tuple(replace(event, bulk=False) for event in history.events if event.kind != "null"),
        faults=faults,
        fault_limit=history.fault_limit if faults else 0,
        commands=(),
        compaction=False,
        repaired=False,
    )


@dataclass
class DoorSimulation(Simulation):
    """One history with operators who decide. `rejects`: they may also reject."""

    rejects: bool = False
    to_send: list[OutRecord] = field(default_factory=list)
    rulings_left: int = 3
    decided: int = 0

    def _operations(self) -> list[tuple[float, Callable[[], None]]]:
        choices = super()._operations()
        for member in self.members:
            view: SimulatedView | None = member.__dict__.get("view")
            if view is not None and any(r.offset >= view.heard.get(r.partition, 0) for r in self.world.records(NAMES.controls)):
                choices.append((0.5, lambda view=view: self._hear(view)))  # type: ignore[misc]
        if self.to_send:
            choices.append((1.0, self._send_one))
            choices.append((0.03, self._stop))
        elif self.rulings_left:
            for tenant in self._undecided():
                choices.append((0.2, lambda tenant=tenant: self._decide(tenant)))  # type: ignore[misc]
        return choices

    def _hear(self, view: SimulatedView) -> None:
        view.hear()

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
        ends = {number: len(self.world.logs[NAMES.documents, number]) for number in range(self.world.partitions)}
        ruling: Ruling = plan_ruling(standing, tenant, verdict, lambda: ends, EPOCH, "ops", "")
        if ruling.decision is not None:
            record = standing.controls.with_decision(tenant, replace_id(ruling, self.decided), "ops")
            self.world.append(NAMES.controls, record.key, encode(record))
        self.decided += 1
        self.rulings_left = max(0, self.rulings_left - 1)
        self.note("ops", f"{verdict} {tenant}, {len(ruling.held)} held")
        self.to_send = list(sent_again(ruling.held, NAMES.documents, f"release-{self.decided}"))

    def _send_one(self) -> None:
        record = self.to_send.pop(0)
        partition = self.world.partition_of(record.key)
        log = self.world.logs[NAMES.documents, partition]
        log.append(InRecord(NAMES.documents, partition, len(log), record.key, record.value, record.headers))
        self.note("ops", f"sends {record.key!r} again at {len(log) - 1}")

    def _stop(self) -> None:
        self.note("ops", "is killed")
        self.to_send = []

    def _repair(self) -> bool:
        self._faults_left, self._outage = 0, None
        undecided = self._undecided()
        if self.decided > 40:
            self.failures.append(f"what is held is never released: {sorted(self._standing().held)}")
        elif undecided:
            self._decide(undecided[0])
            return True
        else:
            self.failures += self._left()
            self._events = tuple(event for event in self._events if not self._was_dropped(event))
        return False

    @property
    def _is_ordered(self) -> bool:
        """With rejections, which delete came last is only told by the parser's rows: `_left`."""
        return not self.rejects

    def _left(self) -> list[str]:
        """Return marks of held events that are held no more, and documents that end in the log otherwise than in their row."""
        rows = [
            (key, Seen.from_bytes(value))
            for number in range(self.world.partitions)
            for key, value in self.world.recovered_table("parser", number).items()
        ]
        last = {record.key: record.value for record in self.world.records(NAMES.documents)}
        found = [f"{key.decode()}: marked as held, and nothing is" for key, row in rows if row.held is not None]
        return found + [
            f"{key.decode()}: [documents] ends in {last[key]!r}, the parser remembers {row}"
            for key, row in rows
            if row.known is not None and not says(last[key] or b"", row)
        ]

    def _was_dropped(self, event: Event) -> bool:
        """Return whether a delete never went on: dropped, or overtaken while it was held. Only where there were rejections."""
        if not self.rejects or event.kind != "delete":
            return False
        passed = {decode(r.value, ParsedDocument).event_id for r in self.world.records(NAMES.parsed) if r.value}
        told = [decode(r.value, Receipt) for r in self.world.records(NAMES.receipts) if r.value]
        held = any(receipt.event_id == event.event_id and receipt.outcome == "held" for receipt in told)
        dropped = any(receipt.event_id == event.event_id and "decided against it" in receipt.reason for receipt in told)
        beside = any(receipt.outcome == "held" and receipt.document_id == event.document for receipt in told)
        return event.event_id not in passed and (held or dropped or beside)


def replace_id(ruling: Ruling, number: int) -> Any:
    """Return the decision under a name that a seed repeats."""
    assert ruling.decision is not None
    return ruling.decision.model_copy(update={"id": f"decision-{number}"})


def first_door_failure(seeds: range, holding: type[Holding] = Holding, rejects: bool = False) -> tuple[int, list[str]] | None:
    """Return the first seed whose history does not come to its oracle, with what is wrong; None where all do."""
    for seed in seeds:
        found = DoorSimulation(door_history(seed), doors(holding), rejects=rejects).run()
        if found:
            return seed, found
    return None
