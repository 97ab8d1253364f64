"""Where topics end and how far a group is: its lag."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from confluent_kafka import TopicPartition
from confluent_kafka.admin import OffsetSpec

from streams.kafka.client import REQUEST_SECONDS, KafkaAdmin, make_admin, make_consumer, patiently, require_topics
from streams.settings import KafkaSettings


@dataclass(frozen=True, slots=True)
class PartitionLag:
    """How far a group is in one partition. `committed` None: it never committed there, and will begin at the beginning."""

    topic: str
    partition: int
    begin: int
    committed: int | None
    end: int

    @property
    def lag(self) -> int:
        """Records (offsets) still ahead of the group."""
        return max(0, self.end - max(self.begin, self.committed or 0))


def end_offsets(settings: KafkaSettings, topics: Iterable[str]) -> dict[tuple[str, int], int]:
    """Return the end offset (of the next record) of every partition of `topics`."""
    admin = make_admin(settings)
    return _offsets(admin, _partitions(require_topics(admin, set(topics))), OffsetSpec.latest())


def group_lag(settings: KafkaSettings, group: str, topics: Iterable[str]) -> list[PartitionLag]:
    """Return how far a group is in every partition of `topics`, by topic and partition. Does not join the group.

    NotPrepared when a topic is missing. On Tansu right only when all writers keep to single-record batches.
    """
    admin = make_admin(settings)
    places = _partitions(require_topics(admin, set(topics)))
    begins = _offsets(admin, places, OffsetSpec.earliest())
    committed = _committed(settings, group, places)
    ends = _offsets(admin, places, OffsetSpec.latest())  # last, so that a lag is never negative
    return [PartitionLag(*place, begins[place], committed[place], ends[place]) for place in places]


def _committed(settings: KafkaSettings, group: str, places: list[tuple[str, int]]) -> dict[tuple[str, int], int | None]:
    # Through a consumer: librdkafka 2.16 crashes when AdminClient.list_consumer_group_offsets meets a loading coordinator.
    consumer = make_consumer(settings, group)
    asked = [TopicPartition(*place) for place in places]
    try:
        answers = patiently(consumer, lambda: consumer.committed(asked, timeout=REQUEST_SECONDS))
    finally:
        consumer.close()
    return {(each.topic, each.partition): each.offset if each.offset >= 0 else None for each in answers}


def _offsets(admin: KafkaAdmin, places: list[tuple[str, int]], spec: OffsetSpec) -> dict[tuple[str, int], int]:
    if not places:
        return {}
    asked = {TopicPartition(*place): spec for place in places}

    def ask() -> dict[tuple[str, int], int]:
        answers = admin.list_offsets(asked, request_timeout=REQUEST_SECONDS)
        return {(place.topic, place.partition): answer.result().offset for place, answer in answers.items()}

    return patiently(admin, ask)


def _partitions(topics: Mapping[str, int]) -> list[tuple[str, int]]:
    return [(name, number) for name in sorted(topics) for number in range(topics[name])]
