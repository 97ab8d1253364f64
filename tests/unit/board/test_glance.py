"""What `docdelta status` calls red is what the page calls red, of the same facts; what one look can't see is said with how to."""

from __future__ import annotations

import dataclasses
import re
from typing import Any

import pytest

from schemas.codec import encode
from schemas.control import Control
from streams.board.glance import Glance, Look, book_of
from streams.board.state import BoardState
from streams.board.troubles import KINDS, STAND_SECONDS, Trouble, troubles
from streams.board.words import in_words
from streams.board.workers import read_worker
from streams.cli.status import _tell_troubles
from streams.controls.standing import Standing
from streams.controls.state import Controls
from streams.kafka.offsets import PartitionLag
from streams.lag import Reading
from streams.ports import InRecord
from streams.reading.status import BatchStatus, IndexView, Status
from streams.reading.waiting import GroupLag
from streams.topics import TopicNames
from tests.unit.board.test_state import BEGIN, NOW, batch
from tests.unit.board.test_troubles import STANDS, UNCONFIRMED, worker

TOPICS = TopicNames("docdelta")
HERE = "http://w:9464"


def reading(lag: int) -> Reading:
    behind = PartitionLag(TOPICS.documents, 0, 0, 5, 5 + lag)
    return Reading((GroupLag(TOPICS.parser_group, (behind,)),), {}, 0)


def glance(
    *,
    lag: int = 0,
    members: int | None = 1,
    seconds: float = 0.0,
    before: tuple[Any, ...] | None = None,
    after: tuple[Any, ...] = (worker(),),
    alias_target: str = "v1",
    problem: str = "",
    controls: Controls | None = None,
    **facts: Any,
) -> Glance:
    served = batch("v1")
    groups = {TOPICS.parser_group: members} if members is not None else {}
    readings = [(reading(lag), groups, NOW - seconds), (reading(lag), groups, NOW)] if seconds else [(reading(lag), groups, NOW)]
    found = Status(
        batches=(BatchStatus(served, True, None, None),),
        groups=reading(lag).groups,
        oldest=None,
        dead_letters=0,
        alias="docdelta",
        problems=(),
        standing=Standing(controls or Controls(), {}),
    )
    view = IndexView(alias_target, {}, problem, away=bool(problem))
    looks = Look((HERE,), after if before is None else before), Look((HERE,), after)
    book = book_of(TOPICS, [served], readings)
    return Glance(dataclasses.replace(found, **facts), view, book, *looks, seconds, 60.0, TOPICS)


def kinds(found: Glance) -> list[str]:
    return [each.kind for each in found.troubles(NOW)]


def test_a_sound_installation_has_nothing_red_and_hides_nothing() -> None:
    assert kinds(glance()) == []
    assert glance().unseen() == []


@pytest.mark.parametrize(
    ("kind", "facts"),
    [
        ("commits_stall", {"after": (worker(STANDS),)}),
        ("commits_refused", {"after": (worker(UNCONFIRMED),)}),
        ("not_ready", {"after": (worker(('ready_seconds{app="parser"} 0', 'ready_seconds{app="parser"} 50')),)}),
        ("embedder_slow", {"after": (worker(("running_seconds 0", "running_seconds 9")),)}),
        ("embedder_fails", {"before": (worker(),), "after": (worker(("failures_total 0", "failures_total 2")),)}),
        ("worker_waits", {"after": (worker(('side="index"} 0', 'side="index"} 4')),)}),
        ("dead_letters", {"dead_letters": 1, "newest_reason": "unreadable"}),
        ("alias_missing", {"alias_target": ""}),
        ("alias_differs", {"alias_target": "other"}),
        ("index_away", {"problem": "no answer"}),
        ("nobody_works", {"lag": 3, "members": 0}),
        ("group_stands", {"lag": 3, "seconds": STAND_SECONDS + 61}),
    ],
)
def test_a_command_sees_what_the_page_sees(kind: str, facts: dict[str, Any]) -> None:
    found = glance(**facts)
    assert kind in kinds(found)
    state = BoardState()
    state.take_batches((batch("v1"),), "docdelta")
    if kind != "dead_letters":
        assert kinds(found) == [each.kind for each in troubles(state, found._around(NOW), NOW)]


def test_pauses_and_refusals_are_told_from_what_stands_in_controls() -> None:
    controls = Controls()
    pause = Control(kind="pause", at=BEGIN, tenant_id="acme", by="me")
    controls.apply(InRecord("c", 0, 0, pause.key, encode(pause)))
    assert [(each.kind, each.command) for each in glance(controls=controls).troubles(NOW)] == [
        ("paused", "docdelta resume --tenant acme")
    ]


@pytest.mark.parametrize(
    ("facts", "said"),
    [
        ({"after": ()}, "docdelta status --worker http://HOST:9464"),
        ({"members": 3}, "inside of 2 of 3 workers"),
        ({"lag": 3}, "docdelta status --watch 106"),
    ],
)
def test_what_a_look_can_not_see_is_said_with_how_to_see_it(facts: dict[str, Any], said: str) -> None:
    (line,) = glance(**facts).unseen()
    assert said in line


def test_every_red_state_is_told_in_words_with_its_action(capsys: pytest.CaptureFixture[str]) -> None:
    named = {name for kind in KINDS for name in re.findall(r"{(\w+)}", "".join(in_words(Trouble(kind))))}
    assert len(named) > 15
    for kind in KINDS:
        cause, action = in_words(Trouble(kind, dict.fromkeys(named, 7)))
        assert "" not in (cause.strip(), action.strip())
        assert "{" not in cause + action
    _tell_troubles([Trouble("dead_letters", {"count": 1, "reason": "unreadable"}, "docdelta dead-letters list")], [])
    told = capsys.readouterr().out
    assert "red: Open dead letters: 1. Newest: unreadable" in told
    assert "docdelta dead-letters list" in told


def test_how_far_the_audit_is_is_told_of_the_worker_that_is_furthest_behind() -> None:
    assert glance().audits(NOW) == []
    parts = [
        read_worker(f"w{n}", f'docdelta_audit_round_timestamp_seconds{{batch="v1"}} {NOW - 30 * n}\n'
                    f'docdelta_audit_remaining_seconds{{batch="v1"}} {90 - 40 * n}\n', NOW)
        for n in (1, 2)
    ]  # fmt: skip
    (told,) = glance(after=tuple(parts), members=2).audits(NOW)
    assert told == "audit of v1: in full 60 s ago; the round under way takes 50 s more"
