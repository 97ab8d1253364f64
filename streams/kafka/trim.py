"""Removing the beginning of topics: records before an offset, for good."""

from __future__ import annotations

from collections.abc import Mapping

from confluent_kafka import TopicPartition

from streams.kafka.client import REQUEST_SECONDS, in_our_words, make_admin
from streams.settings import KafkaSettings


def can_trim(settings: KafkaSettings) -> bool:
    """Return whether the broker can: the embedded one breaks the connection at the request (tansu_ways.py)."""
    return not settings.single_record_batches


def delete_before(settings: KafkaSettings, topic: str, offsets: Mapping[int, int]) -> None:
    """Remove the records of each partition that lie before its offset. Safe to repeat. Only where `can_trim`.

    NotReachable, NotAuthorised (the user needs Delete on the topic), NotPrepared (no such topic).
    """
    if not offsets:
        return
    admin = make_admin(settings)
    asked = [TopicPartition(topic, partition, offset) for partition, offset in sorted(offsets.items())]
    for answer in admin.delete_records(asked, request_timeout=REQUEST_SECONDS).values():
        with in_our_words(admin, topic):
            answer.result()
