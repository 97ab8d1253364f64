"""What settings become when they reach Faust. No broker."""

from __future__ import annotations

import ssl
from pathlib import Path
from typing import Any

import pytest

from streams.errors import UsageError
from streams.faustio.app import BUFFER_RECORDS, POLL_RECORDS, credentials, make_app, raw_table
from streams.faustio.rocks import CACHE, CACHE_BYTES, WRITE_BUFFER_BYTES
from streams.settings import KafkaSettings, Settings, WorkerSettings
from streams.topics import MAX_RECORD_BYTES


def settings(state: str = "rocksdb", **kafka: Any) -> Settings:
    return Settings(kafka=KafkaSettings.model_validate(kafka), worker=WorkerSettings.model_validate({"state": state}))


@pytest.mark.parametrize(
    ("protocol", "expected"),
    [
        ("SASL_PLAINTEXT", ("SASL_PLAINTEXT", False)),
        ("SASL_SSL", ("SASL_SSL", True)),
    ],
)
def test_sasl_carries_user_mechanism_and_tls(protocol: str, expected: tuple[str, bool]) -> None:
    made = credentials(
        KafkaSettings.model_validate(
            {"security_protocol": protocol, "sasl_mechanism": "SCRAM-SHA-512", "sasl_username": "u", "sasl_password": "p"}
        )
    )
    assert (made.protocol.value, isinstance(made.ssl_context, ssl.SSLContext)) == expected
    assert (made.username, made.password, made.mechanism.value) == ("u", "p", "SCRAM-SHA-512")


def test_tls_without_sasl_and_neither() -> None:
    tls = credentials(KafkaSettings(security_protocol="SSL"))
    assert (tls.protocol.value, tls.context.verify_mode) == ("SSL", ssl.CERT_REQUIRED)
    assert credentials(KafkaSettings()) is None


def test_an_unreadable_certificate_is_the_operators_to_mend(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="certificate or key can't be read"):
        credentials(KafkaSettings(security_protocol="SSL", ssl_ca_file=tmp_path / "missing.pem"))


def test_a_heartbeat_longer_than_the_session_is_refused(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="heartbeat_seconds"):
        make_app("a", settings(session_timeout_seconds=6, heartbeat_seconds=6), tmp_path)


def test_the_app_is_configured_as_promised(tmp_path: Path) -> None:
    conf = make_app("group", settings(bootstrap_servers="a:1, b:2", session_timeout_seconds=120), tmp_path).conf
    assert conf.id == "group", "the consumer group is the app id"
    assert [str(url) for url in conf.broker] == ["kafka://a:1", "kafka://b:2"]
    assert (conf.store.scheme, conf.table_standby_replicas, conf.topic_allow_declare) == ("rocksdb", 0, False)
    assert conf.broker_request_timeout >= conf.broker_session_timeout == 120
    assert conf.producer_max_request_size == MAX_RECORD_BYTES
    assert (conf.web_enabled, conf.topic_disable_leader) == (False, True)
    assert 5 * POLL_RECORDS <= BUFFER_RECORDS


def test_all_stores_share_one_cache_and_have_small_buffers(tmp_path: Path) -> None:
    app = make_app("group", settings(), tmp_path)
    table = raw_table(app, "seen", 64, "group-seen-changelog")
    before = CACHE.get_usage()
    for number in range(64):
        store = table.data._db_for_partition(number)
        for key in range(50):
            store.put(b"%d" % key, b"x" * 1_000)
        store.flush()
        assert len(store.get(b"1")) == 1_000
    assert before + 64 * 1_000 < CACHE.get_usage() <= CACHE_BYTES
    buffers = [store.property_int_value("rocksdb.cur-size-all-mem-tables") for store in table.data._dbs.values()]
    assert max(buffers) < WRITE_BUFFER_BYTES


def test_single_record_batches_reach_the_producer(tmp_path: Path) -> None:
    assert make_app("a", settings("memory", single_record_batches=True), tmp_path).conf.producer_max_batch_size == 1
    assert make_app("b", settings("memory"), tmp_path).conf.producer_max_batch_size > 1
