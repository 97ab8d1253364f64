"""Which Faust events the running handler works for. Tables need it: a table key lives in the partition of its record."""

from __future__ import annotations

import weakref
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, nullcontext
from contextvars import ContextVar
from dataclasses import dataclass
from typing import Any

from faust.streams import _current_event
from structlog.contextvars import bound_contextvars

from streams import telemetry
from streams.errors import InvariantBroken
from streams.faustio.tracing import Headers, carried_headers, trace_headers, trace_id

_events: ContextVar[tuple[Any, ...]] = ContextVar("docdelta_events", default=())


@contextmanager
def handling(events: Sequence[Any]) -> Iterator[None]:
    """Mark `events` as the ones in hand, for this task and all it starts."""
    token = _events.set(tuple(events))
    own = telemetry.headers_of(events[0].message.key) if len(events) == 1 else {}
    trace = trace_id(list(own.items()) or trace_headers(events[0])) if len(events) == 1 else ""
    try:
        with bound_contextvars(trace_id=trace) if trace else nullcontext():
            yield
    finally:
        _events.reset(token)


def headers_for(key: bytes) -> Headers:
    """Return the headers for a record with this key: those that the record in hand, of which it is made, hands on. Empty where
    none is."""
    events = _events.get()
    of_key = [event for event in events if event.message.key == key] or (list(events) if len(events) == 1 else [])
    return carried_headers(of_key[-1], telemetry.headers_of(key)) if of_key else []


def event_for(key: bytes) -> Any:
    """Return the event whose partition holds the table key `key`.

    With one record in hand it is that record's; with several, the newest one of the same key. InvariantBroken outside of a handler
    and for a key of no record in hand: its partition may belong to another worker.
    """
    events = _events.get()
    if not events:
        raise InvariantBroken("table used outside of a handler: only records in hand say which partition a key lives in")
    if len(events) == 1:
        return events[0]
    for event in reversed(events):
        if event.message.key == key:
            return event
    raise InvariantBroken("table key belongs to no record of this group", key=key)


@dataclass(frozen=True)
class _Place:
    topic: str
    partition: int
    key: None = None
    headers: None = None


@dataclass(frozen=True)
class _Standing:
    message: _Place


@contextmanager
def standing_in(topic: str, partition: int) -> Iterator[None]:
    """Use tables with no record in hand: every key is taken to live in the partition, of a topic that feeds the table."""
    with handling([_Standing(_Place(topic, partition))]):
        yield


@contextmanager
def acting_for(event: Any) -> Iterator[None]:
    """Make `event` Faust's current one. Faust sets it in the agent's own task only, and RocksDB picks the partition by it."""
    token = _current_event.set(weakref.ref(event))
    try:
        yield
    finally:
        _current_event.reset(token)
