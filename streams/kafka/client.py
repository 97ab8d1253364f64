"""confluent-kafka clients from settings, and what their errors mean in words of `streams.errors`.

A client's own threads report a refused password or an unknown host through a callback, while the call that waits only times out.
Each client made here keeps those reports, so that the error raised names the cause.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, TypeVar

from confluent_kafka import Consumer, KafkaError, KafkaException, Producer
from confluent_kafka.admin import AdminClient

from streams.errors import DocdeltaError, NotAuthorised, NotPrepared, NotReachable, PoisonRecord, Unavailable
from streams.kafka.tansu_ways import producer_overrides
from streams.kafka.waiting import TOLD_SECONDS, waiting_for
from streams.settings import KafkaSettings
from streams.topics import MAX_RECORD_BYTES, MEBIBYTE

CONNECT_SECONDS = 8.0
"""How long a first answer is waited for before the broker counts as not reachable."""
REQUEST_SECONDS = 15.0
"""How long one request to a broker that is there may take."""
BATCH_MAX_BYTES = MAX_RECORD_BYTES + MEBIBYTE

_REFUSED = {
    KafkaError._AUTHENTICATION,
    KafkaError.SASL_AUTHENTICATION_FAILED,
    KafkaError.UNSUPPORTED_SASL_MECHANISM,
    KafkaError.ILLEGAL_SASL_STATE,
    KafkaError.TOPIC_AUTHORIZATION_FAILED,
    KafkaError.GROUP_AUTHORIZATION_FAILED,
    KafkaError.CLUSTER_AUTHORIZATION_FAILED,
}
_MISSING = {KafkaError.UNKNOWN_TOPIC_OR_PART, KafkaError._UNKNOWN_TOPIC, KafkaError._UNKNOWN_PARTITION}
_PASSING = {
    KafkaError.NOT_LEADER_FOR_PARTITION,
    KafkaError.LEADER_NOT_AVAILABLE,
    KafkaError.NOT_COORDINATOR,
    KafkaError.COORDINATOR_NOT_AVAILABLE,
    KafkaError.COORDINATOR_LOAD_IN_PROGRESS,
    KafkaError.UNKNOWN_TOPIC_OR_PART,
}
"""What a broker says of a topic or group for a moment after it was made or moved."""
_AWAY = {
    KafkaError._TRANSPORT,
    KafkaError._ALL_BROKERS_DOWN,
    KafkaError._TIMED_OUT,
    KafkaError._MSG_TIMED_OUT,
    KafkaError._RESOLVE,
    KafkaError._SSL,
    KafkaError._TIMED_OUT_QUEUE,
}


class Reports:
    """What a client's threads reported, newest last. Called by librdkafka on the thread that polls."""

    def __init__(self) -> None:
        self.errors: list[KafkaError] = []

    def __call__(self, error: KafkaError) -> None:
        self.errors = [*self.errors[-19:], error]

    def refusal(self) -> KafkaError | None:
        """Return the newest report that the broker refused us, or None."""
        # A group's refusal says nothing about topics: librdkafka asks for the group even where only `assign` is used.
        telling = _REFUSED - {KafkaError.GROUP_AUTHORIZATION_FAILED}
        return next((error for error in reversed(self.errors) if error.code() in telling), None)

    def cause(self) -> str:
        """Return the most telling report in words, or an empty string."""
        telling = [error for error in self.errors if error.code() != KafkaError._ALL_BROKERS_DOWN]
        return str(telling[-1].str()) if telling else ""


class KafkaAdmin(AdminClient):  # type: ignore[misc]
    """An admin client with its reports. Make one with `make_admin`."""

    def __init__(self, settings: KafkaSettings) -> None:
        self.settings, self.reports = settings, Reports()
        super().__init__({**configuration(settings), "error_cb": self.reports})


