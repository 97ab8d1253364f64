"""Reading without a group: a topic to its end as of now, or from its beginning and on. For commands, life-cycle and dev views."""

from __future__ import annotations

import asyncio
import threading
import time
from collections import deque
from collections.abc import AsyncIterator, Iterator, Mapping
from concurrent.futures import CancelledError

from confluent_kafka import KafkaError, Message, TopicPartition

from streams.errors import DocdeltaError, NotAuthorised, NotPrepared, NotReachable
from streams.kafka.client import KafkaConsumer, in_words, make_consumer
from streams.kafka.offsets import end_offsets
from streams.kafka.partitioner import partition_of
from streams.ports import InRecord
from streams.settings import KafkaSettings

_POLL_SECONDS = 0.2
_FETCH = 500
_STALLED_SECONDS = 30.0
_QUEUED_FETCHES = 4


def read_topic(
    settings: KafkaSettings, topic: str, key: bytes | None = None, begin: Mapping[int, int] | None = None
) -> Iterator[InRecord]:
    """Yield the topic's records from the beginning up to the end as it is when called; of one key when `key` is given.

    `begin`: offset by partition to begin at instead.

    In order within a partition; tombstones included, compaction not undone: the last record of a key is the one that counts.
    NotPrepared when the topic is missing; NotReachable when nothing comes for 30 s.
    """
    ends = {partition: end for (_, partition), end in end_offsets(settings, [topic]).items()}
    if key is not None:
        only = partition_of(key, len(ends))
        ends = {only: ends[only]}
    return _up_to(settings, topic, ends, key, begin or {})


def read_span(settings: KafkaSettings, topic: str, partition: int, begin: int, end: int) -> list[InRecord]:
    """Return the records of a partition from offset `begin` up to, not including, `end`, as far as they are still kept.

    NotPrepared when the topic is missing; NotReachable when nothing comes for 30 s.
    """
    return list(_up_to(settings, topic, {partition: end}, None, {partition: begin}))


def record_at(settings: KafkaSettings, topic: str, partition: int, offset: int) -> InRecord | None:
    """Return the record that stands at an offset, or None where it is gone. A consumer of its own, 4 ms of processor and one or
    two answers of the broker: for a few records.

    NotReachable when nothing comes for 30 s.
    """
    consumer = make_consumer(settings, fetch_bytes=1)  # the first batch comes whole, however large it is
    try:
        consumer.assign([TopicPartition(topic, partition, offset)])
        deadline = time.monotonic() + _STALLED_SECONDS
        while time.monotonic() < deadline:
            message = consumer.poll(_POLL_SECONDS)  # `consume` would wait for more than one
            if message is None:
                continue
            if _is_end(message, consumer, topic):
                return None
            if message.error() is None:
                return _record(message) if message.offset() == offset else None
        raise NotReachable("broker sends nothing", topic=topic, said=consumer.reports.cause())
    finally:
        consumer.close()


def read_partitions(
    settings: KafkaSettings, topic: str, ends: Mapping[int, int], begins: Mapping[int, int] | None = None
) -> Iterator[InRecord]:
    """Yield the records of some partitions, from `begins` (or their beginning) up to, not including, `ends`. As `read_topic`."""
    return _up_to(settings, topic, dict(ends), None, begins or {})


def _up_to(
    settings: KafkaSettings, topic: str, ends: dict[int, int], key: bytes | None, begin: Mapping[int, int]
) -> Iterator[InRecord]:
    unread = {partition for partition, end in ends.items() if end > begin.get(partition, 0)}
    if not unread:
        return
    consumer = make_consumer(settings)
    try:
        consumer.assign([TopicPartition(topic, partition, begin.get(partition, 0)) for partition in sorted(unread)])
        last_news = time.monotonic()
        while unread:
            for message in consumer.consume(_FETCH, timeout=_POLL_SECONDS):
                last_news = time.monotonic()
                partition = message.partition()
                if _is_end(message, consumer, topic):  # also where the last records before `end` were compacted away
                    unread.discard(partition)
                    continue
                if message.error() is not None or partition not in unread:
                    continue
                if message.offset() + 1 >= ends[partition]:
                    unread.discard(partition)
                if message.offset() < ends[partition] and (key is None or message.key() == key):
                    yield _record(message)
            if time.monotonic() - last_news > _STALLED_SECONDS:
                raise NotReachable("broker sends nothing", topic=topic, said=consumer.reports.cause())
    finally:
        consumer.close()


_Fetched = list[InRecord] | DocdeltaError | None
"""What the reading thread hands over: records, the error that ended it, or None once all that was there at the start is past."""


