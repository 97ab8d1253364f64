"""Every red state is found by its facts, names them, and has an action; a sound installation has none."""

from __future__ import annotations

import dataclasses
import re
from typing import Any

import pytest

from schemas.batch import BatchRecord
from schemas.control import Control
from streams import metrics
from streams.board.lag_book import GroupRow, LagBook
from streams.board.state import BoardState
from streams.board.troubles import KINDS, GateLine, GateVerdict, Outage, Surroundings, troubles
from streams.board.workers import SERIES, WorkerFacts, read_worker, seconds_a_call
from streams.kafka.offsets import PartitionLag
from streams.lag import Ahead, Reading
from streams.reading.waiting import GroupLag
from streams.topics import TopicNames
from tests.unit.board.test_state import BEGIN, NOW, batch, held, letter

GROUP = GroupRow("docdelta-parser", "", "live", 3, NOW - 5, NOW - 5, 1, (), 0)
SOUND = Surroundings(lag_at=NOW, alias_target="v1", grace_seconds=60)
REFUSAL = Control(kind="refused", at=BEGIN, stage="batch:v2", by="host-1", reason="model is missing", claim="c")
WORKER = """
docdelta_waiting_operations{side="index"} 0
docdelta_embedder_call_seconds_sum 10
docdelta_embedder_call_seconds_count 100
docdelta_embedder_failures_total 0
docdelta_index_failures_total{action="write",failure="disk_full"} 0
docdelta_app_not_ready_seconds{app="parser"} 0
docdelta_commit_stall_seconds{app="parser"} 0
docdelta_commit_unconfirmed_seconds{app="parser"} 0
docdelta_embedder_running_seconds 0
"""


def worker(*changes: tuple[str, str]) -> WorkerFacts:
    text = WORKER
    for before, after in changes:
        assert before in text
        text = text.replace(before, after)
    return read_worker("http://w:9464", text, NOW)


def state(*batches: BatchRecord) -> BoardState:
    made = BoardState()
    made.take_batches(batches or (batch("v1"),), "docdelta")
    return made


def kinds(found: BoardState, around: Surroundings) -> list[str]:
    return [each.kind for each in troubles(found, around, NOW)]


def around(**facts: Any) -> Surroundings:
    return dataclasses.replace(SOUND, **facts)


STANDS = ('stall_seconds{app="parser"} 0', 'stall_seconds{app="parser"} 40')
UNCONFIRMED = ('unconfirmed_seconds{app="parser"} 0', 'unconfirmed_seconds{app="parser"} 40')
BAD = GateVerdict(NOW, (GateLine("lag", True, "0", "", True), GateLine("refused", False, "3 documents", "mend them", False)))
WAITS = GateVerdict(NOW, (GateLine("lag", False, "900", "wait", True),))


