"""FaustLog: streams.ports.Log over an app's own producer."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from streams.faustio.delivery import deliver
from streams.faustio.scope import headers_for
from streams.faustio.tracing import trace_id
from streams.lanes.mark import HEADER
from streams.ports import NO_HEADERS
from streams.topics import MAX_RECORD_BYTES


class FaustLog:
    """Publishes with murmur2 partitioning by key, as Java clients do; confluent producers match with `partitioner=murmur2_random`.

    `topic.send()` of Faust ends before delivery, and delivery failures are only logged: here both are awaited.
    """

    def __init__(self, app: Any, limits: Mapping[str, int] | None = None) -> None:
        """`limits`: size limit in bytes of topics whose limit is not MAX_RECORD_BYTES."""
        self._app = app
        self._limits = dict(limits or {})

    async def publish(self, topic: str, key: bytes, value: bytes | None, headers: Mapping[str, bytes] = NO_HEADERS) -> None:
        """Append a record; ends when the broker has it. Errors as in `deliver`."""
        limit = self._limits.get(topic, MAX_RECORD_BYTES)
        await deliver(self._app, topic, key, value, limit=limit, headers=[*headers_for(key), *headers.items()])

    def trace_id(self, key: bytes) -> str:
        """Return the trace of the record in hand with this key; empty without one."""
        return trace_id(headers_for(key))

    def lane(self, key: bytes) -> str:
        """Return the lane of the record in hand with this key."""
        return "bulk" if any(name == HEADER for name, _ in headers_for(key)) else "live"
