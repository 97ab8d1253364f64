"""The embedded Apache Kafka: a power cut loses no confirmed record, and the address stays."""

from __future__ import annotations

import json

import pytest
from confluent_kafka import TopicPartition
from confluent_kafka.admin import AclBinding, AclOperation, AclPermissionType, ResourcePatternType, ResourceType

from streams.embedded.apache_kafka import ApacheKafka, available
from streams.errors import NotAuthorised, NotPrepared
from streams.kafka.admin import apply_topics
from streams.kafka.client import make_admin, make_consumer
from streams.kafka.offsets import group_lag
from streams.kafka.produce import OutRecord, produce_all
from streams.kafka.read import read_topic
from streams.settings import KafkaSettings
from streams.topics import Topic

pytestmark = pytest.mark.kafka
WANTED = Topic("docs", 4, {"cleanup.policy": "compact"})


@pytest.fixture(autouse=True)
def _can_run(apache_kafka):
    """The session's fixture skips, or fails under CI, where Apache Kafka can't run."""
    assert available() is None


def _settings(broker: ApacheKafka, copies: int = 1) -> KafkaSettings:
    return KafkaSettings(bootstrap_servers=broker.bootstrap_servers, replication_factor=copies)


def _values(settings: KafkaSettings) -> set[bytes | None]:
    return {record.value for record in read_topic(settings, "docs")}


def test_records_and_commits_outlive_a_kill_and_the_address_stays(tmp_path):
    with ApacheKafka(tmp_path) as broker:
        settings = _settings(broker)
        apply_topics(settings, [WANTED])
        produce_all(settings, [OutRecord("docs", b"%d" % n, b"%d" % n) for n in range(200)])
        consumer = make_consumer(settings, "readers")
        consumer.commit(offsets=[TopicPartition("docs", 0, 7)], asynchronous=False)
        consumer.close()
        broker.kill()
        broker.start()
        assert broker.bootstrap_servers == settings.bootstrap_servers
        assert len(_values(settings)) == 200
        assert group_lag(settings, "readers", ["docs"])[0].committed == 7
        with pytest.raises(NotPrepared, match="another kafka works in"):
            ApacheKafka(tmp_path).start()
    with ApacheKafka(tmp_path) as again:  # another process would do the same
        assert again.bootstrap_servers == settings.bootstrap_servers
        assert len(_values(settings)) == 200


def test_a_folder_keeps_its_number_of_brokers(tmp_path):
    one = {"plain": 1, "controller": 2, "sasl": 3, "directory": "y"}
    (tmp_path / "cluster.json").write_text(json.dumps({"identity": "x", "ports": [one]}))
    with pytest.raises(NotPrepared, match="holds 1 brokers, not 3"):
        ApacheKafka(tmp_path, brokers=3).start()


def test_a_wrong_password_and_a_missing_right_are_told_apart_and_named(tmp_path):
    with ApacheKafka(tmp_path, users={"alice": "right", "bob": "right"}) as broker:
        apply_topics(_settings(broker), [WANTED])
        _grant(broker, "alice", AclOperation.DESCRIBE)

        def as_user(name: str, password: str) -> KafkaSettings:
            protocol = {"security_protocol": "SASL_PLAINTEXT", "sasl_username": name, "sasl_password": password}
            return KafkaSettings(bootstrap_servers=broker.sasl_bootstrap_servers, **protocol)

        record = [OutRecord("docs", b"k", b"v")]
        with pytest.raises(NotAuthorised, match=r"refuses user alice over SASL_PLAINTEXT.*[Aa]uthentication failed") as wrong:
            produce_all(as_user("alice", "not-her-password"), record)
        assert "not-her-password" not in str(wrong.value)
        with pytest.raises(NotAuthorised, match=r"alice.*authorization failed") as may_not:
            produce_all(as_user("alice", "right"), record)
        assert may_not.value.facts["confirmed"] == 0
        with pytest.raises(NotPrepared, match="docs does not exist, or user bob may not see it"):
            produce_all(as_user("bob", "right"), record)
        with pytest.raises(NotAuthorised):
            apply_topics(as_user("bob", "right"), [Topic("new", 1, {})])
        _grant(broker, "alice", AclOperation.ALL)
        assert produce_all(as_user("alice", "right"), record) == 1
        assert [each.value for each in read_topic(as_user("alice", "right"), "docs")] == [b"v"]


def _grant(broker: ApacheKafka, user: str, operation: AclOperation) -> None:
    right = AclBinding(
        ResourceType.TOPIC, "docs", ResourcePatternType.LITERAL, f"User:{user}", "*", operation, AclPermissionType.ALLOW
    )
    admin = make_admin(_settings(broker))
    for answer in admin.create_acls([right]).values():
        answer.result()


@pytest.mark.slow
def test_three_brokers_serve_on_while_one_is_dead(tmp_path):
    with ApacheKafka(tmp_path, brokers=3) as cluster:
        settings = _settings(cluster, copies=3)
        apply_topics(settings, [WANTED])
        produce_all(settings, [OutRecord("docs", b"%d" % n, b"before %d" % n) for n in range(50)])
        cluster.kill(broker=1)
        produce_all(settings, [OutRecord("docs", b"x%d" % n, b"during %d" % n) for n in range(50)])
        assert len(_values(settings)) == 100
        cluster.restart(broker=1)
        cluster.wait_until_serving()
        assert len(_values(settings)) == 100