@pytest.mark.parametrize(
    ("kind", "facts"),
    [
        ("broker_away", {"broker": Outage(NOW - 9, "no answer")}),
        ("index_away", {"index": Outage(NOW - 9, "no answer")}),
        ("lag_unknown", {"lag_at": NOW - 60}),
        ("topic_missing", {"missing": ("docdelta.held",)}),
        ("alias_missing", {"alias_target": ""}),
        ("alias_differs", {"alias_target": "other"}),
        ("nobody_works", {"groups": (dataclasses.replace(GROUP, members=0),)}),
        ("group_stands", {"groups": (dataclasses.replace(GROUP, stands=NOW - 110),)}),
        ("build_refused", {"groups": (dataclasses.replace(GROUP, members=0, lane="build"),), "refused": {GROUP.group: (REFUSAL,)}}),
        ("build_refused", {"groups": (dataclasses.replace(GROUP, members=None),), "refused": {GROUP.group: (REFUSAL,)}}),
        ("build_stands", {"groups": (dataclasses.replace(GROUP, stands=NOW - 110, lane="build"),)}),
        ("bulk_stands", {"groups": (dataclasses.replace(GROUP, stands=NOW - 110, lane="bulk"),)}),
        ("documents_wait", {"tenants": {"acme": NOW - 700}}),
        ("paused", {"paused": ("--tenant acme",)}),
        ("breaker_open", {"breakers": {"acme": (60, NOW - 9)}}),
        ("gate_fails", {"gates": {"v2": BAD}}),
        ("worker_away", {"workers": (WorkerFacts("w", NOW, "refused"),)}),
        ("worker_waits", {"workers": (worker(('side="index"} 0', 'side="index"} 2')),)}),
        ("commits_stall", {"workers": (worker(("stall_seconds{app=\"parser\"} 0", "stall_seconds{app=\"parser\"} 40")),)}),
        ("commits_refused", {"workers": (worker(UNCONFIRMED),)}),
        ("not_ready", {"workers": (worker(("ready_seconds{app=\"parser\"} 0", "ready_seconds{app=\"parser\"} 40")),)}),
        ("embedder_fails", {"workers_before": (worker(),), "workers": (worker(("failures_total 0", "failures_total 2")),)}),
        ("disk_full", {"workers_before": (worker(),), "workers": (worker(('disk_full"} 0', 'disk_full"} 1')),)}),
        ("embedder_slow", {"workers_before": (worker(),), "workers": (worker(("sum 10", "sum 40"), ("count 100", "count 103")),)}),
        ("embedder_slow", {"workers": (worker(("running_seconds 0", "running_seconds 40")),)}),
    ],
)  # fmt: skip
def test_a_bad_state_is_found_alone(kind: str, facts: dict[str, Any]) -> None:
    (found,) = troubles(state(), around(**facts), NOW)
    assert found.kind == kind
    assert found.level == KINDS[kind]


@pytest.mark.parametrize(
    ("changes", "named"),
    [
        pytest.param([STANDS, ("running_seconds 0", "running_seconds 40")], ["embedder_slow"], id="a-model-that-does-not-answer"),
        pytest.param([STANDS, UNCONFIRMED], ["commits_refused"], id="a-broker-that-confirms-nothing"),
        pytest.param([STANDS, UNCONFIRMED, ('side="index"} 0', 'side="index"} 2')], ["worker_waits"], id="somebody-is-away"),
    ],
)
def test_offsets_that_stand_are_told_by_their_cause(changes: list[tuple[str, str]], named: list[str]) -> None:
    assert kinds(state(), around(workers=(worker(*changes),))) == named


def test_a_commit_waits_for_a_broker_that_is_away() -> None:
    found = kinds(state(), around(workers=(worker(UNCONFIRMED),), broker=Outage(NOW - 9, "no answer")))
    assert found == ["broker_away"]


def test_recovery_that_takes_long_tells_how_much_is_left() -> None:
    text = 'docdelta_app_not_ready_seconds{app="parser"} 50\ndocdelta_recovery_remaining_records{app="parser"} 1234\n'
    (found,) = troubles(state(), around(workers=(read_worker("w", text, NOW),)), NOW)
    assert (found.kind, found.facts["left"]) == ("recovering", 1234)


def test_drift_and_an_old_canary_are_told_by_workers() -> None:
    text = 'docdelta_drift_points{batch="v1",kind="missing_point"} 3\ndocdelta_canary_age_seconds{tenant="acme"} 400\n'
    found = troubles(state(), around(workers=(read_worker("w", text, NOW),)), NOW)
    assert [(each.kind, each.command) for each in found] == [("canary_old", ""), ("drift", "docdelta audit --repair")]


