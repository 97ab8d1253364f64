"""Metrics are named once, their labels are closed, and one outcome counts once."""

from __future__ import annotations

import re
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from prometheus_client import generate_latest

from schemas.receipt import Outcome, Receipt
from streams import metrics
from streams.errors import DocdeltaError, Stopping, Unavailable
from streams.index.qdrant_errors import translated
from tests.support.ports import impatient

SOURCES = Path(__file__).resolve().parents[3] / "streams"
TEXT = {path.relative_to(SOURCES).as_posix(): path.read_text(encoding="utf-8") for path in SOURCES.rglob("*.py")}
OWN = [family for family in metrics.REGISTRY.collect() if family.name.startswith("docdelta_")]
UNITS = ("_seconds", "_bytes", "_ratio", "_records", "_points", "_operations", "_partitions", "_ready", "_info", "_in_hand")
T0 = datetime(2031, 1, 1, tzinfo=UTC)


def value(name: str, **labels: str) -> float:
    return metrics.REGISTRY.get_sample_value(name, labels) or 0.0


def receipt(batch: str, outcome: Outcome = "indexed", **more: object) -> Receipt:
    told = {"tenant_id": "acme", "document_id": "d", "revision": 1, "stage": "indexer", "received_at": T0, "settled_at": T0, **more}
    return Receipt(batch=batch, outcome=outcome, **told)  # type: ignore[arg-type]


def test_names_carry_their_unit() -> None:
    for family in OWN:
        if family.type != "counter" and family.name != "docdelta_info":
            assert family.name.endswith(UNITS), family.name


def test_every_label_is_closed_or_named_by_operators() -> None:
    known = metrics.CLOSED.keys() | metrics.NAMED_BY_OPERATORS
    for family in OWN:
        for sample in family.samples:
            for label, found in sample.labels.items():
                if label != "le":
                    assert label in known, (sample.name, label)
                    assert found in metrics.CLOSED.get(label, (found,)), (sample.name, label, found)


def test_metrics_are_made_in_one_file_only() -> None:
    makers = [name for name, text in TEXT.items() if "prometheus_client import" in text]
    assert sorted(makers) == ["metrics.py", "probes.py"]


def test_whoever_waits_says_for_whom() -> None:
    """Every operation that `Patience.hold`, `attempt` or `Group.ask` names is in the table, but those that only hold others."""
    only_hold_others = {"parsing", "chunking"}
    named = set()
    for text in TEXT.values():
        for call in re.finditer(r"\b(?:hold|attempt|(?:self|group)\.ask)\((?!self|operation)", text):
            words = re.findall(r'(?<!f)"([a-z][^"\n{]*)"', _arguments(text, call.end()))
            named |= set(words[-1:])
    assert named - only_hold_others - metrics.WAITS.keys() == set(), "say in metrics.WAITS for whom these wait"
    assert len(named) > 10
    assert metrics.side_of("publish to docdelta.receipts") == "kafka"


def _arguments(text: str, start: int) -> str:
    depth, place = 1, start
    while depth:
        depth += {"(": 1, ")": -1}.get(text[place], 0)
        place += 1
    return text[start:place]


def test_every_action_on_the_index_is_in_the_table() -> None:
    text = TEXT["index/qdrant.py"]
    named = set(re.findall(r'(?:translated|_read)\(\s*f?"([a-z ]+)', text))
    assert named - metrics.INDEX_ACTIONS.keys() == set(), "name these in metrics.INDEX_ACTIONS"
    assert len(named) > 10


@pytest.mark.parametrize("outcome", metrics.OUTCOMES)
def test_an_outcome_counts_once(outcome: Outcome) -> None:
    before = value("docdelta_documents_total", batch="one", stage="indexer", outcome=outcome)
    metrics.settled(receipt("one", outcome))
    assert value("docdelta_documents_total", batch="one", stage="indexer", outcome=outcome) == before + 1


def test_chunks_and_embeddings_are_those_of_the_receipt() -> None:
    metrics.settled(receipt("two", kept=10, added=5, updated=3, removed=2, embedded=2, borrowed=2))
    chunks = {change: value("docdelta_chunks_total", batch="two", change=change) for change in metrics.CHANGES}
    assert chunks == {"kept": 10, "added": 5, "updated": 3, "removed": 2}
    embeddings = {source: value("docdelta_embeddings_total", batch="two", source=source) for source in metrics.SOURCES}
    assert embeddings == {"computed": 2, "borrowed": 2, "avoided": 14}, "18 chunks stand; 4 needed a vector from somewhere"


def test_only_what_became_searchable_is_timed_and_never_below_zero() -> None:
    metrics.settled(receipt("three", settled_at=T0 + timedelta(seconds=2)))
    metrics.settled(receipt("three", settled_at=T0 - timedelta(seconds=9)))  # a producer whose clock is ahead
    metrics.settled(receipt("three", "unchanged", settled_at=T0 + timedelta(days=9)))  # a replay of what is there
    assert value("docdelta_publish_to_searchable_seconds_count", batch="three", lane="live") == 2
    assert value("docdelta_publish_to_searchable_seconds_sum", batch="three", lane="live") == 2


async def test_an_operation_shows_as_waiting_from_its_first_failure_to_its_end() -> None:
    tries = iter([Unavailable("away"), Unavailable("slow down", 0.0), None])
    seen: list[dict[str, int]] = []
    retries, told = value("docdelta_retries_total", side="index"), value("docdelta_rate_limited_total", side="index")

    async def write() -> str:
        seen.append(metrics.waiting())
        if (error := next(tries)) is not None:
            raise error
        return "done"

    assert await impatient().hold(write, "writing points") == "done"
    assert seen == [{}, {"index": 1}, {"index": 1}]
    assert metrics.waiting() == {}
    assert value("docdelta_retries_total", side="index") == retries + 2
    assert value("docdelta_rate_limited_total", side="index") == told + 1


async def test_who_is_told_to_stop_waits_no_more() -> None:
    patience = impatient()

    async def away() -> None:
        patience.stopping.set()
        raise Unavailable("away")

    with pytest.raises(Stopping):
        await patience.hold(away, "embedding")
    assert metrics.waiting() == {}


@pytest.mark.parametrize(
    ("error", "kind"),
    [
        pytest.param(OSError("No space left on device"), "disk_full", id="a full disk"),
        pytest.param(OSError("broken"), "server_error", id="a broken file"),
        pytest.param(ValueError("bad vector"), "refused", id="a refusal"),
        pytest.param(KeyError("collection x not found"), "other", id="nothing there"),
    ],
)
def test_a_failure_of_the_index_has_a_kind(error: Exception, kind: str) -> None:
    before = value("docdelta_index_failures_total", action="write", failure=kind)
    calls = value("docdelta_index_request_seconds_count", action="write")
    with pytest.raises(DocdeltaError), translated("write, request 1 of 2", "c", writing=True):
        raise error
    assert value("docdelta_index_failures_total", action="write", failure=kind) == before + 1
    assert value("docdelta_index_request_seconds_count", action="write") == calls + 1


def test_an_app_that_left_leaves_no_gauges() -> None:
    metrics.READY.labels("gone").set(1)
    metrics.IN_HAND.labels("gone", "indexer").set(3)
    metrics.forget_app("gone")
    assert 'app="gone"' not in generate_latest(metrics.REGISTRY).decode()