class Follower:
    """A topic from its beginning and then as it grows: an async iterator. `caught_up` is set once all that was there at the start
    has been taken. Waits out a broker that is away; ends with NotPrepared when the topic is deleted.

    `from_end`: what is there at the start is left out.
    """

    def __init__(self, settings: KafkaSettings, topic: str, from_end: bool = False) -> None:
        self.caught_up = asyncio.Event()
        self._settings, self._topic, self._from_end = settings, topic, from_end
        self._queue: asyncio.Queue[_Fetched] = asyncio.Queue(_QUEUED_FETCHES)
        self._taken: deque[InRecord] = deque()
        self._stopping = threading.Event()
        self._thread: threading.Thread | None = None

    def __aiter__(self) -> AsyncIterator[InRecord]:
        return self

    async def __anext__(self) -> InRecord:
        while not self._taken:
            fetched = await self._queue.get()
            if isinstance(fetched, DocdeltaError):
                raise fetched
            if fetched is None:
                self.caught_up.set()
            else:
                self._taken.extend(fetched)
        return self._taken.popleft()

    async def start(self) -> None:
        """Begin to read. NotPrepared when the topic is missing, NotReachable when the broker is."""
        loop = asyncio.get_running_loop()
        ends = await asyncio.to_thread(end_offsets, self._settings, [self._topic])
        offsets = {partition: end for (_, partition), end in ends.items()}
        self._thread = threading.Thread(target=self._read, args=(loop, offsets), name=f"follows {self._topic}", daemon=True)
        self._thread.start()

    async def stop(self) -> None:
        """End reading and wait until the thread is gone."""
        self._stopping.set()
        if self._thread is not None:
            await asyncio.to_thread(self._thread.join)

    def _read(self, loop: asyncio.AbstractEventLoop, ends: dict[int, int]) -> None:
        consumer = make_consumer(self._settings)
        try:
            begins = ends if self._from_end else dict.fromkeys(ends, 0)
            consumer.assign([TopicPartition(self._topic, partition, begins[partition]) for partition in sorted(ends)])
            behind = {partition for partition, end in ends.items() if end > begins[partition]}
            caught_up = False
            while not self._stopping.is_set():
                if not behind and not caught_up:
                    self._hand_over(loop, None)
                    caught_up = True
                records = []
                for message in _at_once(consumer):
                    if _is_end(message, consumer, self._topic):
                        behind.discard(message.partition())
                    elif message.error() is None:
                        records.append(_record(message))
                        if message.offset() + 1 >= ends.get(message.partition(), 0):
                            behind.discard(message.partition())
                if records:
                    self._hand_over(loop, records)
        except DocdeltaError as error:
            self._hand_over(loop, error)
        finally:
            consumer.close()

    def _hand_over(self, loop: asyncio.AbstractEventLoop, fetched: _Fetched) -> None:
        """Put into the loop's queue, waiting while it is full, unless we are stopping or the loop is gone."""
        if self._stopping.is_set() or loop.is_closed():
            return
        waiting = asyncio.run_coroutine_threadsafe(self._queue.put(fetched), loop)
        while not self._stopping.is_set():
            try:
                waiting.result(timeout=_POLL_SECONDS)
            except TimeoutError:
                continue
            except CancelledError:  # the loop ends without having stopped us
                self._stopping.set()
            return
        waiting.cancel()


async def follow(settings: KafkaSettings, topic: str) -> AsyncIterator[tuple[bytes | None, bytes | None]]:
    """Yield (key, value) of every record of a topic, from its beginning and then as they come, until the caller ends.

    A `Follower` in its simplest form: same errors. Use that one where the place of a record, or having caught up, matters.
    """
    follower = Follower(settings, topic)
    await follower.start()
    try:
        async for record in follower:
            yield record.key, record.value
    finally:
        await follower.stop()


def _at_once(consumer: KafkaConsumer) -> list[Message]:
    """Return what has come, as soon as anything has: `consume` alone would wait for more."""
    first = consumer.poll(_POLL_SECONDS)
    return [] if first is None else [first, *consumer.consume(_FETCH - 1, timeout=0)]


def _is_end(message: Message, consumer: KafkaConsumer, topic: str) -> bool:
    """Return whether an event is the end of its partition. Raises what can't pass by itself: a missing topic, a missing right."""
    error = message.error()
    if error is None:
        return False
    if error.code() == KafkaError._PARTITION_EOF:
        return True
    if error.code() == KafkaError.GROUP_AUTHORIZATION_FAILED:  # no group is used here
        return False
    fault = in_words(error, consumer, topic)
    if isinstance(fault, (NotPrepared, NotAuthorised)):
        raise fault
    return False


def _record(message: Message) -> InRecord:
    kind, milliseconds = message.timestamp()
    headers = {name: value or b"" for name, value in message.headers() or ()}
    return InRecord(
        topic=message.topic(),
        partition=message.partition(),
        offset=message.offset(),
        key=message.key(),
        value=message.value(),
        headers=headers,
        timestamp=milliseconds / 1000 if kind else 0.0,
    )