class KafkaProducer(Producer):  # type: ignore[misc]
    """An idempotent producer with its reports. `produce` and `poll` raise our errors. Make one with `make_producer`."""

    def __init__(self, settings: KafkaSettings, delivery_seconds: float) -> None:
        self.settings, self.reports = settings, Reports()
        super().__init__(
            {
                **configuration(settings),
                "error_cb": self.reports,
                "enable.idempotence": True,
                "acks": "all",
                "partitioner": "murmur2_random",
                "compression.type": "lz4",
                "linger.ms": 5,
                "message.max.bytes": BATCH_MAX_BYTES,
                "message.timeout.ms": int(delivery_seconds * 1000),
                "queue.buffering.max.kbytes": 64 * 1024,
                **producer_overrides(settings),
            }
        )

    def poll(self, timeout: float = -1) -> int:
        """Serve deliveries and reports. Raises when the producer met something fatal, such as a missing right to write."""
        with in_our_words(self):
            return int(super().poll(timeout))

    def produce(self, topic: str, *arguments: Any, **options: Any) -> None:
        """Queue a record. BufferError while the queue is full: poll, then try again."""
        try:
            super().produce(topic, *arguments, **options)
        except KafkaException as error:
            if error.args[0].code() == KafkaError._FATAL:
                self.poll(0)  # raises what it was
            raise in_words(error.args[0], self, topic) from error


class KafkaConsumer(Consumer):  # type: ignore[misc]
    """A consumer that commits nothing by itself, with its reports. Make one with `make_consumer`."""

    def __init__(self, settings: KafkaSettings, group: str, fetch_bytes: int = BATCH_MAX_BYTES) -> None:
        self.settings, self.reports = settings, Reports()
        super().__init__(
            {
                **configuration(settings),
                "error_cb": self.reports,
                "group.id": group,
                "enable.auto.commit": False,
                "auto.offset.reset": "earliest",
                "allow.auto.create.topics": False,
                "enable.partition.eof": True,
                "fetch.message.max.bytes": fetch_bytes,
                "queued.max.messages.kbytes": 64 * 1024,
            }
        )


Answer = TypeVar("Answer")
Client = KafkaAdmin | KafkaProducer | KafkaConsumer


def configuration(settings: KafkaSettings) -> dict[str, Any]:
    """Return librdkafka's common settings: address, TLS, SASL. Holds the password in clear: never log it."""
    common: dict[str, Any] = {
        "bootstrap.servers": settings.bootstrap_servers,
        "security.protocol": settings.security_protocol,
        "client.id": "docdelta",
        "log_level": 2,  # what is reported at the levels below comes through Reports as well
        "socket.keepalive.enable": True,
        "reconnect.backoff.max.ms": 2000,
    }
    if settings.security_protocol.startswith("SASL"):
        common["sasl.mechanism"] = settings.sasl_mechanism
        common["sasl.username"] = settings.sasl_username
        common["sasl.password"] = settings.sasl_password.get_secret_value()
    files = {
        "ssl.ca.location": settings.ssl_ca_file,
        "ssl.certificate.location": settings.ssl_certificate_file,
        "ssl.key.location": settings.ssl_key_file,
    }
    if settings.security_protocol.endswith("SSL"):
        common |= {name: str(file) for name, file in files.items() if file is not None}
    return common


def make_admin(settings: KafkaSettings) -> KafkaAdmin:
    """Return an admin client. Connects when first used."""
    admin: KafkaAdmin = _made(KafkaAdmin, settings)
    return admin


def make_producer(settings: KafkaSettings, delivery_seconds: float = 60.0) -> KafkaProducer:
    """Return an idempotent producer, acks from all in-sync replicas, keys partitioned as everywhere in Kafka (murmur2)."""
    producer: KafkaProducer = _made(KafkaProducer, settings, delivery_seconds)
    return producer


def make_consumer(
    settings: KafkaSettings, group: str = "docdelta-reader", fetch_bytes: int = BATCH_MAX_BYTES
) -> KafkaConsumer:
    """Return a consumer that commits nothing by itself. Partition ends are reported as events (`_PARTITION_EOF`)."""
    consumer: KafkaConsumer = _made(KafkaConsumer, settings, group, fetch_bytes)
    return consumer


