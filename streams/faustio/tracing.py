"""Headers that go on from a record to every record that is made of it: its trace, which is in its log lines too, and its lane.

W3C Trace Context (`traceparent`, `tracestate`), carried: a sender that traces finds its trace in [parsed], [changes], [receipts]
and [dead-letters]. With spans on (`streams/telemetry.py`) each record carries the span that made it. Changelogs are left out, since
nobody reads them by trace.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from streams.lanes.mark import HEADER, is_mark

Headers = list[tuple[str, bytes]]
TRACEPARENT = re.compile(rb"[0-9a-f]{2}-([0-9a-f]{32})-[0-9a-f]{16}-[0-9a-f]{2}")
LARGEST_STATE = 512
"""Bytes of `tracestate` that must be carried; a longer one is dropped."""


def trace_headers(event: Any) -> Headers:
    """Return the trace headers of a Faust event as they are sent on; empty where it brought none that are well formed."""
    if not event.message.headers:
        return []
    brought = {name: value for name, value in dict(event.message.headers or ()).items() if isinstance(value, bytes)}
    parent, state = brought.get("traceparent", b""), brought.get("tracestate", b"")
    if not TRACEPARENT.fullmatch(parent):
        return []
    return [("traceparent", parent), ("tracestate", state)] if 0 < len(state) <= LARGEST_STATE else [("traceparent", parent)]


def carried_headers(event: Any, own: Mapping[str, bytes] | None = None) -> Headers:
    """Return all headers of a Faust event that are sent on: its trace (or that of our `own` span), the mark of the bulk lane."""
    lane: Any = dict(event.message.headers or ()).get(HEADER)
    trace = [*own.items()] if own else trace_headers(event)
    return [*trace, *([(HEADER, lane)] if is_mark(lane) else [])]


def trace_id(headers: Headers) -> str:
    """Return the trace's id in hex; empty without one."""
    found = TRACEPARENT.fullmatch(dict(headers).get("traceparent", b""))
    return found[1].decode() if found else ""
