"""Claims about spans: parents as records hand them on, nothing while off, nothing recorded of a trace that is not sampled."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from typing import Any

import pytest

from streams import telemetry
from streams.errors import NotPrepared

export = pytest.importorskip("opentelemetry.sdk.trace.export.in_memory_span_exporter", reason="needs the extra docdelta[otel]")
PLACE = {"messaging.kafka.offset": 7}
TRACE = "0af7651916cd43dd8448eb211c80319c"


@pytest.fixture
def spans() -> Iterator[Any]:
    exporter = export.InMemorySpanExporter()
    telemetry.begin("", "test", exporter)
    yield exporter
    telemetry.end()


def test_off_there_is_nothing() -> None:
    telemetry.end()
    telemetry.begin("", "test")

    def never() -> Iterator[telemetry.Traced]:
        raise AssertionError("records are looked at")
        yield

    with telemetry.stage("parser", "g", never()), telemetry.call("embed"):
        assert telemetry.headers_of(b"acme/a") == {}
    assert telemetry.sending("t", "acme", "a", "upsert")[0] == {}


def test_each_stage_is_the_child_of_the_one_that_made_its_record(spans: Any) -> None:
    headers, sent = telemetry.sending("documents", "acme", "a", "upsert")
    sent("")
    for name in ("parser", "chunker"):
        with telemetry.stage(name, "g", [(b"acme/a", headers, PLACE)]):
            headers = telemetry.headers_of(b"acme/a")
    with telemetry.stage("indexer", "g", [(b"acme/a", headers, PLACE), (b"acme/b", {}, PLACE)]):
        with telemetry.call("embed", **{"docdelta.texts": 3}):
            pass
        telemetry.outcome(b"acme/a", "indexed", {"embedded": 3})
        own = telemetry.headers_of(b"acme/b")
    found = {(span.name, span.attributes.get("docdelta.document")): span for span in spans.get_finished_spans()}
    chain = [found[name, "a"] for name in ("send upsert", "parser", "chunker", "indexer")]
    for parent, child in itertools.pairwise(chain):
        assert child.parent.span_id == parent.context.span_id
        assert child.context.trace_id == chain[0].context.trace_id
    call, other = found["embed", None], found["indexer", "b"]
    assert call.parent.span_id == chain[-1].context.span_id
    assert [link.context.span_id for link in call.links] == [other.context.span_id]
    assert other.parent is None
    assert own["traceparent"].decode().split("-")[1] == f"{other.context.trace_id:032x}"
    assert chain[-1].attributes["docdelta.outcome"] == "indexed"


def test_what_is_sent_again_goes_on_with_the_trace_that_it_brought_and_keeps_its_other_headers(spans: Any) -> None:
    brought = {"traceparent": f"00-{TRACE}-b7ad6b7169203331-01".encode(), "docdelta-released": b"7/x"}
    headers, sent = telemetry.sending("documents", "acme", "a", "reindex", brought)
    sent("")
    (span,) = spans.get_finished_spans()
    assert (span.name, f"{span.parent.span_id:016x}") == ("send reindex", "b7ad6b7169203331")
    assert f"{span.context.trace_id:032x}" == TRACE
    assert headers["docdelta-released"] == b"7/x"
    assert headers["traceparent"].decode().split("-")[2] == f"{span.context.span_id:016x}"
    telemetry.end()
    assert telemetry.sending("documents", "acme", "a", "reindex", brought)[0] == brought


def test_a_trace_that_its_sender_does_not_sample_is_carried_and_not_recorded(spans: Any) -> None:
    brought = {"traceparent": f"00-{TRACE}-b7ad6b7169203331-00".encode(), "tracestate": b"x=1"}
    with telemetry.stage("parser", "g", [(b"acme/a", brought, PLACE)]):
        handed_on = telemetry.headers_of(b"acme/a")
    assert spans.get_finished_spans() == ()
    assert handed_on["traceparent"].decode().split("-")[1] == TRACE
    assert handed_on["traceparent"].endswith(b"-00")
    assert handed_on["tracestate"] == b"x=1"


def test_a_failure_shows_by_its_class_alone(spans: Any) -> None:
    with pytest.raises(NotPrepared), telemetry.stage("parser", "g", [(b"nonsense", {"traceparent": b"\xff"}, PLACE)]):
        raise NotPrepared("a secret stands here")
    (span,) = spans.get_finished_spans()
    assert (span.status.description, span.events) == ("NotPrepared", ())
    assert "docdelta.tenant" not in span.attributes
