"""Claims about the timeline: it names what happened in order, shows no text, and names the one thing that would mend it."""

from __future__ import annotations

import json
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from chunking.parsers import parse_document
from chunking.parsers.base import UnreadableMarkup
from schemas.codec import encode
from schemas.control import Control
from schemas.document_change import Content, DocumentChange
from schemas.held_change import HeldChange
from schemas.letter_index import LetterClosing, LetterEntry
from schemas.receipt import Receipt
from streams.controls.state import Controls, fold
from streams.ports import InRecord
from streams.reading.why import InIndex, Seen, Why
from streams.repair.letters import Letter
from streams.repair.timeline import (
    HOPELESS,
    Holding,
    InFront,
    Timeline,
    events_of,
    outcomes_of,
    refusals_of,
    standing_in_the_way,
    what_would_fix,
)
from streams.topics import TopicNames

NOW = datetime(2031, 1, 1, tzinfo=UTC)
TOPICS = TopicNames()
SECRET = "the depot opens at nine"


def receipt(revision: int, outcome: str, batch: str = "b", seconds: int = 0) -> Receipt:
    return Receipt(
        tenant_id="acme", document_id="a b", revision=revision, batch=batch, stage="indexer", outcome=outcome,  # type: ignore[arg-type]
        embedded=3, event_id="e", reason="r", settled_at=NOW + timedelta(seconds=seconds),
    )  # fmt: skip


def why(*receipts: Receipt, seen: int | None = 5, points: tuple[dict[str, int], ...] = ()) -> Why:
    found = None if seen is None else Seen(seen, "upsert", "text/markdown", 0, 0, None)
    return Why("acme", "a b", found, receipts, InIndex("b", points))


def a_letter(state: str = "", reason: str = "x") -> Letter:
    entry = LetterEntry(
        letter="3-17", topic="t", partition=0, offset=1, stage="parser", error="PoisonRecord", reason=reason, failed_at=NOW
    )
    return Letter(entry, LetterClosing(letter="3-17", state=state, at=NOW) if state else None)  # type: ignore[arg-type]


def held(reason: str) -> HeldChange:
    return HeldChange(
        tenant_id="acme", document_id="a b", revision=5, op="delete", reason=reason, why="w", since=NOW, partition=0, offset=1,  # type: ignore[arg-type]
        value=None,
    )  # fmt: skip


def paused(stage: str) -> Controls:
    control = Control(kind="pause", at=NOW, stage=stage, reason="upgrade")
    return fold([InRecord("c", 0, 0, control.key, encode(control))])


GOOD = receipt(5, "indexed")
BUILDING = InFront(TOPICS.batch_group("v2"), TOPICS.parsed, 0, 40, build=True)
BEHIND = InFront(TOPICS.parser_group, TOPICS.documents, 0, 12)
WHOLE = Holding("b", "active", 5, chunk_ids=("c1", "c2"), points=("c1", "c2"))


