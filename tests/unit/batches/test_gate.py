"""The gate: each condition refuses with its figure and what to do, and says whether waiting helps."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime

import pytest

from chunking.policy import load_policy
from schemas.batch import LaunchRecord
from streams.batches.evidence import Agreement
from streams.batches.gate import Evidence, Limits, Recall, judge
from streams.batches.ledger import with_state
from streams.batches.record import batch_record, collection_spec
from streams.kafka.offsets import PartitionLag
from streams.ports import Readiness
from tests.support.batches import GREEN, NOW

POLICY = load_policy(GREEN)
LAUNCH = LaunchRecord(at=datetime(2031, 1, 1, tzinfo=UTC), parsed={0: 10, 1: 5}, documents=12, chunks=40)
BATCH = with_state(batch_record(POLICY, GREEN, "building", "docs", NOW), launch=LAUNCH)
SPEC = collection_spec(BATCH, POLICY)
GOOD = Evidence(
    batch=BATCH,
    offsets=(PartitionLag("parsed", 0, 0, 12, 15), PartitionLag("parsed", 1, 0, 5, 5), PartitionLag("changes", 0, 0, 20, 21)),
    parsed_topic="parsed",
    agreement=Agreement(documents=12, chunks=40, points=40),
    unknown=(),
    refused={},
    held={},
    stray_letters=(),
    readiness=Readiness(True, "status green"),
    spec=SPEC,
    wanted_spec=SPEC,
    probes=8,
    missed_probes=(),
)
LIMITS = Limits(max_lag=4, recall_tolerance=0.02)


def test_a_busy_site_can_switch_though_its_log_never_ends() -> None:
    """What must be past are the offsets of the launch; the end that moves on only has to be near."""
    verdict = judge(GOOD, LIMITS)
    assert verdict.passed, str(verdict)
    assert "15 of 15 offsets" in str(verdict)
    assert "lag: 4 records, limit 4" in str(verdict)
    moving = replace(GOOD, agreement=Agreement(documents=12, chunks=40, points=41, in_flight=3, edited=1))
    assert judge(moving, LIMITS).passed


@pytest.mark.parametrize(
    ("change", "words", "waits"),
    [
        pytest.param({"offsets": (PartitionLag("parsed", 0, 0, 7, 7),)}, "launch offsets: 12 of 15", True, id="launch"),
        pytest.param({"offsets": (*GOOD.offsets, PartitionLag("changes", 1, 0, None, 1))}, "lag: 5 records", True, id="lag"),
        pytest.param({"unknown": ("acme/d1",)}, "unknown: acme/d1", True, id="document-unknown"),
        pytest.param({"agreement": Agreement(12, 40, 39)}, "count: 39 points (exact) against 40", True, id="count"),
        pytest.param(
            {"agreement": Agreement(12, 40, 40, wrong=("acme/d7",)), "offsets": ()}, "differ: acme/d7", False, id="ids-differ"
        ),
        pytest.param(
            {"agreement": Agreement(12, 40, 40, wrong=("acme/d7",)), "offsets": (), "behind_before": 3},
            "differ: acme/d7",
            True,
            id="ids-differ-and-all-was-done-only-after-the-look",
        ),
        pytest.param(
            {"agreement": Agreement(12, 40, 40, wrong=("acme/d7",), moved=True), "offsets": ()},
            "differ: acme/d7",
            True,
            id="ids-differ-and-edited-meanwhile",
        ),
        pytest.param({"refused": {"acme/d13": "no vector"}}, "acme/d13 (no vector)", False, id="PO-06-dead-letter"),
        pytest.param({"agreement": Agreement(12, 40, 40, suspect=("acme/d77",))}, "acme/d77", False, id="PO-06-in-doubt"),
        pytest.param({"stray_letters": ("changes[0]@7: not JSON",)}, "changes[0]@7", False, id="stray-letter"),
        pytest.param({"held": {"acme/d2": "ask first"}}, "held: acme/d2", False, id="held"),
        pytest.param({"readiness": Readiness(False, "status yellow")}, "status yellow; wait", True, id="optimizer"),
        pytest.param({"spec": replace(SPEC, embedding_spec="other")}, "embedding_spec is 'other'", False, id="metadata"),
        pytest.param({"spec": None}, "collection does not exist", True, id="no-collection"),
        pytest.param({"missed_probes": ("acme/d1 chk_1",)}, "7 of 8 chunks", True, id="probe"),
        pytest.param({"recall": Recall(5, 0.87, 0.9, 60)}, "recall@5: 0.870 against 0.900", False, id="recall"),
        pytest.param(
            {"recall": Recall(5, 0.4, 0.9, 60), "agreement": Agreement(12, 40, 21, wrong=("acme/d7",)), "behind_before": 9},
            "recall@5: 0.400 against 0.900",
            True,
            id="recall-of-points-that-were-on-their-way",
        ),
        pytest.param(
            {"recall": Recall(5, 0.4, 0.9, 60), "unknown": ("acme/d1",)},
            "while not all of the build was there",
            True,
            id="recall-of-a-part",
        ),
    ],
)
def test_what_is_amiss_is_refused_with_its_figure(change: dict[str, object], words: str, waits: bool) -> None:
    verdict = judge(replace(GOOD, **change), LIMITS)  # type: ignore[arg-type]
    assert not verdict.passed
    assert words in str(verdict)
    assert verdict.may_pass is waits
    failed = [line for line in verdict.lines if not line.passed]
    assert all(line.advice for line in failed)


def test_recall_may_fall_by_the_tolerance_and_no_more() -> None:
    assert judge(replace(GOOD, recall=Recall(5, 0.88, 0.9, 60)), LIMITS).passed
    assert not judge(replace(GOOD, recall=Recall(5, 0.879, 0.9, 60)), LIMITS).passed
