"""What is paused, held and open, as gauges. Looked at every second: nothing is scanned, all of it is kept as events pass."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Collection

from streams import metrics
from streams.controls.counts import Counts
from streams.controls.state import Controls

TICK_SECONDS = 1.0


async def watch_controls(controls: Controls, counts: Counts | None, owned: Callable[[], Collection[int]]) -> None:
    """Set the gauges, for ever. `counts`: of the parser app, where this worker hosts it; `owned`: its partitions."""
    while True:
        show(controls)
        if counts is not None:
            for reason, count in counts.held(owned()).items():
                metrics.HELD.labels(reason).set(count)
        await asyncio.sleep(TICK_SECONDS)


def show(controls: Controls) -> None:
    """Set the gauges of what is in force. Of many tenants those that wait longest are shown."""
    opened = sorted(controls.open_breakers(), key=lambda each: (each.since, each.tenant))
    metrics.breakers_open({each.tenant: each.since.timestamp() for each in opened})
    pauses = sorted(controls.pauses.items(), key=lambda item: (item[1].at, item[0]))
    metrics.paused({key.decode("utf-8").removeprefix("pause/"): pause.at.timestamp() for key, pause in pauses})
