"""Lost state: the memory of a batch is gone while changes that were planned by it are still on their way."""

from __future__ import annotations

from collections.abc import Collection, Iterable
from dataclasses import dataclass

import structlog

from streams.agents.chunk_document import ChunkerAgent
from streams.agents.index_changes import IndexerAgent
from streams.errors import NotPrepared
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


    async def look_for_nothing(self, places: Iterable[PartitionLag], partitions: Collection[int], never_worked_on: bool) -> None:
        """Tell the chunker which of `partitions`, all new here, begin with nothing: no document of them needs a look at the index.

        So it is where the group was never worked on, no changes were ever planned, and the collection is empty: read in this order,
        after the partitions were assigned. From then on every manifest passes through this worker. One that comes later, or begins
        again after a death, finds something and asks for each document that it does not know, since what it was left may be less
        than all. A worker that owned the partition before, saved nothing and is paused with records in hand, which compaction may
        remove from [parsed] meanwhile, has left its trace: what it committed before it took them (faustio/handover.py).
        """
        self.chunker.begun_empty.difference_update(partitions)
        if not never_worked_on or not all(_is_empty(place) for place in places if place.topic == self.changes):
            return
        chunker = self.chunker
        try:
            points = await chunker.outbox.patience.hold(lambda: chunker.index.count(chunker.collection), "reading the index")
        except NotPrepared:
            return
        if not points:
            chunker.begun_empty.update(partitions)


def never_worked_on(places: Iterable[PartitionLag], changelog: str, partitions: Collection[int]) -> bool:
    """Return whether a group begins with nothing behind it: it owns all partitions, committed none, and remembers nothing.

    So no other member is there, and none was that had finished a record.
    """
    places = list(places)
    everything = {place.partition for place in places} <= set(partitions)
    return everything and all(place.committed is None and (place.topic != changelog or _is_empty(place)) for place in places)


def _is_empty(place: PartitionLag) -> bool:
    return place.begin >= place.end
