"""OwnedManifests: the manifests of a batch app that runs in this worker, as its watch sees them."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from chunking.manifest import Manifest
from streams.agents.manifests import Manifests
from streams.audit.expected import OnRow
from streams.daemon import in_daemon_thread
from streams.faustio.readiness import assigned_partitions, is_ready
from streams.faustio.scope import standing_in
from streams.faustio.table import FaustTable
from streams.kafka.offsets import group_lag
from streams.kafka.read import read_partitions
from streams.settings import Settings


@dataclass(frozen=True, slots=True)
class OwnedManifests:
    """streams.audit.watch.Owned of a running batch app."""

    app: Any
    settings: Settings
    batch: str

    @property
    def _table(self) -> FaustTable:
        return FaustTable(self.app.tables[self.settings.topics.manifests_table])

    def partitions(self) -> tuple[int, ...]:
        """Return the partitions that are owned and recovered."""
        return assigned_partitions(self.app).get(self.settings.topics.parsed, ()) if is_ready(self.app) else ()

    def generation(self) -> int:
        """Return which giving out of partitions is in force."""
        return int(self.app.consumer_generation_id)

    def follow(self, on_row: OnRow) -> None:
        """Have a function called with each row that is written from now on."""
        self.app.tables[self.settings.topics.manifests_table].on_row = on_row

    def rows(self, partition: int) -> Iterator[tuple[bytes, bytes]]:
        """Yield the manifests of a partition as they are stored."""
        return self._table.rows(partition)

    def manifest(self, partition: int, key: bytes) -> Manifest | None:
        """Return a manifest as it is now."""
        with standing_in(self.settings.topics.parsed, partition):
            return Manifests(self._table).get(key)

    async def in_flight(self, partition: int, limit: int) -> frozenset[bytes] | None:
        """Return the documents that are ahead of the group in a partition of [parsed] and [changes]."""
        topics = self.settings.topics

        def read() -> frozenset[bytes] | None:
            keys: set[bytes] = set()
            for topic in (topics.parsed, topics.changes(self.batch)):
                (place,) = (
                    each
                    for each in group_lag(self.settings.kafka, topics.batch_group(self.batch), [topic])
                    if each.partition == partition
                )
                if place.lag > limit:
                    return None
                if place.lag:
                    begin = max(place.begin, place.committed or 0)
                    records = read_partitions(self.settings.kafka, topic, {partition: place.end}, {partition: begin})
                    keys.update(record.key for record in records if record.key is not None)
            return frozenset(keys)

        return await in_daemon_thread(read, "reading what is on its way")
