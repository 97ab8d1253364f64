"""When a broker counts as ready: it names its cluster and a group coordinator answers. A port that opens is not enough."""

from __future__ import annotations

import time
from collections.abc import Callable

from confluent_kafka import Consumer, KafkaException, TopicPartition
from confluent_kafka.admin import AdminClient

from streams.errors import NotReachable

_PROBE_GROUP = "docdelta-readiness"
_ONE_TRY_SECONDS = 1.0


def wait_until_serving(bootstrap_servers: str, patience: float, check_alive: Callable[[], None], brokers: int = 1) -> None:
    """Return when `brokers` brokers serve. NotReachable after `patience` seconds; `check_alive` may raise earlier."""
    # Quiet: refused connections are what is expected here until the broker is up.
    quiet = {"bootstrap.servers": bootstrap_servers, "log_level": 0, "reconnect.backoff.max.ms": 250}
    admin = AdminClient(quiet)
    # The offsets are asked through a consumer: librdkafka 2.16 crashes when AdminClient.list_consumer_group_offsets meets a
    # coordinator that is still loading.
    group = Consumer({**quiet, "group.id": _PROBE_GROUP})
    deadline = time.monotonic() + patience
    missing = "no answer"
    try:
        while time.monotonic() < deadline:
            check_alive()
            missing = _what_is_missing(admin, group, brokers)
            if not missing:
                return
            admin.poll(0.1)
    finally:
        group.close()
    raise NotReachable(f"broker is not ready after {patience:.0f} s: {missing}", bootstrap_servers=bootstrap_servers)


def _what_is_missing(admin: AdminClient, group: Consumer, brokers: int) -> str:
    try:
        nodes = admin.describe_cluster(request_timeout=_ONE_TRY_SECONDS).result().nodes
        if len(nodes) < brokers:
            return f"{len(nodes)} of {brokers} brokers are there"
        group.committed([TopicPartition("docdelta-readiness", 0)], timeout=_ONE_TRY_SECONDS)
    except KafkaException as error:
        return str(error.args[0])
    return ""
