"""KafkaSender: DocumentChanges to the documents topic through confluent-kafka, each confirmed by the broker or reported by name."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from schemas.codec import encode
from schemas.document_change import DocumentChange
from schemas.record import document_key
from streams.connectors.base import Confirmed
from streams.connectors.content import fits
from streams.errors import DocdeltaError, NotAuthorised, NotPrepared, NotReachable, PoisonRecord
from streams.settings import KafkaSettings
from streams.topics import TopicNames

DELIVERY_SECONDS = 30.0
"""How long a record may wait for the broker's confirmation before it is reported."""
REACH_SECONDS = 8.0
"""How long a command waits for a first answer of the broker."""


class KafkaSender:
    """Sends through an idempotent producer (acks=all). One instance a command."""

    def __init__(self, settings: KafkaSettings) -> None:
        """Raises NotReachable, NotAuthorised or NotPrepared (no documents topic) within `REACH_SECONDS`, before a send."""
        from streams.kafka.client import producer

        self._topic = TopicNames(settings.topic_prefix).documents
        self._servers = settings.bootstrap_servers
        self._producer: Any = producer(settings, delivery_seconds=DELIVERY_SECONDS)
        self._check_topic()

    def send(self, changes: Iterable[DocumentChange], confirmed: Confirmed) -> None:
        """Send every change and return when each has been confirmed or refused. Interrupted, it gives up what is still waiting."""
        try:
            for change in changes:
                self._send_one(change, confirmed)
                self._producer.poll(0)
            waiting = self._producer.flush(DELIVERY_SECONDS + 5)
        except BaseException:
            self._producer.purge()
            self._producer.flush(1)
            raise
        if waiting:
            raise NotReachable(f"broker {self._servers} did not confirm {waiting} events; run the same command again")

    def _send_one(self, change: DocumentChange, confirmed: Confirmed) -> None:
        if not fits(change):
            confirmed(change, PoisonRecord("too large for one event; send it by reference (--ref)"))
            return

        def delivered(error: Any, message: Any) -> None:
            confirmed(change, None if error is None else self._in_words(error))

        key, value = document_key(change.tenant_id, change.document_id), encode(change)
        while True:
            try:
                self._producer.produce(self._topic, value=value, key=key, on_delivery=delivered)
                return
            except BufferError:
                self._producer.poll(0.1)

    def _check_topic(self) -> None:
        from confluent_kafka import KafkaException

        try:
            metadata = self._producer.list_topics(self._topic, timeout=REACH_SECONDS)
        except KafkaException as error:
            raise self._in_words(error.args[0]) from error
        found = metadata.topics.get(self._topic)
        if found is None or found.error is not None or not found.partitions:
            raise NotPrepared(f"topic {self._topic} does not exist on {self._servers}: run docdelta topics apply")

    def _in_words(self, error: Any) -> DocdeltaError:
        """Return a broker's error as one of ours, with what to do."""
        from confluent_kafka import KafkaError

        code = error.code()
        if code in (
            KafkaError._ALL_BROKERS_DOWN,
            KafkaError._TRANSPORT,
            KafkaError._TIMED_OUT,
            KafkaError._MSG_TIMED_OUT,
            KafkaError._RESOLVE,
        ):
            return NotReachable(f"broker {self._servers} does not answer ({error.str()}); check kafka.bootstrap_servers")
        if code in (KafkaError._AUTHENTICATION, KafkaError.SASL_AUTHENTICATION_FAILED):
            return NotAuthorised(f"broker {self._servers} refused the login; check kafka.sasl_username and kafka.sasl_password")
        if code in (KafkaError.TOPIC_AUTHORIZATION_FAILED, KafkaError.CLUSTER_AUTHORIZATION_FAILED):
            return NotAuthorised(f"broker {self._servers} does not allow writing to {self._topic}")
        if code in (KafkaError.UNKNOWN_TOPIC_OR_PART, KafkaError._UNKNOWN_TOPIC):
            return NotPrepared(f"topic {self._topic} does not exist on {self._servers}: run docdelta topics apply")
        if code == KafkaError.MSG_SIZE_TOO_LARGE:
            return PoisonRecord("the broker takes no event of this size; check max.message.bytes (docdelta topics describe)")
        return DocdeltaError(f"the broker did not take it: {error.str()}")
