"""Bulk producing: every record is confirmed by the broker, or the first failure is raised. Used by commands, not by agents."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field

from confluent_kafka import KafkaError, KafkaException, Message
from confluent_kafka.admin import ConfigResource, ResourceType

from streams import telemetry
from streams.errors import DocdeltaError, PoisonRecord
from streams.kafka.client import KafkaAdmin, KafkaProducer, in_words, make_admin, make_producer, require_topics
from streams.settings import KafkaSettings
from streams.topics import MAX_RECORD_BYTES

FRAME_BYTES = 512
"""What Kafka adds to a record of its own (batch and record headers, lengths), at most."""


@dataclass(frozen=True, slots=True)
class OutRecord:
    """One record to be written. `value` None is a tombstone."""

    topic: str
    key: bytes | None
    value: bytes | None
    headers: Mapping[str, bytes] = field(default_factory=dict)
    sends: str = ""
    """What an event of a document is sent for, as its span is called (``send reindex``), by the document's key; empty: no span."""

    @property
    def size(self) -> int:
        """Bytes on the wire before compression, frame included."""
        headers = sum(len(name.encode()) + len(value) + 10 for name, value in self.headers.items())
        return len(self.key or b"") + len(self.value or b"") + headers + FRAME_BYTES


def produce_all(
    settings: KafkaSettings,
    records: Iterable[OutRecord],
    on_progress: Callable[[int], None] | None = None,
    delivery_seconds: float = 60.0,
) -> int:
    """Write all records in order (per key) and return how many the broker confirmed, which is all of them.

    `on_progress(confirmed)` is called now and then, and at the end. Raises at the first failure, with `confirmed` among its facts:
    NotReachable, NotAuthorised, NotPrepared (no such topic), PoisonRecord (over the topic's size limit; nothing of it was sent).
    Records behind a failed one may have been written; writing all of them again is safe for what docdelta writes.
    """
    writer = _Writer(settings, on_progress or (lambda confirmed: None), delivery_seconds)
    for record in records:
        writer.write(record)
    return writer.finish()


class _Writer:
    def __init__(self, settings: KafkaSettings, on_progress: Callable[[int], None], delivery_seconds: float) -> None:
        self._admin: KafkaAdmin = make_admin(settings)
        self._producer: KafkaProducer = make_producer(settings, delivery_seconds)
        self._on_progress = on_progress
        self._limits: dict[str, int] = {}
        self._confirmed = 0
        self._failure: DocdeltaError | None = None

    def write(self, record: OutRecord) -> None:
        limit = self._limit(record.topic)
        if record.size > limit:
            facts = {"topic": record.topic, "key": record.key, "bytes": record.size, "limit": limit}
            self._give_up(PoisonRecord("record is over the size limit of its topic", **facts))
        headers, settled = _with_span(record, self._settle)
        while True:
            try:
                self._producer.produce(record.topic, key=record.key, value=record.value, headers=headers, on_delivery=settled)
                break
            except BufferError:
                self._serve(0.1)
            except DocdeltaError as failure:  # a producer that met something fatal takes nothing more
                self._give_up(failure)
        self._serve(0)

    def finish(self) -> int:
        while len(self._producer):
            self._serve(0.2)
        self._serve(0)
        self._on_progress(self._confirmed)
        return self._confirmed

    def _settle(self, error: KafkaError | None, message: Message) -> None:
        if error is None:
            self._confirmed += 1
        elif self._failure is None:
            self._failure = in_words(error, self._producer, message.topic() or "")

    def _serve(self, seconds: float) -> None:
        before = self._confirmed
        try:
            self._producer.poll(seconds)
        except DocdeltaError as failure:
            self._give_up(failure)
        if self._failure is not None:
            self._give_up(self._failure)
        if self._confirmed // 1000 != before // 1000:
            self._on_progress(self._confirmed)

    def _give_up(self, failure: DocdeltaError) -> None:
        self._producer.purge()
        failure.facts["confirmed"] = self._confirmed
        raise failure

    def _limit(self, topic: str) -> int:
        if topic not in self._limits:
            require_topics(self._producer, {topic})
            self._limits[topic] = size_limit(self._admin, topic)
        return self._limits[topic]


_Settled = Callable[[KafkaError | None, Message], None]


def _with_span(record: OutRecord, settle: _Settled) -> tuple[dict[str, bytes], _Settled]:
    """Return the headers of a record, with its span where it has one, and what to call when the broker has settled it."""
    if not record.sends:
        return dict(record.headers), settle
    tenant, _, document = (record.key or b"").decode("utf-8", "replace").partition("/")
    headers, finish = telemetry.sending(record.topic, tenant, document, record.sends, record.headers)

    def settled(error: KafkaError | None, message: Message) -> None:
        finish("" if error is None else error.name())
        settle(error, message)

    return headers, settled


def size_limit(admin: KafkaAdmin, topic: str) -> int:
    """Return the topic's max.message.bytes; where the broker does not tell, the largest record that docdelta ever writes."""
    resource = ConfigResource(ResourceType.TOPIC, topic)
    try:
        described = admin.describe_configs([resource], request_timeout=10)[resource].result()
    except KafkaException:  # no right to describe: the broker itself will refuse what is too large
        return MAX_RECORD_BYTES
    entry = described.get("max.message.bytes")
    return int(entry.value) if entry is not None and entry.value else MAX_RECORD_BYTES
