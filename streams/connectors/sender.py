"""KafkaSender: DocumentChanges to the topic of their lane by confluent-kafka, each confirmed by the broker or reported by name."""

from __future__ import annotations

import time
from collections.abc import Iterable

from confluent_kafka import KafkaError, Message

from schemas.codec import encode
from schemas.document_change import DocumentChange
from schemas.record import document_key
from streams import telemetry
from streams.connectors.base import Confirmed
from streams.errors import NotReachable, PoisonRecord
from streams.kafka.client import in_words, make_admin, make_producer, require_topics
from streams.kafka.produce import OutRecord, size_limit
from streams.lanes.choice import Lane, topic_of
from streams.settings import KafkaSettings
from streams.topics import TopicNames
from streams.words import counted

DELIVERY_SECONDS = 30.0
"""How long a record may wait for the broker's confirmation before it is reported."""


class KafkaSender:
    """Sends through an idempotent producer (acks=all). Where `produce_all` stops at the first failure, this tells of each event."""

    def __init__(self, settings: KafkaSettings, delivery_seconds: float = DELIVERY_SECONDS, lane: Lane = "live") -> None:
        """Raises NotReachable, NotAuthorised or NotPrepared (topic is missing) within 10 seconds, before anything is sent."""
        self._topic = topic_of(lane, TopicNames(settings.topic_prefix))
        self._servers = settings.bootstrap_servers
        admin = make_admin(settings)
        require_topics(admin, {self._topic})
        self._limit = size_limit(admin, self._topic)
        self._delivery_seconds = delivery_seconds
        self._producer = make_producer(settings, delivery_seconds)

    def send(self, changes: Iterable[DocumentChange], confirmed: Confirmed) -> None:
        """Send every change and return when each has been confirmed or refused. Interrupted, it gives up what is still waiting."""
        try:
            for change in changes:
                self._send_one(change, confirmed)
                self._producer.poll(0)
            self._wait()
        except BaseException:
            self._producer.purge()
            self._producer.poll(0)
            raise

    def _wait(self) -> None:
        deadline = time.monotonic() + self._delivery_seconds + 5
        while len(self._producer):
            self._producer.poll(0.2)
            if time.monotonic() > deadline:
                raise NotReachable(
                    f"the broker did not confirm {counted(len(self._producer), 'event')}; run the same command again",
                    bootstrap_servers=self._servers,
                )

    def _send_one(self, change: DocumentChange, confirmed: Confirmed) -> None:
        record = OutRecord(self._topic, document_key(change.tenant_id, change.document_id), encode(change))
        headers, finish = telemetry.sending(self._topic, change.tenant_id, change.document_id, change.op)
        if record.size > self._limit:
            words = "too large for one event; send it by reference (--ref)"
            finish(words)
            confirmed(change, PoisonRecord(words, bytes=record.size, limit=self._limit))
            return

        def delivered(error: KafkaError | None, message: Message) -> None:
            finish("" if error is None else error.name())
            confirmed(change, None if error is None else in_words(error, self._producer, self._topic))

        while True:
            try:
                self._producer.produce(record.topic, key=record.key, value=record.value, headers=headers, on_delivery=delivered)
                return
            except BufferError:
                self._producer.poll(0.1)
