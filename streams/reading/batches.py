"""The batches as [batches] tells them: the newest record of each."""

from __future__ import annotations

from collections.abc import Iterable

from schemas.batch import BatchRecord
from schemas.codec import decode
from streams.kafka.client import cluster_topics, make_admin
from streams.kafka.read import read_topic
from streams.ports import InRecord
from streams.settings import Settings


def read_batches(settings: Settings) -> list[BatchRecord]:
    """Return the batches, oldest first; none where the topic does not exist yet. Raises UndecodableRecord on a foreign record."""
    if settings.topics.batches not in cluster_topics(make_admin(settings.kafka)):
        return []
    return newest_batches(read_topic(settings.kafka, settings.topics.batches))


def newest_batches(records: Iterable[InRecord]) -> list[BatchRecord]:
    """Return the newest record of each batch, oldest batch first. A tombstone removes a batch."""
    newest: dict[bytes, BatchRecord] = {}
    for record in records:
        key = record.key or b""
        if record.value is None:
            newest.pop(key, None)
        else:
            newest[key] = decode(record.value, BatchRecord)
    return sorted(newest.values(), key=lambda batch: (batch.created_at, batch.batch))
