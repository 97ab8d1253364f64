"""Tables whose writes end when the changelog has them, and not before.

Faust writes the local store first and queues the changelog record in a buffer; a commit waits a tenth of a second for it, and a
failed send kills the app. Here the order is: ① changelog record, confirmed by the broker ② local store and its persisted offset.
A crash between the two leaves a store that is behind, with an offset that says so: recovery reads the record. The event is not
acknowledged either way, so whatever was decided by the old value is decided again.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, NoReturn

import faust
from faust.exceptions import PartitionsMismatch
from faust.stores import rocksdb

from streams.crash_points import reached
from streams.errors import InvariantBroken, Stopping
from streams.faustio.delivery import deliver
from streams.faustio.rocks import SharedMemory
from streams.faustio.scope import acting_for, event_for
from streams.topics import MAX_RECORD_BYTES


class AckedTable(faust.Table):  # type: ignore[misc]
    """A Faust table of bytes to bytes that is read with `read` and written with `write` only."""

    on_row: Callable[[int, bytes, bytes | None, bytes], None] | None = None
    """Called with partition, key, the row before and the row after, for each row that is stored here."""

    def _new_store(self) -> Any:
        store = super()._new_store()
        if isinstance(store, rocksdb.Store):
            store.rocksdb_options = SharedMemory()
        return store

    def on_key_set(self, key: Any, value: Any) -> NoReturn:
        """Refuse `table[key] = value`: nobody could wait for it."""
        raise InvariantBroken("write tables with `await put(key, value)`: assigning can't wait for the broker", table=self.name)

    def on_key_del(self, key: Any) -> NoReturn:
        """Refuse `del table[key]`: a deleted key can come back after a rebalance. Store a mark instead."""
        raise InvariantBroken("table keys are never deleted: store a value that says so", table=self.name)

    def read(self, event: Any, key: bytes) -> bytes | None:
        """Return the value of `key` in the partition of `event`, or None."""
        with acting_for(event):
            try:
                value: bytes | None = self.data[key]
            except KeyError:
                return None
        return value

    def rows(self, partition: int) -> Iterator[tuple[bytes, bytes]]:
        """Yield key and value of every row of a partition that this app owns. Rows that are written meanwhile may be missed."""
        store = self.data
        if hasattr(store, "_key_partition"):
            keys = [key for key, number in store._key_partition.items() if number == partition]
            yield from ((key, store.data[key]) for key in keys if key in store.data)
            return
        for key, value in store._visible_items(store._db_for_partition(partition)):
            yield store._decode_key(key), store._decode_value(value)

    async def write(self, event: Any, key: bytes, value: bytes) -> None:
        """Store a value in the partition of `event`; ends when changelog and local store have it. Errors as in `deliver`.

        Stopping when the partition was given up meanwhile: the record is in the changelog, the new owner reads it there.
        """
        if not value:
            raise InvariantBroken("table values are never empty: Faust's memory store drops them", table=self.name, key=key)
        try:
            self._verify_source_topic_partitions(event.message.topic)
        except PartitionsMismatch as error:
            raise InvariantBroken(
                "a table and the topic that feeds it need the same number of partitions: run `docdelta topics describe`",
                table=self.name,
                topic=event.message.topic,
            ) from error
        generation = self.app.consumer_generation_id

        def confirmed(metadata: Any) -> None:
            reached("table.confirmed")
            if self.app.consumer_generation_id != generation:
                # The store may belong to someone else by now, and records of theirs may lie between its offset and this one.
                raise Stopping("partition was given up during a table write", table=self.name)
            self._apply(event, key, value, metadata)
            reached("table.stored")

        await deliver(
            self.app,
            self.changelog_topic_name,
            key,
            value,
            limit=MAX_RECORD_BYTES,
            partition=event.message.partition,
            on_confirmed=confirmed,
        )

    def _apply(self, event: Any, key: bytes, value: bytes, metadata: Any) -> None:
        store = self.data
        try:
            with acting_for(event):
                before = store.get(key) if self.on_row is not None else None
                store[key] = value
            if hasattr(store, "_key_partition"):  # memory: what is not noted here outlives the loss of its partition
                store._key_partition[key] = event.message.partition
            store.set_persisted_offset(metadata.topic_partition, metadata.offset)
            if self.on_row is not None:
                self.on_row(event.message.partition, key, before, value)
        except Exception as error:
            raise InvariantBroken(
                "local table store refused a write: check its disk; the folder can be deleted while the worker is down",
                table=self.name,
                reason=repr(error),
            ) from error


class FaustTable:
    """streams.ports.Table over an AckedTable, for use inside of handlers that a runner calls."""

    def __init__(self, table: AckedTable) -> None:
        self._table = table

    def get(self, key: bytes) -> bytes | None:
        """Return the value of a key of the record (or of one of the records) in hand, or None."""
        return self._table.read(event_for(key), key)

    def rows(self, partition: int) -> Iterator[tuple[bytes, bytes]]:
        """Yield all rows of a partition, as of AckedTable."""
        return self._table.rows(partition)

    async def put(self, key: bytes, value: bytes) -> None:
        """Store a value; ends when the changelog record is confirmed. PoisonRecord when it is over the size limit."""
        await self._table.write(event_for(key), key, value)