@pytest.mark.parametrize(
    ("found", "more", "words", "command"),
    [
        pytest.param(why(GOOD), {"holdings": [WHOLE]}, "nothing to mend", "", id="all-is-well"),
        pytest.param(why(seen=None), {}, "send it", "docdelta put FILE --tenant acme --id 'a b'", id="never-seen"),
        pytest.param(why(), {"letters": [a_letter()]}, "letter 3-17", "docdelta dead-letters replay 3-17", id="an-open-letter"),
        pytest.param(
            why(points=({"revision": 4},)),
            {"letters": [a_letter(reason="not a text: 9 of 9 characters")]},
            "docdelta dead-letters drop 3-17",
            "docdelta put FILE --tenant acme --id 'a b'",
            id="bytes-that-replay-can-not-help",
        ),
        pytest.param(
            why(),
            {"letters": [a_letter(reason="elements nested more than 12000 deep")]},
            "docdelta delete 'a b' --tenant acme",
            "docdelta put FILE --tenant acme --id 'a b'",
            id="bytes-of-a-page-that-never-was",
        ),
        pytest.param(why(GOOD), {"letters": [a_letter("healed")]}, "nothing to mend", "", id="a-letter-that-healed"),
        pytest.param(
            why(receipt(5, "dead_lettered")),
            {"letters": [a_letter("dropped")]},
            "higher revision",
            "docdelta put FILE --tenant acme --id 'a b'",
            id="refused-and-dropped",
        ),
        pytest.param(why(), {"held": held("breaker")}, "held", "docdelta breaker approve acme", id="held-by-the-breaker"),
        pytest.param(why(), {"held": held("paused")}, "paused", "docdelta resume --tenant acme", id="its-tenant-is-paused"),
        pytest.param(
            why(),
            {"in_front": [BEHIND], "controls": paused("parser")},
            "paused",
            "docdelta resume --stage parser",
            id="its-stage-is-paused",
        ),
        pytest.param(why(), {"in_front": [BEHIND]}, "12 records", "docdelta worker", id="it-waits"),
        pytest.param(why(), {"in_front": [BEHIND, BUILDING]}, "12 records", "docdelta worker", id="it-waits-and-a-build-does"),
        pytest.param(
            why(GOOD),
            {"in_front": [BUILDING]},
            "nothing to mend where it is served; the build of v2 has 40 records",
            "docdelta batches",
            id="only-a-build-waits",
        ),
        pytest.param(
            why(GOOD),
            {"holdings": [Holding("b", "active", 5, chunk_ids=("c1", "c2"), points=("c2", "c3"))]},
            "1 chunk missing, 1 left over",
            "docdelta reindex 'a b' --tenant acme",
            id="the-index-differs",
        ),
        pytest.param(
            why(seen=None, points=({"revision": 4},)),
            {"holdings": [Holding("b", "active", None, points=("c1",))]},
            "docdelta delete 'a b' --tenant acme",
            "docdelta put FILE --tenant acme --id 'a b'",
            id="the-index-has-what-the-log-lost",
        ),
        pytest.param(
            why(GOOD),
            {"holdings": [Holding("b", "active", 5, suspect=True)]},
            "refused",
            "docdelta reindex 'a b' --tenant acme",
            id="a-delta-was-refused",
        ),
        pytest.param(why(), {}, "none has settled it", "docdelta reindex 'a b' --tenant acme", id="lost-on-its-way"),
    ],
)
def test_the_first_thing_in_its_way_is_named_with_its_command(found: Why, more: dict[str, Any], words: str, command: str) -> None:
    given = {"letters": (), "holdings": (), "in_front": (), "held": None, "controls": Controls(), **more}
    fix = what_would_fix(found, topics=TOPICS, **given)
    assert words in str(fix)
    assert fix.command == command


def test_what_stands_in_the_way_is_told_in_words() -> None:
    assert standing_in_the_way(paused("parser"), "acme", ()) == ("stage parser is paused since 2031-01-01 00:00Z: upgrade",)


def test_the_timeline_tells_events_outcomes_and_letters_and_no_text() -> None:
    change = DocumentChange(
        tenant_id="acme", document_id="a b", revision=5, op="upsert", content=Content(text=SECRET), title=SECRET, event_id="e"
    )
    records = [
        InRecord("d", 0, 1, b"acme/a b", encode(change), timestamp=NOW.timestamp()),
        InRecord("d", 0, 2, b"acme/a b", b"{", timestamp=1e300),
        InRecord("d", 0, 3, b"acme/a b", None),
    ]
    events = events_of(records)
    assert [(each.what, each.revision, each.at) for each in events] == [
        ("upsert", 5, NOW),
        ("unreadable", None, None),
        ("null value", None, None),
    ]
    said = [InRecord("r", 0, n, b"acme/a b", encode(each)) for n, each in enumerate([GOOD, GOOD, receipt(5, "indexed", "other")])]
    outcomes = outcomes_of(said)
    assert [(each.batch, each.figures) for each in outcomes] == [("b", {"embedded": 3}), ("other", {"embedded": 3})], "repeats once"
    letters = refusals_of([a_letter("replayed")])
    assert [each.what for each in letters] == ["3-17: PoisonRecord at parser", "3-17: replayed"]
    indexed = InIndex("b", ({"chunk_id": "c1", "revision": 5, "text": SECRET},))
    fix = what_would_fix(why(GOOD), (), (), (), None, Controls(), TOPICS)
    moments = (*events, *outcomes, *letters)
    timeline = Timeline(Why("acme", "a b", None, (GOOD,), indexed), moments, (WHOLE,), (a_letter(),), (BEHIND,), None, (), fix)
    written = json.dumps(timeline.as_json())
    assert SECRET not in written
    assert "c1" in written


def test_what_is_hopeless_begins_as_its_parsers_say() -> None:
    broken = ((bytes(range(256)) * 9, "markdown"), (b"\x00\x01\x02" * 99, "markdown"), (b"<div>" * 20_000, "html"))
    for data, kind in broken:
        with pytest.raises(UnreadableMarkup) as refused:
            parse_document(data, f"text/{kind}")
        assert str(refused.value).startswith(HOPELESS)