def cluster_topics(client: KafkaAdmin | KafkaProducer, patience: float = CONNECT_SECONDS) -> dict[str, int]:
    """Return every topic and its number of partitions. NotReachable or NotAuthorised, at the latest after `patience` seconds.

    Reads the whole list, never one name: brokers that create topics on request would create it.
    """
    began, told = time.monotonic(), False
    deadline = began + patience
    while True:
        try:
            listed = client.list_topics(timeout=min(1.0, patience))
        except KafkaException as error:
            client.poll(0)  # lets it deliver what its threads reported
            if client.reports.refusal() is not None or time.monotonic() >= deadline:
                raise in_words(error.args[0], client) from error
            if not told and time.monotonic() - began >= TOLD_SECONDS:
                told = True
                waiting_for(client.settings.bootstrap_servers)
        else:
            return {name: len(topic.partitions) for name, topic in listed.topics.items() if topic.error is None}


def require_topics(client: KafkaAdmin | KafkaProducer, names: set[str], patience: float = CONNECT_SECONDS) -> dict[str, int]:
    """Return the partitions of the topics `names`. NotPrepared naming those that do not exist."""
    known = cluster_topics(client, patience)
    missing = sorted(names - known.keys())
    if missing:
        settings = client.settings
        hidden = f", or user {settings.sasl_username} may not see it" if settings.security_protocol.startswith("SASL") else ""
        words = f"topic {', '.join(missing)} does not exist{hidden}; run `docdelta topics apply`, or `docdelta init` first"
        raise NotPrepared(words, bootstrap_servers=settings.bootstrap_servers)
    return {name: known[name] for name in names}


def in_words(error: KafkaError, client: Client, topic: str = "") -> DocdeltaError:
    """Return the error of our tree that says what `error`, met by `client`, means and who must act."""
    settings = client.settings
    refusal = client.reports.refusal()
    code = error.code()
    about: dict[str, Any] = {"topic": topic} if topic else {}
    if code in _REFUSED or (refusal is not None and (code in _AWAY or code == KafkaError._FATAL)):
        said = (error if code in _REFUSED or refusal is None else refusal).str()
        return NotAuthorised(
            f"broker refuses user {settings.sasl_username or '(none)'} over {settings.security_protocol}: {said}",
            bootstrap_servers=settings.bootstrap_servers,
            **about,
        )
    if code in _MISSING:
        words = f"topic {topic or '(unknown)'} does not exist; run `docdelta topics apply`, or `docdelta init` first"
        return NotPrepared(words, said=error.str())
    if code in (KafkaError.MSG_SIZE_TOO_LARGE, KafkaError.RECORD_LIST_TOO_LARGE):
        return PoisonRecord("record is over the size limit of its topic", **about)
    if code in _AWAY:
        cause = client.reports.cause() or f"{error.str()} (does its listener speak {settings.security_protocol}?)"
        none_named = settings.bootstrap_servers == KafkaSettings().bootstrap_servers
        advice = "; name one in kafka.bootstrap_servers, or run docdelta dev in this folder" if none_named else ""
        return NotReachable(f"no answer from the broker: {cause}{advice}", bootstrap_servers=settings.bootstrap_servers, **about)
    return Unavailable(f"broker answers: {error.str()}", code=error.name(), **about)


def patiently(client: Client, ask: Callable[[], Answer]) -> Answer:
    """Return what `ask` returns, asking again while the broker says that leaders or coordinators are on the move. Our errors."""
    deadline = time.monotonic() + REQUEST_SECONDS
    while True:
        try:
            return ask()
        except KafkaException as error:
            if error.args[0].code() not in _PASSING or time.monotonic() > deadline:
                raise in_words(error.args[0], client) from error
        time.sleep(0.1)


@contextmanager
def in_our_words(client: Client, topic: str = "", unless: tuple[int, ...] = ()) -> Iterator[None]:
    """Raise the errors of our tree for those of the block; pass over codes that are among `unless`."""
    try:
        yield
    except KafkaException as error:
        if error.args[0].code() in unless:
            return
        raise in_words(error.args[0], client, topic) from error


def _made(kind: Any, settings: KafkaSettings, *rest: Any) -> Any:
    try:
        return kind(settings, *rest)
    except KafkaException as error:  # a file that can't be read, a mechanism that this build lacks
        raise NotPrepared(f"kafka settings can't be used: {error.args[0].str()}") from error
