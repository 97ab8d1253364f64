"""Where Tansu 0.6 does not do as Apache Kafka does, and the one way each is met here. Everything else treats brokers alike.

- *List offsets* names the end as the first offset of the last batch plus one. True only when each batch holds one record: all
  writers keep to it (`producer_overrides`; Faust: ``producer_max_batch_size=1``), told by `KafkaSettings.single_record_batches`.
- *Metadata by name creates* the topic asked for, with four partitions. Topics are never asked for by name: the whole list is read.
- *Validate-only* creation creates. Plans are compared here, never tried on the broker.
- *Descriptions hold only what was set* when the topic was made; unset settings are absent, not defaults.
- *max.message.bytes* is kept and not enforced. Record sizes are checked before they are sent.
- *Partitions can't be added*, *records can't be deleted* (the connection breaks), there are no transactions, and aiokafka's
  idempotent producer fails, while librdkafka's works.
- Members that stop answering are not evicted from their group until they leave.
"""

from __future__ import annotations

from streams.settings import KafkaSettings


def producer_overrides(settings: KafkaSettings) -> dict[str, int]:
    """Return what a librdkafka producer must be told besides its normal settings."""
    return {"batch.num.messages": 1} if settings.single_record_batches else {}
