"""One record to the broker: ends when all in-sync replicas have it, and says who must act when they don't."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

from aiokafka.errors import (
    ClusterAuthorizationFailedError,
    KafkaError,
    MessageSizeTooLargeError,
    RecordListTooLargeError,
    TopicAuthorizationFailedError,
)
from faust.exceptions import NotReady, ProducerSendError

from streams import metrics
from streams.errors import DocdeltaError, InvariantBroken, PoisonRecord, Stopping, Unavailable
from streams.faustio.scope import headers_for
from streams.faustio.tracing import Headers

ENVELOPE_BYTES = 512
"""Room for what Kafka adds to key and value; a broker's limit counts it."""


async def deliver(
    app: Any,
    topic: str,
    key: bytes | None,
    value: bytes | None,
    *,
    limit: int,
    partition: int | None = None,
    on_confirmed: Callable[[Any], None] | None = None,
    headers: Headers | None = None,
) -> None:
    """Return when the broker has confirmed the record. `partition` None: murmur2 of the key.

    `headers` None: those that the record in hand hands on.

    `on_confirmed` gets the record's metadata (topic_partition, offset) when it is confirmed, in offset order per partition, also
    when the caller was cancelled meanwhile; what it raises is raised here.

    PoisonRecord: over `limit` bytes, here or by the broker's own limit. Unavailable: not confirmed, it may be in the log or not.
    InvariantBroken: writing is forbidden to us. Stopping: the app is going down.
    """
    size = len(key or b"") + len(value or b"") + ENVELOPE_BYTES
    if size > limit:
        raise PoisonRecord("record is over the topic's size limit", topic=topic, bytes=size, limit=limit)
    try:
        if headers is None and on_confirmed is None:
            headers = headers_for(key or b"")
        with metrics.publishing("record" if on_confirmed is None else "table"):
            sent: asyncio.Future[Any] = await app.producer.send(topic, key, value, partition, None, headers)
            await asyncio.shield(_confirmed(sent, on_confirmed))
    except DocdeltaError:
        raise
    except (NotReady, ProducerSendError, KafkaError, TimeoutError, OSError) as error:
        raise _meaning(app, topic, size, error) from error


def _confirmed(sent: asyncio.Future[Any], on_confirmed: Callable[[Any], None] | None) -> asyncio.Future[None]:
    """A future of both: confirmed, and `on_confirmed` done. A callback, since a cancelled caller must not lose the latter."""
    whole: asyncio.Future[None] = asyncio.get_running_loop().create_future()

    def settle(done: asyncio.Future[Any]) -> None:
        try:
            metadata = done.result()
            if on_confirmed is not None:
                on_confirmed(metadata)
        except asyncio.CancelledError:
            whole.set_exception(Unavailable("producer dropped a record"))
            whole.exception()
        except Exception as error:  # noqa: BLE001 - handed on, not swallowed
            whole.set_exception(error)
            whole.exception()  # the caller may be gone: seen
        else:
            whole.set_result(None)

    sent.add_done_callback(settle)
    return whole


def _meaning(app: Any, topic: str, size: int, error: BaseException) -> DocdeltaError:
    cause = error.__cause__ if isinstance(error, ProducerSendError) and error.__cause__ is not None else error
    if isinstance(cause, MessageSizeTooLargeError | RecordListTooLargeError):
        return PoisonRecord("record is over the broker's size limit", topic=topic, bytes=size, reason=str(cause))
    if isinstance(cause, TopicAuthorizationFailedError | ClusterAuthorizationFailedError):
        return InvariantBroken("not allowed to write to the topic: grant this user Write on it", topic=topic)
    if app.should_stop or isinstance(cause, NotReady):
        return Stopping("the producer is going down", topic=topic)
    return Unavailable("broker did not confirm a record", topic=topic, reason=repr(cause))
