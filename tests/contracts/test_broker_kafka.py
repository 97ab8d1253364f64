"""What streams.kafka promises, on the embedded broker and on Apache Kafka."""

from __future__ import annotations

import asyncio
import os
import time

import pytest
from confluent_kafka import TopicPartition
from pydantic import SecretStr

from streams.embedded.free_ports import free_ports
from streams.errors import NotAuthorised, NotPrepared, NotReachable, PoisonRecord
from streams.kafka import admin as topics
from streams.kafka.client import CONNECT_SECONDS, cluster_topics, make_admin, make_consumer, require_topics
from streams.kafka.offsets import end_offsets, group_lag
from streams.kafka.partitioner import partition_of
from streams.kafka.produce import OutRecord, produce_all
from streams.kafka.read import Follower, follow, read_topic, record_at
from streams.settings import KafkaSettings
from streams.topics import MAX_RECORD_BYTES, Topic, TopicNames, batch_topics, shared_topics
from tests.support.patience import PATIENCE


@pytest.fixture
def topic(any_broker, fresh) -> Topic:
    """A compacted topic of four partitions, empty."""
    made = Topic(fresh, 4, {"cleanup.policy": "compact", "max.message.bytes": "100000"})
    topics.apply_topics(any_broker, [made])
    return made


def _records(topic: Topic, count: int) -> list[OutRecord]:
    return [OutRecord(topic.name, b"key-%d" % number, b"value-%d" % number) for number in range(count)]


def test_all_our_topics_can_be_made_and_then_are_as_they_must_be(any_broker, fresh):
    names = TopicNames(fresh)
    wanted = [*shared_topics(names, 2), *batch_topics(names, "p-v1-0a0a0a0a", 2)]
    with pytest.raises(NotPrepared, match=rf"topic {fresh}\.documents, .* does not exist; run"):
        topics.check_topics(any_broker, wanted)
    assert len(topics.apply_topics(any_broker, wanted).create) == len(wanted)
    topics.check_topics(any_broker, wanted)
    assert topics.apply_topics(any_broker, wanted).create == ()


def test_a_topic_that_differs_is_refused_and_nothing_is_created(any_broker, topic, fresh):
    other = Topic(f"{fresh}-new", 4, {})
    with pytest.raises(NotPrepared, match=f"{topic.name}: partitions is 4, must be 6"):
        topics.apply_topics(any_broker, [other, Topic(topic.name, 6, topic.config)])
    assert other.name not in cluster_topics(make_admin(any_broker))


def test_a_topic_that_is_made_again_has_another_id(any_broker, topic):
    ids = topics.topic_ids(any_broker, [topic.name, "nobody-made-this"])
    assert ids.keys() == {topic.name}
    assert topics.topic_ids(any_broker, [topic.name]) == ids
    admin = make_admin(any_broker)
    admin.delete_topics([topic.name])[topic.name].result()
    deadline = time.monotonic() + PATIENCE
    while topic.name in cluster_topics(admin):
        assert time.monotonic() < deadline
        time.sleep(0.1)
    topics.apply_topics(any_broker, [topic])
    assert topics.topic_ids(any_broker, [topic.name])[topic.name] != ids[topic.name]


def test_an_id_that_can_not_be_asked_for_is_an_outage():
    with pytest.raises(NotReachable):
        topics.topic_ids(KafkaSettings(bootstrap_servers="127.0.0.1:1"), ["any"])


def test_two_that_create_at_once_both_succeed(any_broker, fresh):
    wanted = Topic(fresh, 2, {"cleanup.policy": "compact"})
    plan = topics.plan_topics({}, [wanted])
    for _ in range(2):
        topics.execute_topics(make_admin(any_broker), plan)
    with pytest.raises(NotPrepared, match=r"cleanup\.policy is compact, must be delete"):
        topics.execute_topics(make_admin(any_broker), topics.plan_topics({}, [Topic(fresh, 2, {"cleanup.policy": "delete"})]))


def test_deleting_topics_twice_is_as_good_as_once(any_broker, topic):
    admin = make_admin(any_broker)
    for _ in range(2):
        topics.delete_topics(admin, [topic.name])
        assert topic.name not in cluster_topics(admin)


