"""The desk: what an operator decides, and how it is carried out: ① say it in [controls] ② send the held events again ③ wait.

  crash after ①: workers follow it; what is held stays held, and `breaker list` says which command to run again
  crash after ②: workers do the rest by themselves; the command would only have waited
Everything may be done again: an event that has passed is known as the same one.

② does not remove what is held: the parser does, when it has let the event pass or dropped it (streams/agents/holding.py).
"""

from __future__ import annotations

import time
import uuid
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime

from schemas.codec import encode
from schemas.control import Control, Counted, Decision, Verdict, pause_key
from schemas.held_change import HeldReason
from schemas.record import document_key
from streams.batches.ledger import Outrun, operator
from streams.controls.release import release_headers, waited_of
from streams.controls.standing import Holding, Standing, read_controls, read_held, read_standing
from streams.controls.state import Controls
from streams.crash_points import reached
from streams.errors import NotPrepared
from streams.kafka.produce import OutRecord
from streams.settings import Settings
from streams.steps.settle_change import Effect
from streams.words import counted

LOOK_SECONDS = (0.2, 2.0)
"""How often [held] is read while waiting: at first, and at most apart."""


@dataclass(frozen=True, slots=True)
class Ruling:
    """What a decision on a tenant's breaker comes to. Prints itself. `decision` None: it is decided, only the rest is released."""

    tenant: str
    verdict: Verdict
    decision: Decision | None
    release: str
    held: tuple[Holding, ...]
    why: str
    decided_before: tuple[Decision, ...] = ()
    """Of held events that an earlier decision covers, to the other verdict: that decision, once for each. It stands."""

    def __str__(self) -> str:
        head = f"tenant {self.tenant}: {self.why}\n" if self.why else ""
        held = f"{head}{self._before}{len(self.held) - len(self.decided_before):,} held events"
        if self.verdict == "approve":
            return f"{held} go on; so does what stands in [documents] or waits in [bulk] now; what is sent later is counted anew"
        return (
            f"{held} are dropped, and so are deletes that stand in [documents] or wait in [bulk] now; the documents stay served; "
            "what is sent later is counted anew.\n"
            "Whoever sent them believes that they went: the next sync of a folder does not send them again (sync --delete --all "
            "does); a file that comes back is sent, and settles as unchanged"
        )

    @property
    def _before(self) -> str:
        if not self.decided_before:
            return ""
        newest = max(self.decided_before, key=lambda each: each.at)
        word, does = ("approved", "lets pass") if newest.verdict == "approve" else ("rejected", "drops")
        said = f"{newest.by} {word} at {newest.at:%Y-%m-%d %H:%M:%S} what had come by then, and was cut short: that stands"
        return f"{said}, and {does} {counted(len(self.decided_before), 'held event')}\n"


def plan_ruling(
    standing: Standing,
    tenant: str,
    verdict: Verdict,
    ends: Callable[[], dict[int, int]],
    now: datetime,
    by: str,
    reason: str,
    bulk_ends: Callable[[], dict[int, int]] = dict,
    topic_ids: Callable[[], tuple[str, str]] = lambda: ("", ""),
) -> Ruling:
    """Return what approve or reject would do. `ends`: end offsets of [documents], `bulk_ends`: of [bulk]; `topic_ids`: of both.
    NotPrepared when there is nothing to decide."""
    opened, newest = standing.controls.open_breaker(tenant), standing.controls.newest_decision(tenant)
    held = tuple(standing.held_of(tenant, "breaker"))
    if opened is None:
        if newest is None or not held:
            raise NotPrepared(f"the breaker of tenant {tenant} is not open, and nothing is held: see docdelta breaker list")
        if newest.verdict != verdict:
            words = f"tenant {tenant}: {newest.verdict} was decided by {newest.by} at {newest.at:%Y-%m-%d %H:%M:%S}"
            raise NotPrepared(f"{words}; run docdelta breaker {newest.verdict} {tenant} for what is left")
    topic, bulk = topic_ids()  # first: offsets of a topic that is made anew in between are not taken for the old one's
    earlier = tuple(_decided_otherwise(replace(standing.controls, topic_id=topic, bulk_topic_id=bulk), held, verdict))
    if opened is None:
        return Ruling(tenant, verdict, None, uuid.uuid4().hex, held, "", earlier)
    what: Counted = "changes" if opened.holds_changes else "deletes"
    waiting, there = bulk_ends(), ends()  # in this order: what is passed on meanwhile is in both
    decision = Decision(
        id=uuid.uuid4().hex,
        verdict=verdict,
        what=what,
        ends=there,
        bulk_ends=waiting,
        topic_id=topic,
        bulk_topic_id=bulk,
        at=now,
        by=by,
        reason=reason,
    )
    return Ruling(tenant, verdict, decision, decision.id, held, opened.first.reason, earlier)


def _decided_otherwise(controls: Controls, held: Iterable[Holding], verdict: Verdict) -> Iterator[Decision]:
    """Yield, for each held event of which the other verdict was given before, that decision: its command was cut short."""
    for each in held:
        change = each.change
        effect: Effect = "removal" if change.op == "delete" else "change"
        before = controls.decision_on(change.tenant_id, change.partition, change.offset, effect, waited_of(change))
        if before is not None and before.verdict != verdict:
            yield before


