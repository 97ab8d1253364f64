"""Vital signs of a worker: is each app ready, do its offsets move, is the event loop free. For metrics, `/livez` and `/readyz`.

Not ready: an app recovers its tables or partitions move. Not alive: offsets have not moved for STALLED_SECONDS although records are
in hand and nobody is being waited for. A worker that waits out an outage is alive: starting it anew would mend nothing.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from faust import Sensor

from streams import metrics
from streams.faustio.readiness import assigned_partitions, is_ready

TICK_SECONDS = 1.0
STALLED_SECONDS = 300.0
"""Above what one document may take (parse limit, model, index) many times over."""


@dataclass(slots=True)
class AppVitals:
    """One app under watch. `look` may be called at any time; times are of a monotonic clock, in seconds."""

    app: Any
    since_ready: float
    """When it was last ready, or first looked at."""
    moved_at: float
    """When its offsets last moved, or it had nothing in hand."""
    committed: dict[Any, int | None] = field(default_factory=dict)

    def look(self, now: float, paused: bool = False) -> None:
        """Take note of what the app does now. `paused`: it takes no records because a person said so."""
        ready = is_ready(self.app)
        if ready:
            self.since_ready = now
        committed = committed_offsets(self.app)
        if not ready or paused or committed != self.committed or not records_in_hand(self.app):
            self.moved_at = now
        self.committed = committed

    def not_ready_seconds(self, now: float) -> float:
        """Return how long the app has not been ready; 0 while it is."""
        return 0.0 if is_ready(self.app) else max(0.0, now - self.since_ready)

    def stalled_seconds(self, now: float) -> float:
        """Return how long its offsets have not moved although records are in hand."""
        return max(0.0, now - self.moved_at)


def committed_offsets(app: Any) -> dict[Any, int | None]:
    """Return the offset that the group committed in each partition of this app, by Faust's topic-partition."""
    return dict(app._consumer._committed_offset) if app._consumer is not None else {}


def records_in_hand(app: Any) -> dict[str, int]:
    """Return how many records each agent has taken and not acknowledged; agents that have none are left out."""
    return {runner.name: count for runner in app.runners if (count := runner.records_in_hand)}


def recovery_remaining(app: Any) -> int:
    """Return how many changelog records are still to be read."""
    recovery = app.tables._recovery
    return 0 if recovery is None or app.ready.is_set() else max(0, int(recovery.active_remaining_total()))


def unconfirmed_seconds(app: Any) -> float:
    """Return how long the app's commit has been under way; 0 while none is."""
    began = app.committing_since
    return 0.0 if began is None else max(0.0, time.monotonic() - began)


@dataclass(slots=True)
class Vitals:
    """The apps of a worker. `apps` is asked each time, since they come and go."""

    apps: Callable[[], Mapping[str, Any]]
    clock: Callable[[], float] = time.monotonic
    paused: Callable[[str], bool] = lambda app: False
    _watched: dict[str, AppVitals] = field(default_factory=dict)

    async def watch(self) -> None:
        """Look at the apps every second, for ever, and at how late that second comes."""
        while True:
            self.look()
            asked = self.clock() + TICK_SECONDS
            await asyncio.sleep(TICK_SECONDS)
            metrics.LOOP_LAG.observe(max(0.0, self.clock() - asked))

    def look(self) -> None:
        """Take note of all apps and set their gauges."""
        now, apps = self.clock(), self.apps()
        for name in self._watched.keys() - apps.keys():
            del self._watched[name]
            metrics.forget_app(name)
        for name, app in apps.items():
            watched = self._watched.get(name)
            if watched is None or watched.app is not app:
                watched = self._watched[name] = AppVitals(app, now, now)
            watched.look(now, self.paused(name))
            self._show(name, watched, now)

    def _show(self, name: str, watched: AppVitals, now: float) -> None:
        app = watched.app
        metrics.READY.labels(name).set(is_ready(app))
        metrics.NOT_READY_SECONDS.labels(name).set(watched.not_ready_seconds(now))
        metrics.RECOVERY_REMAINING.labels(name).set(recovery_remaining(app))
        metrics.COMMIT_STALL.labels(name).set(watched.stalled_seconds(now))
        metrics.COMMIT_UNCONFIRMED.labels(name).set(unconfirmed_seconds(app))
        fed = {runner.topic for runner in app.runners}
        owned = sum(len(partitions) for topic, partitions in assigned_partitions(app).items() if topic in fed)
        metrics.PARTITIONS.labels(name).set(owned)
        in_hand = records_in_hand(app)
        for runner in app.runners:
            metrics.IN_HAND.labels(name, runner.name).set(in_hand.get(runner.name, 0))

    def stalled(self) -> dict[str, float]:
        """Return the apps whose offsets have not moved for too long, and the seconds. Empty while anybody is waited for."""
        if metrics.waiting():
            return {}
        now = self.clock()
        found = {name: watched.stalled_seconds(now) for name, watched in self._watched.items()}
        return {name: seconds for name, seconds in found.items() if seconds > STALLED_SECONDS}


class RebalanceSensor(Sensor):  # type: ignore[misc]
    """A Faust sensor that times rebalances: from partitions being given up until records flow again."""

    def __init__(self, name: str) -> None:
        super().__init__()
        self._name = name
        self._began: float | None = None
        metrics.REBALANCES.labels(name)

    def on_rebalance_start(self, app: Any) -> dict[str, Any]:
        """Count it, and begin to time where no earlier one is under way."""
        metrics.REBALANCES.labels(self._name).inc()
        if self._began is None:
            self._began = time.monotonic()
        return {}

    def on_rebalance_end(self, app: Any, state: Any) -> None:
        """Take the time."""
        if self._began is not None:
            metrics.REBALANCE_SECONDS.labels(self._name).observe(time.monotonic() - self._began)
            self._began = None