def test_a_record_is_read_from_where_it_stands_and_none_from_where_nothing_does(any_broker, topic):
    sent = [OutRecord(topic.name, b"key", b"%d" % number * 30_000, {"part": b"1"}) for number in range(3)]
    produce_all(any_broker, sent)
    (partition,) = {record.partition for record in read_topic(any_broker, topic.name)}
    found = [record_at(any_broker, topic.name, partition, offset) for offset in range(3)]
    assert [(each.offset, each.value, each.headers) for each in found if each] == [
        (offset, record.value, record.headers) for offset, record in enumerate(sent)
    ]
    assert record_at(any_broker, topic.name, partition, 3) is None


def test_every_record_is_confirmed_and_reads_back_in_order_per_key(any_broker, topic):
    progress: list[int] = []
    sent = [OutRecord(topic.name, b"key-%d" % (n % 7), b"%d" % n, {"part": b"1"}) for n in range(2100)]
    assert produce_all(any_broker, iter(sent), progress.append) == 2100
    assert progress == sorted(progress)
    assert progress[-1] == 2100
    read = list(read_topic(any_broker, topic.name))
    assert len(read) == 2100
    for key in {record.key for record in sent}:
        assert [record.value for record in read if record.key == key] == [record.value for record in sent if record.key == key]
    assert {record.headers["part"] for record in read} == {b"1"}
    assert all(record.timestamp > 1.6e9 for record in read)


def test_keys_land_where_our_own_arithmetic_says(any_broker, topic):
    keys = [b"", b"a", b"acme/page", "租户/文档".encode(), *(os.urandom(n) for n in range(1, 40))]
    produce_all(any_broker, [OutRecord(topic.name, key, b"x") for key in keys])
    read = list(read_topic(any_broker, topic.name))
    assert {(record.key, record.partition) for record in read} == {(key, partition_of(key, 4)) for key in keys}
    for key in keys[:4]:
        assert [record.key for record in read_topic(any_broker, topic.name, key=key)] == [key]


def test_reading_ends_at_the_end_of_the_call_and_tombstones_are_told(any_broker, topic):
    produce_all(any_broker, [*_records(topic, 5), OutRecord(topic.name, b"key-1", None)])
    reading = read_topic(any_broker, topic.name)
    produce_all(any_broker, _records(topic, 50))
    read = list(reading)
    assert len(read) == 6
    assert [record.key for record in read if record.value is None] == [b"key-1"]


def test_an_empty_topic_reads_as_empty_at_once(any_broker, topic):
    assert list(read_topic(any_broker, topic.name)) == []


def test_a_missing_topic_is_named_and_not_created_by_asking(any_broker, fresh):
    with pytest.raises(NotPrepared, match=f"topic {fresh} does not exist; run `docdelta topics apply`, or `docdelta init`"):
        produce_all(any_broker, [OutRecord(fresh, b"k", b"v")])
    with pytest.raises(NotPrepared, match=fresh):
        read_topic(any_broker, fresh)
    with pytest.raises(NotPrepared, match=fresh):
        group_lag(any_broker, "g", [fresh])
    assert fresh not in cluster_topics(make_admin(any_broker))


def test_a_record_over_the_limit_is_refused_before_it_is_sent(any_broker, topic):
    records = [*_records(topic, 3), OutRecord(topic.name, b"big", os.urandom(100_001))]
    with pytest.raises(PoisonRecord, match="over the size limit") as refusal:
        produce_all(any_broker, records)
    assert refusal.value.facts["key"] == b"big"
    assert refusal.value.facts["limit"] == 100_000
    assert b"big" not in {record.key for record in read_topic(any_broker, topic.name)}


def test_the_largest_record_of_the_pipeline_goes_through(any_broker, fresh):
    names = TopicNames(fresh)
    topics.apply_topics(any_broker, shared_topics(names, 1))
    body = os.urandom(MAX_RECORD_BYTES)
    produce_all(any_broker, [OutRecord(names.parsed, b"k", body)])
    (read,) = read_topic(any_broker, names.parsed)
    assert read.value == body