@dataclass(frozen=True, slots=True)
class Desk:
    """What commands need. Broker and clock are passed in, so that the order of effects can be tried without them."""

    standing: Callable[[], Standing]
    controls: Callable[[], Controls]
    held: Callable[[], dict[bytes, Holding]]
    write: Callable[[Iterable[OutRecord]], None]
    """Returns when the broker has all of them."""
    ends: Callable[[], dict[int, int]]
    now: Callable[[], datetime]
    documents: str
    controls_topic: str
    by: str = field(default_factory=operator)
    bulk_ends: Callable[[], dict[int, int]] = dict
    topic_ids: Callable[[], tuple[str, str]] = lambda: ("", "")
    """Of [documents] and [bulk]; empty where the broker does not tell."""
    sleep: Callable[[float], None] = time.sleep
    clock: Callable[[], float] = time.monotonic

    def plan(self, tenant: str, verdict: Verdict, reason: str) -> Ruling:
        """Return what approve or reject would do now."""
        ends = self.ends, self.now(), self.by, reason, self.bulk_ends
        return plan_ruling(self.standing(), tenant, verdict, *ends, self.topic_ids)

    def rule(self, ruling: Ruling, patience: float) -> int:
        """Carry a ruling out; return how many events are still held after `patience` seconds. Outrun when another was decided."""
        if ruling.decision is not None:
            record = self.controls().with_decision(ruling.tenant, ruling.decision, self.by)
            self.write([OutRecord(self.controls_topic, record.key, encode(record))])
            newest = self.controls().newest_decision(ruling.tenant)
            if newest is None or newest.id != ruling.decision.id:
                who = f"{newest.by} decided {newest.verdict}" if newest is not None else "somebody took it back"
                raise Outrun(f"another operator came between: {who}; look at docdelta breaker list")
            reached("breaker.decided")
        return self._release(ruling.tenant, "breaker", ruling.release, patience)

    def pause(self, tenant: str | None, stage: str, reason: str) -> Control | None:
        """Pause a tenant or a stage. Returns the pause that was there already, or None."""
        controls = self.controls()
        before = controls.pause_of_tenant(tenant) if tenant is not None else controls.pause_of_stage(stage)
        if before is None:
            control = Control(kind="pause", at=self.now(), tenant_id=tenant, stage=stage, reason=reason, by=self.by)
            self.write([OutRecord(self.controls_topic, control.key, encode(control))])
        return before

    def resume(self, tenant: str | None, stage: str, patience: float) -> tuple[bool, int]:
        """End a pause. Returns whether there was one, and how many events of the tenant are still held after `patience` seconds."""
        controls, key = self.controls(), pause_key(tenant, stage)
        was = key in controls.pauses
        if was:
            self.write([OutRecord(self.controls_topic, key, None)])
            reached("pause.lifted")
        return was, (self._release(tenant, "paused", uuid.uuid4().hex, patience) if tenant is not None else 0)

    def _release(self, tenant: str, reason: HeldReason, release: str, patience: float) -> int:
        """Send what is held again, what comes to be held meanwhile included, until nothing is or time is up."""
        sent: set[tuple[int, int]] = set()
        deadline, pause = self.clock() + patience, LOOK_SECONDS[0]
        while True:
            held = [each for each in self.held().values() if each.change.tenant_id == tenant and each.change.reason == reason]
            new = [each for each in held if each.place not in sent]
            self.write(sent_again(new, self.documents, release))
            if new:
                reached("release.sent")
            sent.update(each.place for each in new)
            if not held or self.clock() >= deadline:
                return len(held)
            self.sleep(pause)
            pause = min(pause * 1.5, LOOK_SECONDS[1])


def sent_again(held: Sequence[Holding], documents: str, release: str) -> Iterator[OutRecord]:
    """Yield the held events as they come back through [documents].

    A null value comes back as a delete at the revision that it meant when it came: what was remembered since does not matter to it.
    """
    for each in held:
        change = each.change
        key = document_key(change.tenant_id, change.document_id)
        yield OutRecord(documents, key, change.original or encode(change.end), release_headers(change, release), "release")


def desk_of(settings: Settings, now: Callable[[], datetime]) -> Desk:
    """Return the desk of an installation."""
    topics = settings.topics

    def write(records: Iterable[OutRecord]) -> None:
        from streams.kafka.produce import produce_all

        wanted = list(records)
        if wanted:
            produce_all(settings.kafka, wanted)

    def ends_of(topic: str) -> dict[int, int]:
        from streams.kafka.offsets import end_offsets

        return {partition: end for (_, partition), end in end_offsets(settings.kafka, [topic]).items()}

    def bulk_ends() -> dict[int, int]:
        try:
            return ends_of(topics.bulk)
        except NotPrepared:  # made before there was such a topic: nothing waits there
            return {}

    def ids() -> tuple[str, str]:
        from streams.kafka.admin import topic_ids

        found = topic_ids(settings.kafka, (topics.documents, topics.bulk))
        return found.get(topics.documents, ""), found.get(topics.bulk, "")

    return Desk(
        standing=lambda: read_standing(settings),
        controls=lambda: read_controls(settings),
        held=lambda: read_held(settings),
        write=write,
        ends=lambda: ends_of(topics.documents),
        bulk_ends=bulk_ends,
        topic_ids=ids,
        now=now,
        documents=topics.documents,
        controls_topic=topics.controls,
    )
