"""Spans of OpenTelemetry, from the sender over each stage to the calls of index and model. Off unless an endpoint is set.

Needs the extra ``docdelta[otel]``; nothing of it is imported before `begin`. A sender's span is the parent of the parser's, that of
the chunker's, and so on: with spans on, a record carries the span that made it (W3C `traceparent`), and without, what it brought. A
record that brings no trace begins one. A trace that its sender does not sample is carried and not recorded.

Attributes name tenants, documents, places and counts. Never text, titles, headers or keys of the index.
"""

from __future__ import annotations

import atexit
import threading
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from typing import Any

from streams.errors import NotPrepared

END_SECONDS = 3.0
"""How long the last spans may take to leave when a process ends; after that they are lost."""


Traced = tuple[bytes | None, Mapping[str, bytes], Mapping[str, str | int]]
"""Key, headers and place of a record."""


@dataclass(frozen=True, slots=True)
class _Tracing:
    provider: Any
    tracer: Any
    api: Any
    w3c: Any


@dataclass(frozen=True, slots=True)
class _Own:
    """A span of one record in hand."""

    key: bytes | None
    span: Any


_tracing: _Tracing | None = None
_own: ContextVar[tuple[_Own, ...]] = ContextVar("docdelta_spans", default=())


def begin(endpoint: str, service: str, exporter: Any = None) -> None:
    """Report spans to an OTLP/HTTP endpoint (its whole URL, such as http://collector:4318/v1/traces) from now on; "" does nothing.

    exporter: a span exporter in its place. NotPrepared where the extra is not installed.
    """
    global _tracing
    if not endpoint and exporter is None:
        return
    try:
        from opentelemetry import trace
        from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
        from opentelemetry.sdk.resources import Resource
        from opentelemetry.sdk.trace import TracerProvider
        from opentelemetry.sdk.trace.export import BatchSpanProcessor, SimpleSpanProcessor
        from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator
    except ImportError as error:
        raise NotPrepared("setting otel.endpoint needs the extra: pip install 'docdelta[otel]'") from error
    end()
    # Not the global provider: a host application keeps its own.
    provider = TracerProvider(resource=Resource.create({"service.name": service}), shutdown_on_exit=False)
    provider.add_span_processor(
        SimpleSpanProcessor(exporter) if exporter is not None else BatchSpanProcessor(OTLPSpanExporter(endpoint=endpoint))
    )
    atexit.register(end)
    _tracing = _Tracing(provider, provider.get_tracer("docdelta"), trace, TraceContextTextMapPropagator())


def end() -> None:
    """Send what is left, for at most END_SECONDS, and report nothing more."""
    global _tracing
    ending, _tracing = _tracing, None
    if ending is not None:
        last = threading.Thread(target=ending.provider.shutdown, name="last spans", daemon=True)
        last.start()
        last.join(END_SECONDS)


def sending(
    topic: str, tenant: str, document: str, op: str, brought: Mapping[str, bytes] | None = None
) -> tuple[dict[str, bytes], Callable[[str], None]]:
    """Return the headers of an event about to be sent, and what to call once: with "" when the broker has it, or the error.

    brought: headers that it has already. A trace among them is the span's parent, and gives way to the span; off, all stay.
    """
    tracing, brought = _tracing, brought or {}
    if tracing is None:
        return dict(brought), lambda error: None
    attributes = {"messaging.system": "kafka", "messaging.destination.name": topic, **_names(tenant, document), "docdelta.op": op}
    kind, parent = tracing.api.SpanKind.PRODUCER, _parent(tracing, brought)
    span = tracing.tracer.start_span(f"send {op}", context=parent, kind=kind, attributes=attributes)

    def finish(error: str) -> None:
        if error:
            span.set_status(tracing.api.StatusCode.ERROR, error)
        span.end()

    return {**brought, **_headers(tracing, span)}, finish


@contextmanager
def stage(name: str, group: str, records: Iterable[Traced]) -> Iterator[None]:
    """Give each record in hand a span for the time of the block, child of what it brought. Not looked at while off."""
    tracing = _tracing
    if tracing is None:
        yield
        return
    kind = tracing.api.SpanKind.CONSUMER
    made = []
    for key, headers, place in records:
        attributes = {"messaging.system": "kafka", "messaging.consumer.group.name": group, **place, **_names_of(key)}
        parent = _parent(tracing, headers)
        made.append(_Own(key, tracing.tracer.start_span(name, context=parent, kind=kind, attributes=attributes)))
    token = _own.set(tuple(made))
    try:
        yield
    except BaseException as error:
        for own in made:
            own.span.set_status(tracing.api.StatusCode.ERROR, type(error).__name__)
        raise
    finally:
        _own.reset(token)
        for own in made:
            own.span.end()


def headers_of(key: bytes | None) -> dict[str, bytes]:
    """Return the trace headers of the span of a record in hand; empty while no spans are made."""
    tracing = _tracing
    own = _of_key(key) if tracing is not None else None
    return _headers(tracing, own.span) if tracing is not None and own is not None else {}


def outcome(key: bytes, settled: str, figures: Mapping[str, int | str]) -> None:
    """Write the outcome of an event, and its figures, into the span of the record in hand."""
    own = _of_key(key) if _tracing is not None else None
    if own is not None:
        own.span.set_attributes({"docdelta.outcome": settled, **{f"docdelta.{name}": value for name, value in figures.items()}})


@contextmanager
def call(name: str, **attributes: str | int) -> Iterator[None]:
    """Make a span of a call of another side, for the time of the block. With a group of records in hand it belongs to the first and
    links to the others."""
    tracing, owned = _tracing, _own.get()
    if tracing is None or not owned:
        yield
        return
    api = tracing.api
    links = [api.Link(own.span.get_span_context()) for own in owned[1:]]
    parent = api.set_span_in_context(owned[0].span)
    span = tracing.tracer.start_span(name, context=parent, kind=api.SpanKind.CLIENT, attributes=attributes, links=links)
    try:
        yield
    except BaseException as error:
        span.set_status(api.StatusCode.ERROR, type(error).__name__)
        raise
    finally:
        span.end()


def _of_key(key: bytes | None) -> _Own | None:
    owned = _own.get()
    of_key = [own for own in owned if own.key == key] or (list(owned) if len(owned) == 1 else [])
    return of_key[-1] if of_key else None


def _parent(tracing: _Tracing, headers: Mapping[str, bytes]) -> Any:
    """Return the context of the trace that a record's headers bring; an empty one where they bring none."""
    carrier = {name: headers[name].decode("ascii", "replace") for name in ("traceparent", "tracestate") if name in headers}
    return tracing.w3c.extract(carrier)


def _headers(tracing: _Tracing, span: Any) -> dict[str, bytes]:
    carrier: dict[str, str] = {}
    tracing.w3c.inject(carrier, context=tracing.api.set_span_in_context(span))
    return {name: value.encode("ascii") for name, value in carrier.items()}


def _names(tenant: str, document: str) -> dict[str, str]:
    return {"docdelta.tenant": tenant, "docdelta.document": document}


def _names_of(key: bytes | None) -> dict[str, str]:
    tenant, slash, document = (key or b"").decode("utf-8", "replace").partition("/")
    return _names(tenant, document) if slash else {}
