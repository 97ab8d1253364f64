"""The topic plan: what it creates, what it refuses, and what it lets be. No broker."""

from __future__ import annotations

import pytest

from streams.kafka.admin import Difference, PartitionLag, TopicState, plan_topics
from streams.kafka.checks import missing_in_words
from streams.topics import FRAME_BYTES, MAX_EVENT_BYTES, UNCOMPACTED, Topic, TopicNames, batch_topics, shared_topics

COMPACTED = Topic("docs", 8, {"cleanup.policy": "compact", "max.message.bytes": "1000"})
KEPT = Topic("log", 8, {"cleanup.policy": "delete", "retention.ms": "-1", "max.message.bytes": "1000"})


def test_an_empty_cluster_gets_every_topic_once():
    names = TopicNames("x")
    wanted = [*shared_topics(names, 8), *batch_topics(names, "p-v1-00000000", 8)]
    plan = plan_topics({}, wanted)
    assert [topic.name for topic in plan.create] == [topic.name for topic in wanted]
    assert not plan.differences
    assert len({topic.name for topic in wanted}) == len(wanted)


def test_a_cluster_as_wanted_is_left_alone():
    wanted = shared_topics(TopicNames("x"), 8)
    plan = plan_topics({topic.name: TopicState(topic.name, topic.partitions, topic.config) for topic in wanted}, wanted)
    assert (plan.create, plan.differences) == ((), ())
    assert plan.unchanged == tuple(topic.name for topic in wanted)


@pytest.mark.parametrize(
    ("wanted", "found", "expected"),
    [
        pytest.param(COMPACTED, {"partitions": 4}, ("partitions", "4", "8"), id="other-partitions"),
        pytest.param(COMPACTED, {"cleanup.policy": "delete"}, ("cleanup.policy", "delete", "compact"), id="not-compacted"),
        pytest.param(
            COMPACTED, {"cleanup.policy": "compact,delete"}, ("cleanup.policy", "compact,delete", "compact"), id="also-deleted"
        ),
        pytest.param(COMPACTED, {"max.message.bytes": "999"}, ("max.message.bytes", "999", "1000"), id="too-small"),
        pytest.param(COMPACTED, {"max.message.bytes": None}, ("max.message.bytes", "not set", "1000"), id="unset"),
        pytest.param(KEPT, {"retention.ms": "604800000"}, ("retention.ms", "604800000", "-1"), id="forgets"),
        pytest.param(COMPACTED, {"max.message.bytes": "2000"}, None, id="larger-records-do-no-harm"),
        pytest.param(COMPACTED, {"retention.ms": "5"}, None, id="retention-of-a-compacted-topic-is-of-no-effect"),
        pytest.param(Topic("r", 8, {"retention.ms": "10"}), {"retention.ms": "-1"}, None, id="kept-for-longer-does-no-harm"),
    ],
)
def test_an_existing_topic_is_refused_by_name_when_it_would_do_harm(wanted, found, expected):
    config = {**wanted.config, **{name: value for name, value in found.items() if name != "partitions" and value is not None}}
    for name, value in found.items():
        if value is None:
            del config[name]
    state = TopicState(wanted.name, int(found.get("partitions", 8)), config)
    plan = plan_topics({wanted.name: state}, [wanted])
    assert plan.create == ()
    if expected is None:
        assert plan.unchanged == (wanted.name,)
    else:
        assert plan.differences == (Difference(wanted.name, *expected),)


def test_a_difference_says_what_to_do():
    assert "set DOCDELTA_KAFKA__PARTITIONS=4" in str(Difference("docs", "partitions", "4", "8"))
    assert "--entity-name docs --add-config cleanup.policy=compact" in str(
        Difference("docs", "cleanup.policy", "delete", "compact")
    )


def test_a_plan_prints_itself():
    plan = plan_topics({"log": TopicState("log", 2, KEPT.config)}, [COMPACTED, KEPT])
    assert str(plan).splitlines()[0] == "create docs (8 partitions, cleanup.policy=compact, max.message.bytes=1000)"
    assert str(plan).splitlines()[1].startswith("refuse log: partitions is 2, must be 8")


def test_topics_leave_room_for_the_frame_around_the_largest_event():
    documents = shared_topics(TopicNames("x"), 8)[0]
    assert int(documents.config["max.message.bytes"]) == MAX_EVENT_BYTES + FRAME_BYTES


@pytest.mark.parametrize("name", ["bulk", "controls", "held", "letter_index"])
def test_a_topic_that_an_earlier_release_did_not_make_names_the_command_that_makes_it(name: str) -> None:
    names = TopicNames("x")
    wanted = shared_topics(names, 8)
    there = {topic.name: TopicState(topic.name, 8, topic.config) for topic in wanted if topic.name != getattr(names, name)}
    words = missing_in_words(plan_topics(there, wanted))
    assert f"{getattr(names, name)}; this release needs them: run `docdelta topics apply`" in words
    assert "docdelta init" not in words
    assert "docdelta init --policy FILE" in missing_in_words(plan_topics({}, wanted))


def test_what_others_write_stays_uncompacted_for_a_while_and_a_topic_made_without_that_is_taken() -> None:
    made = {topic.name: topic for topic in shared_topics(TopicNames("x"), 8)}
    assert {name for name, topic in made.items() if UNCOMPACTED in topic.config} == {"x.documents", "x.bulk", "x.parsed", "x.held"}
    documents = made["x.documents"]
    before = TopicState(documents.name, 8, {name: value for name, value in documents.config.items() if name != UNCOMPACTED})
    assert plan_topics({documents.name: before}, [documents]).unchanged == (documents.name,)


@pytest.mark.parametrize(
    ("begin", "committed", "end", "lag"),
    [
        pytest.param(0, None, 10, 10, id="never-committed"),
        pytest.param(4, None, 10, 6, id="never-committed-and-the-head-is-gone"),
        pytest.param(4, 2, 10, 6, id="what-is-gone-does-not-count"),
        pytest.param(0, 10, 10, 0, id="caught-up"),
        pytest.param(0, 12, 10, 0, id="never-negative"),
    ],
)
def test_lag_counts_what_is_still_ahead(begin, committed, end, lag):
    assert PartitionLag("t", 0, begin, committed, end).lag == lag