@pytest.mark.parametrize(
    "facts",
    [
        pytest.param({}, id="nothing-to-do"),
        pytest.param({"groups": (GROUP,)}, id="work-under-way"),
        pytest.param({"groups": (dataclasses.replace(GROUP, stands=NOW - 80),)}, id="commits-are-held-after-a-handover"),
        pytest.param({"groups": (dataclasses.replace(GROUP, members=0, lag=0, stands=None),)}, id="no-worker-and-no-work"),
        pytest.param({"gates": {"v2": WAITS}}, id="a-gate-that-waits"),
        pytest.param({"alias_target": None}, id="the-alias-is-not-known"),
        pytest.param({"workers": (worker(),), "workers_before": ()}, id="a-worker-that-is-well"),
        pytest.param({"workers": (worker((UNCONFIRMED[0], UNCONFIRMED[0][:-1] + "3")),)}, id="a-commit-under-way"),
        pytest.param({"workers": (worker(("failures_total 0", "failures_total 7")),)}, id="failures-of-long-ago"),
    ],
)
def test_a_sound_state_is_not_red(facts: dict[str, Any]) -> None:
    assert kinds(state(), around(**facts)) == []


def test_documents_in_trouble_are_red_until_they_are_not() -> None:
    found = state()
    found.take_letter(letter("a"), 0, 1)
    found.take_held("acme", "b", held("acme", "b"))
    assert kinds(found, SOUND) == ["dead_letters", "held"]
    assert kinds(found, around(breakers={"acme": (1, NOW)})) == ["dead_letters", "breaker_open"]
    found.close_letter("0-1")
    found.take_held("acme", "b", None)
    assert kinds(found, SOUND) == []


def test_no_batch_is_red_once_all_is_read() -> None:
    assert kinds(BoardState(), around(caught_up=False)) == []
    assert kinds(BoardState(), SOUND) == ["no_batch"]
    assert kinds(BoardState(), around(broker=Outage(NOW, "no answer"))) == ["broker_away"], "nothing is known then"


def test_red_comes_first_and_the_most_urgent_of_it() -> None:
    found = state()
    found.take_letter(letter("a"), 0, 1)
    facts = around(index=Outage(NOW, "x"), broker=Outage(NOW, "x"), paused=("--tenant t",))
    assert kinds(found, facts) == ["broker_away", "index_away", "dead_letters", "paused"]


def test_what_is_read_of_a_worker_is_what_workers_tell() -> None:
    known = {family.name for family in metrics.REGISTRY.collect()}
    assert {re.sub("_(sum|count|total)$", "", name) for name in SERIES} <= known


def test_the_time_of_a_call_is_that_of_the_last_minute() -> None:
    before, now = worker(), worker(("sum 10", "sum 16"), ("count 100", "count 102"))
    assert seconds_a_call(before, now) == 3.0
    assert seconds_a_call(None, before) == 0.1
    assert seconds_a_call(before, before) is None
    assert seconds_a_call(now, before) is None, "the worker began anew"


def _reading(committed: int, end: int, group: str = "docdelta-parser") -> Reading:
    part = PartitionLag("docdelta.documents", 0, 0, committed, end)
    ahead = {(group, part.topic, 0): Ahead(committed, BEGIN.timestamp())} if committed < end else {}
    return Reading((GroupLag(group, (part,)),), ahead, 0)


def test_a_group_stands_from_when_it_last_moved() -> None:
    book = LagBook(TopicNames())
    stands = []
    for now, committed, end in ((0, 5, 9), (10, 5, 9), (20, 6, 9), (30, 6, 12), (40, 12, 12), (50, 12, 13)):
        book.take(_reading(committed, end), None, {}, [], now)
        stands.append(book.rows[0].stands)
    assert stands == [0, 0, 20, 20, None, 40], "not before it was last seen with nothing to do"


def test_of_many_partitions_the_furthest_behind_are_listed_and_all_are_counted() -> None:
    parts = tuple(PartitionLag("docdelta.documents", number, 0, 0, number) for number in range(1024))
    book = LagBook(TopicNames())
    book.take(Reading((GroupLag("docdelta-parser", parts),), {}, 0), None, {"docdelta-parser": 2}, [], 0)
    (row,) = book.rows
    assert (row.lag, row.members, row.hidden) == (sum(range(1024)), 2, 1024 - 48)
    assert [part.lag for part in row.partitions] == list(range(1023, 975, -1))
