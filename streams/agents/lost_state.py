"""Lost state: the memory of a batch is gone while changes that were planned by it are still on their way."""

from __future__ import annotations

from collections.abc import Collection, Iterable
from dataclasses import dataclass

import structlog

from streams.agents.chunk_document import ChunkerAgent
from streams.agents.index_changes import IndexerAgent
from streams.kafka.offsets import PartitionLag

log = structlog.get_logger(__name__)


@dataclass(frozen=True, slots=True)
class LostState:
    """Tells the agents of one batch which records they can't trust their manifests for (`compare_until` of both)."""

    chunker: ChunkerAgent
    indexer: IndexerAgent
    parsed: str
    changes: str
    changelog: str
    """Topic of the manifests. Compaction keeps the last record of a key, so it is empty only where nothing was ever saved, or all
    of it is gone."""

    def look(self, places: Iterable[PartitionLag], partitions: Collection[int]) -> frozenset[int]:
        """Return those of `partitions` whose manifests are lost, and have their records so far compared with the index itself.

        places: all three topics as they stand, read after the partitions were assigned and before a record of them was handled.
        A worker that died after its very first changes and before their manifest looks the same; comparing costs it look-ups only.
        What this can't see: a predecessor that found the loss and died after it had saved the first manifests.
        """
        known = {(place.topic, place.partition): place for place in places}
        lost = frozenset(
            number
            for number in partitions
            if _is_empty(known[self.changelog, number]) and not _is_empty(known[self.changes, number])
        )
        for number in sorted(lost):
            parsed, changes = known[self.parsed, number].end, known[self.changes, number].end
            self.chunker.compare_until[number] = parsed
            self.indexer.compare_until[number] = changes
            log.warning(
                "manifests are lost: comparing with the index", partition=number, parsed_until=parsed, changes_until=changes
            )
        return lost


def never_worked_on(places: Iterable[PartitionLag], changelog: str, partitions: Collection[int]) -> bool:
    """Return whether a group begins with nothing behind it: it owns all partitions, committed none, and remembers nothing.

    So no other member is there, and none was that had finished a record.
    """
    places = list(places)
    everything = {place.partition for place in places} <= set(partitions)
    return everything and all(place.committed is None and (place.topic != changelog or _is_empty(place)) for place in places)


def _is_empty(place: PartitionLag) -> bool:
    return place.begin >= place.end
