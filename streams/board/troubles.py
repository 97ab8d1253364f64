"""Troubles: the red states of an installation, each with its cause and the one action that mends it. Pure.

A trouble is a kind of a closed set and facts. The words, in each language, stand in page/words.json under the kind's name.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Literal, Protocol

from schemas.batch import BatchRecord
from schemas.control import Control
from streams.board.lag_book import GroupRow
from streams.board.workers import WorkerFacts, risen, seconds_a_call

Level = Literal["red", "amber"]
Facts = Mapping[str, str | int | float]

KINDS: Mapping[str, Level] = {
    "broker_away": "red",
    "index_away": "red",
    "lag_unknown": "amber",
    "no_batch": "red",
    "alias_missing": "red",
    "alias_differs": "red",
    "nobody_works": "red",
    "group_stands": "red",
    "documents_wait": "red",
    "canary_old": "red",
    "dead_letters": "red",
    "held": "red",
    "breaker_open": "red",
    "paused": "amber",
    "gate_fails": "red",
    "build_refused": "red",
    "build_stands": "amber",
    "bulk_stands": "amber",
    "worker_away": "red",
    "worker_waits": "red",
    "commits_stall": "red",
    "commits_refused": "red",
    "recovering": "amber",
    "not_ready": "amber",
    "embedder_slow": "amber",
    "embedder_fails": "red",
    "disk_full": "red",
    "drift": "red",
    "topic_missing": "amber",
}
"""Every kind, most urgent first within a colour, with its colour."""

STANDS = {"build": "build_stands", "bulk": "bulk_stands"}
"""What it is called when a group of that lane does not move."""
WAIT_SECONDS = 600.0
STAND_SECONDS = 45.0
"""How long offsets may stand still, beyond the grace in which nothing is committed after a handover."""
RECOVERY_SECONDS = 30.0
STALL_SECONDS = 30.0
CALL_SECONDS = 5.0
CANARY_SECONDS = 180.0
READING_SECONDS = 45.0


@dataclass(frozen=True, slots=True)
class Trouble:
    """One red or amber state. `command`: what mends it, to be typed; empty where the words alone say what to do."""

    kind: str
    facts: Facts = field(default_factory=dict)
    command: str = ""
    since: float | None = None

    @property
    def level(self) -> Level:
        """Its colour."""
        return KINDS[self.kind]


@dataclass(frozen=True, slots=True)
class Outage:
    """A side that can't be asked: since when, and in whose words."""

    since: float
    said: str


@dataclass(frozen=True, slots=True)
class GateLine:
    """One line of a batch's gate."""

    name: str
    passed: bool
    figure: str
    advice: str
    waits: bool


@dataclass(frozen=True, slots=True)
class GateVerdict:
    """What the gate said, and when."""

    at: float
    lines: tuple[GateLine, ...]
    problem: str = ""

    @property
    def fails(self) -> GateLine | None:
        """The first line that does not hold and won't come true by itself."""
        return next((line for line in self.lines if not line.passed and not line.waits), None)


@dataclass(frozen=True, slots=True)
class Surroundings:
    """What is known beside the records: both sides, lag, workers, gates, operators' decisions."""

    broker: Outage | None = None
    index: Outage | None = None
    missing: tuple[str, ...] = ()
    """Topics that can't be followed because they do not exist."""
    caught_up: bool = True
    lag_at: float | None = None
    grace_seconds: float = 0.0
    groups: tuple[GroupRow, ...] = ()
    tenants: Mapping[str, float] = field(default_factory=dict)
    """Tenants that wait longest, and since when."""
    alias_target: str | None = None
    """Collection that the alias points at; empty: there is no alias; None: not known."""
    workers: tuple[WorkerFacts, ...] = ()
    workers_before: tuple[WorkerFacts, ...] = ()
    """The same about a minute ago."""
    gates: Mapping[str, GateVerdict] = field(default_factory=dict)
    breakers: Mapping[str, tuple[int, float]] = field(default_factory=dict)
    """Tenants whose deletes (or changes) are held: how many are, and since when."""
    refused: Mapping[str, tuple[Control, ...]] = field(default_factory=dict)
    """Builds that workers can't host, by their group: who, and why."""
    paused: tuple[str, ...] = ()
    """What operators paused, as `docdelta pause` names it."""


class Records(Protocol):
    """What the rules ask of the records: `BoardState` on the page, what a command read otherwise (glance.py)."""

    @property
    def served(self) -> BatchRecord | None:
        """The batch that readers see, by the ledger."""
        ...

    @property
    def open_letters(self) -> int:
        """Dead letters that are open."""
        ...

    @property
    def newest_reason(self) -> str:
        """Why the newest open letter was refused."""
        ...

    @property
    def held_changes(self) -> int:
        """Changes that wait for a person."""
        ...


def troubles(state: Records, around: Surroundings, now: float) -> list[Trouble]:
    """Return all troubles of now, most urgent first."""
    found = [*_sides(state, around, now), *_flow(around, now), *_documents(state, around), *_batches(around)]
    for worker in around.workers:
        before = next((each for each in around.workers_before if each.name == worker.name and not each.problem), None)
        found += _worker(worker, before, around.broker is not None)
    rank = {kind: place for place, kind in enumerate(KINDS)}
    return sorted(found, key=lambda trouble: (trouble.level != "red", rank[trouble.kind]))


