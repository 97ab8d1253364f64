"""Which of two trippings of a partition counts does not depend on clocks: the one that knew the newest decision."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest

from schemas.codec import encode
from schemas.control import Control, Decision
from streams.controls.state import Controls
from streams.ports import InRecord

NOON = datetime(2031, 1, 1, 12, tzinfo=UTC)


def record(control: Control) -> InRecord:
    return InRecord("controls", 0, 0, control.key, encode(control))


def tripped(hours: float, decision: str = "") -> Control:
    at = NOON + timedelta(hours=hours)
    return Control(kind="tripped", at=at, tenant_id="a", partition=0, decision=decision, reason=f"at {hours}")


@pytest.mark.parametrize("hours", [-1, 0, 1])
def test_a_breaker_opens_again_after_a_decision_though_the_clock_was_set_back(hours: float) -> None:
    controls = Controls()
    controls.apply(record(tripped(0)))
    decision = Decision(id="d1", verdict="reject", ends={0: 9}, at=NOON)
    controls.apply(record(controls.with_decision("a", decision, "ops")))
    assert controls.open_breaker("a") is None
    controls.apply(record(tripped(hours, "d1")))
    controls.apply(record(tripped(0)))  # the first one, which only now comes back from the broker
    opened = controls.open_breaker("a")
    assert opened is not None
    assert opened.first.reason == f"at {hours}"
