"""How many workers are in each consumer group, as far as the broker tells."""

from __future__ import annotations

from collections.abc import Iterable

from confluent_kafka import KafkaException

from streams.errors import DocdeltaError
from streams.kafka.client import REQUEST_SECONDS, make_admin
from streams.settings import KafkaSettings


def group_members(settings: KafkaSettings, groups: Iterable[str]) -> dict[str, int]:
    """Return group to members. A group of which nothing is told (right missing, broker without that request) is left out."""
    wanted = list(groups)
    if not wanted:
        return {}
    try:
        answers = make_admin(settings).describe_consumer_groups(wanted, request_timeout=REQUEST_SECONDS)
    except (KafkaException, DocdeltaError):
        return {}
    found = {}
    for group, answer in answers.items():
        try:
            found[group] = len(answer.result().members)
        except KafkaException:
            continue
    return found
