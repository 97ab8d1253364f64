"""Is an app ready, and what does it own. For /readyz, for `docdelta status`, and for tests that wait without sleeping."""

from __future__ import annotations

import asyncio
from collections import defaultdict
from typing import Any


def is_ready(app: Any) -> bool:
    """True while the app has its tables recovered, its partitions assigned (perhaps none) and records flowing."""
    return bool(app.ready.is_set() and not app.should_stop and not app.leaving.is_set())


async def wait_ready(app: Any, timeout_seconds: float) -> bool:
    """Return True as soon as the app is ready, False when it is not within the time or went down."""
    down = asyncio.ensure_future(app.gone.wait())
    up = asyncio.ensure_future(app.ready.wait())
    try:
        await asyncio.wait({down, up}, timeout=timeout_seconds, return_when=asyncio.FIRST_COMPLETED)
        return is_ready(app)
    finally:
        down.cancel()
        up.cancel()


def assigned_partitions(app: Any) -> dict[str, tuple[int, ...]]:
    """Return topic → partitions that this app owns now, changelogs included. Empty before the first assignment."""
    if app._consumer is None or not app.ready.is_set():
        return {}
    owned: dict[str, list[int]] = defaultdict(list)
    for tp in app.consumer.assignment():
        owned[tp.topic].append(tp.partition)
    return {topic: tuple(sorted(partitions)) for topic, partitions in sorted(owned.items())}
