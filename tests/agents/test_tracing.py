"""A trace goes from record to record, each record's own; a header that is none goes nowhere."""

from __future__ import annotations

from typing import Any

import pytest
import structlog

from streams.faustio.log import FaustLog
from streams.faustio.scope import handling, headers_for
from streams.faustio.tracing import trace_headers
from tests.agents.fake_faust import FakeEvent, FakeMessage

TRACE = "0af7651916cd43dd8448eb211c80319c"
PARENT = f"00-{TRACE}-b7ad6b7169203331-01".encode()
OTHER = PARENT.replace(b"0af7", b"1111")


def an_event(key: bytes, **headers: Any) -> FakeEvent:
    return FakeEvent(FakeMessage("t", 0, 0, key, b"v", headers=list(headers.items())))


def test_what_is_made_of_a_record_carries_its_trace() -> None:
    with handling([an_event(b"a/1", traceparent=PARENT, tracestate=b"x=1", cookie=b"secret")]):
        assert headers_for(b"a/1") == [("traceparent", PARENT), ("tracestate", b"x=1")]
        assert headers_for(b"another key of the same record") == headers_for(b"a/1")
        assert structlog.contextvars.get_contextvars() == {"trace_id": TRACE}
    assert headers_for(b"a/1") == []
    assert structlog.contextvars.get_contextvars() == {}


def test_an_outcome_is_logged_with_the_trace_of_its_own_record() -> None:
    log = FaustLog(app=None)
    with handling([an_event(b"a", traceparent=PARENT), an_event(b"b")]):
        assert log.trace_id(b"a") == TRACE
        assert log.trace_id(b"b") == ""
    assert log.trace_id(b"a") == ""


def test_in_a_group_each_key_has_the_trace_of_its_newest_record() -> None:
    group = [an_event(b"a", traceparent=OTHER), an_event(b"b"), an_event(b"a", traceparent=PARENT)]
    with handling(group):
        assert headers_for(b"a") == [("traceparent", PARENT)]
        assert headers_for(b"b") == []
        assert headers_for(b"c") == []


@pytest.mark.parametrize(
    "headers",
    [
        pytest.param({}, id="none"),
        pytest.param({"traceparent": None}, id="null"),
        pytest.param({"traceparent": b""}, id="empty"),
        pytest.param({"traceparent": PARENT + b"\nx"}, id="more behind it"),
        pytest.param({"traceparent": PARENT.upper()}, id="capitals"),
        pytest.param({"tracestate": b"x=1"}, id="a state alone"),
    ],
)
def test_what_is_no_trace_is_not_carried(headers: dict[str, Any]) -> None:
    assert trace_headers(an_event(b"k", **headers)) == []


def test_a_state_that_is_too_long_is_dropped_alone() -> None:
    assert trace_headers(an_event(b"k", traceparent=PARENT, tracestate=b"x" * 513)) == [("traceparent", PARENT)]
