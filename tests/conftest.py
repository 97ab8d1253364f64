"""Brokers for the tests. Each is started once a session, on its own ports and folder, and ended by its own pid."""

from __future__ import annotations

import os
import uuid
from collections.abc import Iterator

import pytest
from hypothesis import settings as hypothesis_settings

from streams.embedded import apache_kafka as kafka_here
from streams.embedded.tansu import TansuBroker
from streams.settings import KafkaSettings

hypothesis_settings.register_profile("docdelta", deadline=None)  # a timing is never a test
hypothesis_settings.load_profile("docdelta")


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Begin with what waits most for other processes, so that no worker of a parallel run is left alone with it at the end."""
    items.sort(key=lambda item: not {"stack", "crash"} & set(item.path.parts))


@pytest.fixture(scope="session")
def tansu_broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """Bootstrap string of an embedded Tansu broker. Use with `single_record_batches`, see streams/kafka/tansu_ways.py."""
    with TansuBroker(tmp_path_factory.mktemp("tansu")) as broker:
        yield broker.bootstrap_servers


@pytest.fixture(scope="session")
def apache_kafka(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """Bootstrap string of an Apache Kafka broker. Skips where it can't run, and fails there when CI=true."""
    require_apache_kafka()
    with kafka_here.ApacheKafka(tmp_path_factory.mktemp("kafka")) as broker:
        yield broker.bootstrap_servers


@pytest.fixture
def tansu_settings(tansu_broker: str) -> KafkaSettings:
    """Settings of the embedded broker."""
    return KafkaSettings(bootstrap_servers=tansu_broker, single_record_batches=True)


@pytest.fixture
def apache_settings(apache_kafka: str) -> KafkaSettings:
    """Settings of the Apache broker."""
    return KafkaSettings(bootstrap_servers=apache_kafka)


@pytest.fixture(
    params=[pytest.param("tansu_settings", id="tansu"), pytest.param("apache_settings", id="apache", marks=pytest.mark.kafka)]
)
def any_broker(request: pytest.FixtureRequest) -> KafkaSettings:
    """Settings of each broker in turn: what is claimed with this fixture holds on both."""
    settings: KafkaSettings = request.getfixturevalue(request.param)
    return settings


@pytest.fixture
def fresh() -> str:
    """A name that nothing else uses: for topics and groups."""
    return f"t-{uuid.uuid4().hex[:10]}"


def require_apache_kafka() -> None:
    """Skip the test with one line that says what is missing; fail instead where CI=true."""
    if reason := kafka_here.available():
        if os.environ.get("CI") == "true":
            pytest.fail(reason)
        pytest.skip(reason)