def _sides(state: Records, around: Surroundings, now: float) -> Iterator[Trouble]:
    if around.broker is not None:
        yield Trouble("broker_away", {"said": around.broker.said}, since=around.broker.since)
    elif around.lag_at is not None and now - around.lag_at > READING_SECONDS:
        yield Trouble("lag_unknown", since=around.lag_at)
    if around.index is not None:
        yield Trouble("index_away", {"said": around.index.said}, since=around.index.since)
    for topic in around.missing:
        yield Trouble("topic_missing", {"topic": topic}, "docdelta topics apply")
    served = state.served
    if around.caught_up and around.broker is None and served is None:
        yield Trouble("no_batch", command="docdelta init --policy FILE")
    if served is not None and around.alias_target == "" and around.index is None:
        yield Trouble("alias_missing", {"batch": served.batch}, "docdelta worker")
    elif served is not None and around.alias_target not in (None, served.collection) and around.index is None:
        facts = {"batch": served.batch, "target": around.alias_target or ""}
        yield Trouble("alias_differs", facts, f"docdelta switch {served.batch}")


def _flow(around: Surroundings, now: float) -> Iterator[Trouble]:
    paused = bool(around.paused)
    for group in around.groups:
        if group.lag and not group.members and (refusals := around.refused.get(group.group)):
            first = refusals[0]
            facts = {"group": group.group, "worker": first.by, "said": first.reason}
            batch = first.stage.removeprefix("batch:")
            yield Trouble("build_refused", facts, f"docdelta retire {batch}", first.at.timestamp())
        elif group.lag and group.members == 0:
            yield Trouble("nobody_works", {"group": group.group, "lag": group.lag}, "docdelta worker", group.stands)
        elif group.stands is not None and now - group.stands > STAND_SECONDS + around.grace_seconds and not paused:
            kind = STANDS.get(group.lane, "group_stands")
            yield Trouble(kind, {"group": group.group, "lag": group.lag}, "docdelta status", group.stands)
    waiting = {tenant: since for tenant, since in around.tenants.items() if now - since > WAIT_SECONDS}
    if waiting:
        tenant, since = min(waiting.items(), key=lambda found: found[1])
        yield Trouble("documents_wait", {"tenant": tenant, "tenants": len(waiting)}, "docdelta status", since)
    for what in around.paused:
        yield Trouble("paused", {"what": what}, f"docdelta resume {what}")


def _documents(state: Records, around: Surroundings) -> Iterator[Trouble]:
    if letters := state.open_letters:
        yield Trouble("dead_letters", {"count": letters, "reason": state.newest_reason}, "docdelta dead-letters list")
    for tenant, (count, since) in around.breakers.items():
        yield Trouble("breaker_open", {"tenant": tenant, "count": count}, f"docdelta breaker approve {tenant}", since)
    if (held := state.held_changes) and not around.breakers and not around.paused:
        yield Trouble("held", {"count": held}, "docdelta breaker list")


def _batches(around: Surroundings) -> Iterator[Trouble]:
    for batch, verdict in around.gates.items():
        if (line := verdict.fails) is not None:
            facts = {"batch": batch, "line": line.name, "figure": line.figure, "advice": line.advice}
            yield Trouble("gate_fails", facts, f"docdelta gate {batch}", verdict.at)


def _worker(worker: WorkerFacts, before: WorkerFacts | None, broker_away: bool) -> Iterable[Trouble]:
    name = worker.name
    if worker.problem:
        yield Trouble("worker_away", {"worker": name, "said": worker.problem}, "docdelta worker")
        return
    for side, count in worker.by("docdelta_waiting_operations", "side").items():
        if count:
            yield Trouble("worker_waits", {"worker": name, "side": side, "count": int(count)})
    slow = (seconds_a_call(before, worker) or 0.0) > CALL_SECONDS
    waits = worker.total("docdelta_waiting_operations") > 0
    unconfirmed = worker.by("docdelta_commit_unconfirmed_seconds", "app")
    for app, seconds in unconfirmed.items():
        if seconds > STALL_SECONDS and not waits and not broker_away:
            yield Trouble("commits_refused", {"worker": name, "app": app}, since=worker.at - seconds)
    for app, seconds in worker.by("docdelta_commit_stall_seconds", "app").items():
        if seconds > STALL_SECONDS and not (waits or slow or unconfirmed.get(app, 0.0) > CALL_SECONDS):  # these are the cause
            yield Trouble("commits_stall", {"worker": name, "app": app}, since=worker.at - seconds)
    left = worker.by("docdelta_recovery_remaining_records", "app")
    for app, seconds in worker.by("docdelta_app_not_ready_seconds", "app").items():
        if seconds > RECOVERY_SECONDS:
            kind = "recovering" if left.get(app) else "not_ready"
            yield Trouble(kind, {"worker": name, "app": app, "left": int(left.get(app, 0))}, since=worker.at - seconds)
    if slow:
        yield Trouble("embedder_slow", {"worker": name, "seconds": round(seconds_a_call(before, worker) or 0.0, 1)})
    if failed := risen(before, worker, "docdelta_embedder_failures_total"):
        yield Trouble("embedder_fails", {"worker": name, "count": int(failed)})
    if risen(before, worker, "docdelta_index_failures_total", failure="disk_full"):
        yield Trouble("disk_full", {"worker": name})
    for tenant, age in worker.by("docdelta_canary_age_seconds", "tenant").items():
        if age > CANARY_SECONDS:
            yield Trouble("canary_old", {"tenant": tenant}, since=worker.at - age)
    for kind, count in worker.by("docdelta_drift_points", "kind").items():
        if count:
            yield Trouble("drift", {"kind": kind, "count": int(count)}, "docdelta audit --repair")