def test_lag_is_end_minus_committed_and_asking_commits_nothing(any_broker, topic, fresh):
    produce_all(any_broker, _records(topic, 40))
    ends = end_offsets(any_broker, [topic.name])
    assert sum(ends.values()) == 40
    untouched = group_lag(any_broker, fresh, [topic.name])
    assert [(each.committed, each.lag) for each in untouched] == [(None, ends[topic.name, n]) for n in range(4)]
    consumer = make_consumer(any_broker, fresh)
    consumer.commit(offsets=[TopicPartition(topic.name, 0, 3)], asynchronous=False)
    consumer.close()
    lags = group_lag(any_broker, fresh, [topic.name])
    assert lags[0].committed == 3
    assert sum(each.lag for each in lags) == 37
    topics.delete_groups(make_admin(any_broker), [fresh, f"{fresh}-never-was"])
    assert group_lag(any_broker, fresh, [topic.name])[0].committed is None


async def test_a_follower_gets_what_was_there_then_what_comes(any_broker, topic):
    await asyncio.to_thread(produce_all, any_broker, _records(topic, 10))
    follower = Follower(any_broker, topic.name)
    await follower.start()
    try:
        old = [await asyncio.wait_for(anext(follower), PATIENCE) for _ in range(10)]
        assert {record.key for record in old} == {record.key for record in _records(topic, 10)}
        coming = asyncio.ensure_future(anext(follower))
        await asyncio.wait_for(follower.caught_up.wait(), PATIENCE)
        assert not coming.done()
        await asyncio.to_thread(produce_all, any_broker, [OutRecord(topic.name, b"new", b"1")])
        assert (await asyncio.wait_for(coming, PATIENCE)).key == b"new"
    finally:
        await asyncio.wait_for(follower.stop(), PATIENCE)


async def test_a_slow_taker_holds_the_follower_back_and_can_leave(any_broker, topic):
    await asyncio.to_thread(produce_all, any_broker, _records(topic, 3000))
    taken = 0
    async for _, value in follow(any_broker, topic.name):
        assert value is not None
        taken += 1
        if taken == 1200:
            break
    assert taken == 1200


async def test_following_a_missing_topic_says_so(any_broker, fresh):
    with pytest.raises(NotPrepared, match=fresh):
        await anext(follow(any_broker, fresh))


def test_a_broker_that_is_not_there_is_named_within_ten_seconds():
    address = f"127.0.0.1:{free_ports(1)[0]}"
    assert CONNECT_SECONDS < 10
    with pytest.raises(NotReachable, match="refused") as fault:
        produce_all(KafkaSettings(bootstrap_servers=address), [OutRecord("t", b"k", b"v")])
    assert fault.value.facts["bootstrap_servers"] == address


def test_a_host_without_address_is_named():
    with pytest.raises(NotReachable, match=r"nowhere\.invalid"):
        cluster_topics(make_admin(KafkaSettings(bootstrap_servers="nowhere.invalid:9092")), patience=2)


def test_refused_credentials_are_told_at_once_and_never_shown(any_broker):
    wrong = any_broker.model_copy(
        update={"security_protocol": "SASL_PLAINTEXT", "sasl_username": "eve", "sasl_password": SecretStr("hunter2")}
    )
    with pytest.raises(NotAuthorised, match="refuses user eve") as fault:
        require_topics(make_admin(wrong), {"t"})
    assert "hunter2" not in str(fault.value) + repr(fault.value)


def test_a_certificate_that_can_not_be_read_is_named(tmp_path):
    settings = KafkaSettings(security_protocol="SSL", ssl_ca_file=tmp_path / "missing.pem")
    with pytest.raises(NotPrepared, match=r"kafka settings can't be used: .*ssl\.ca\.location"):
        make_admin(settings)


def test_asking_a_topic_by_name_is_what_creates_it_on_tansu(tansu_settings, fresh):
    """The reason why everything here reads the whole list. Should this fail, Tansu has changed and the detour can go."""
    make_admin(tansu_settings).list_topics(fresh, timeout=5)
    assert cluster_topics(make_admin(tansu_settings))[fresh] == 4
