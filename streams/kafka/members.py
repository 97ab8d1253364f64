"""How many workers are in each consumer group, as far as the broker tells."""

from __future__ import annotations

from collections.abc import Iterable

from confluent_kafka import KafkaException

from streams.errors import DocdeltaError
from streams.kafka.client import REQUEST_SECONDS, make_admin
from streams.settings import KafkaSettings


def group_members(settings: KafkaSettings, groups: Iterable[str]) -> dict[str, int]:
    """Return group to members. A group of which nothing is told is left out: a missing right; the embedded broker, which says 0."""
    wanted = list(groups)
    if not wanted or settings.single_record_batches:
        return {}
    admin = make_admin(settings)  # kept by this name: answers never come to a client that is gone
    try:
        answers = admin.describe_consumer_groups(wanted, request_timeout=REQUEST_SECONDS)
    except (KafkaException, DocdeltaError):
        return {}
    found = {}
    for group, answer in answers.items():
        try:
            found[group] = len(answer.result(REQUEST_SECONDS + 5).members)
        except (KafkaException, TimeoutError):
            continue
    return found
