"""Whoever sends an event of ours makes a span of it: a release, a resume, a repair go on with the trace that the event brought, a
canary begins one. On the embedded broker, without a worker: what stands in [documents] carries the span."""

from __future__ import annotations

import base64
from collections.abc import Iterator
from datetime import UTC, datetime
from typing import Any

import pytest

from schemas.codec import encode
from schemas.control import Control, Figures
from schemas.document_change import Content, DocumentChange
from schemas.held_change import HeldChange, HeldReason
from streams import telemetry
from streams.audit.repair import RepairPlan, repair
from streams.canary import Canary
from streams.controls.desk import desk_of
from streams.index.memory import MemoryIndex
from streams.kafka.admin import apply_topics
from streams.kafka.produce import OutRecord, produce_all
from streams.kafka.read import read_topic
from streams.ports import InRecord
from streams.settings import KafkaSettings, Settings
from streams.topics import shared_topics

export = pytest.importorskip("opentelemetry.sdk.trace.export.in_memory_span_exporter", reason="needs the extra docdelta[otel]")
TRACE = "0af7651916cd43dd8448eb211c80319c"
BROUGHT = f"00-{TRACE}-b7ad6b7169203331-01"
NOW = datetime(2031, 1, 1, tzinfo=UTC)


@pytest.fixture
def spans() -> Iterator[Any]:
    exporter = export.InMemorySpanExporter()
    telemetry.begin("", "test", exporter)
    yield exporter
    telemetry.end()


@pytest.fixture
def settings(tansu_settings: KafkaSettings, fresh: str) -> Settings:
    """An installation whose topics are there, and nobody at work."""
    kafka = tansu_settings.model_copy(update={"topic_prefix": fresh, "partitions": 1})
    made = Settings(kafka=kafka)
    apply_topics(kafka, shared_topics(made.topics, 1))
    return made


def an_event(document: str, op: Any = "upsert") -> DocumentChange:
    content = {"media_type": "text/plain", "content": Content(text="words")} if op == "upsert" else {}
    return DocumentChange(tenant_id="acme", document_id=document, revision=5, op=op, event_id=f"e-{document}", **content)


def hold(settings: Settings, document: str, reason: HeldReason) -> None:
    """Have an event stand in [held] as the parser puts it there."""
    change = an_event(document, "delete")
    held = HeldChange(
        tenant_id="acme",
        document_id=document,
        revision=5,
        op="delete",
        event_id=change.event_id,
        reason=reason,
        why="a test",
        since=NOW,
        partition=0,
        offset=0,
        value=base64.b64encode(encode(change)).decode("ascii"),
        headers={"traceparent": BROUGHT},
    )
    produce_all(settings.kafka, [OutRecord(settings.topics.held, f"acme/{document}".encode(), encode(held))])


def sent(settings: Settings, spans: Any, document: str, name: str) -> InRecord:
    """Return the newest record of a document in [documents]. It carries the span `name`, which goes on with the event's trace."""
    (span,) = [each for each in spans.get_finished_spans() if each.attributes["docdelta.document"] == document]
    *_, record = read_topic(settings.kafka, settings.topics.documents, f"acme/{document}".encode())
    assert span.name == name
    assert (f"{span.context.trace_id:032x}", f"{span.parent.span_id:016x}") == (TRACE, BROUGHT.split("-")[2])
    assert record.headers["traceparent"].decode().split("-")[2] == f"{span.context.span_id:016x}"
    return record


def test_a_release(settings: Settings, spans: Any) -> None:
    trip = Control(
        kind="tripped",
        at=NOW,
        tenant_id="acme",
        partition=0,
        figures=Figures(counted=9, documents=9, window_seconds=60),
        reason="too many",
    )
    produce_all(settings.kafka, [OutRecord(settings.topics.controls, trip.key, encode(trip))])
    hold(settings, "gone", "breaker")
    desk = desk_of(settings, lambda: NOW)
    desk.rule(desk.plan("acme", "approve", "meant"), patience=0)
    assert b"docdelta-released" not in sent(settings, spans, "gone", "send release").value  # type: ignore[operator]
    (decision,) = desk.controls().decided["acme"]
    assert decision.topic_id, "the decision names the topic that its offsets are of"


def test_a_resume(settings: Settings, spans: Any) -> None:
    desk = desk_of(settings, lambda: NOW)
    desk.pause("acme", "", "a test")
    hold(settings, "parked", "paused")
    desk.resume("acme", "", patience=0)
    sent(settings, spans, "parked", "send release")


async def test_a_repair(settings: Settings, spans: Any) -> None:
    event = OutRecord(settings.topics.documents, b"acme/drifted", encode(an_event("drifted")), {"traceparent": BROUGHT.encode()})
    produce_all(settings.kafka, [event])
    plan = RepairPlan(reindex=(b"acme/drifted",), delete={b"acme/ghost": 7})
    assert await repair(plan, settings, MemoryIndex(), "c", "run") == 2
    sent(settings, spans, "drifted", "send reindex")
    (ghost,) = [each for each in spans.get_finished_spans() if each.attributes["docdelta.document"] == "ghost"]
    assert (ghost.name, ghost.parent) == ("send repair", None), "of what nobody sent there is no trace to go on with"


class Mine(Canary):
    """One whose partition is this worker's."""

    def is_ours(self) -> bool:
        return True


async def test_a_canary(settings: Settings, spans: Any) -> None:
    assert await Mine(settings, "acme", MemoryIndex(), lambda: None).write()
    (span,) = spans.get_finished_spans()
    assert (span.name, span.parent) == ("send canary", None)
    (record,) = read_topic(settings.kafka, settings.topics.documents)
    assert record.headers["traceparent"].decode().split("-")[2] == f"{span.context.span_id:016x}"
