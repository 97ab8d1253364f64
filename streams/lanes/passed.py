"""Changes that have no outcome after a while: are they still at work, or did their outcome never come?

It does not come for an event that the parser knew already (passed on twice after a crash), for one that compaction took away, and
for none where receipts are lost. The broker knows: once the parser's offset is past where [documents] ended, the chunker's past
where [parsed] ended then, and the indexer's past where [changes] ended then, all that was passed on before is done.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from streams.kafka.offsets import PartitionLag, group_lag
from streams.settings import Settings


@dataclass(frozen=True, slots=True)
class Offsets:
    """How far the stages are in one partition. Of each pair `committed` was read before `end`, and stages in their order."""

    documents: tuple[int, int]
    parsed: tuple[int, int]
    changes: tuple[int, int]

    @property
    def stages(self) -> tuple[tuple[int, int], ...]:
        """(committed, end) of each stage, in order."""
        return self.documents, self.parsed, self.changes


@dataclass(slots=True)
class Chase:
    """One change followed through the stages by looks at their offsets."""

    stage: int = 0
    target: int | None = None
    """Offset that the stage has to pass; None until the first look at it."""

    def look(self, offsets: Offsets) -> bool:
        """Take a look, later than the one before. True: the change is through."""
        for stage in range(self.stage, len(offsets.stages)):
            committed, end = offsets.stages[stage]
            if self.target is None or stage > self.stage:
                self.stage, self.target = stage, end
            if committed < self.target:
                return False
        return True


@dataclass(slots=True)
class Chases:
    """All changes without an outcome, by number."""

    chases: dict[int, Chase] = field(default_factory=dict)

    def look(self, overdue: Mapping[int, int], offsets: Mapping[int, Offsets]) -> set[int]:
        """Return those of `overdue` (number to partition) that are through. Others are forgotten, they have their outcome."""
        self.chases = {number: self.chases.get(number, Chase()) for number in overdue}
        through = {
            number for number, partition in overdue.items() if partition in offsets and self.chases[number].look(offsets[partition])
        }
        for number in through:
            del self.chases[number]
        return through


def read_offsets(settings: Settings, batch: str) -> dict[int, Offsets]:
    """Return how far the stages of a batch are, by partition. Blocking. Errors of `group_lag`."""
    topics = settings.topics
    documents = _by_partition(group_lag(settings.kafka, topics.parser_group, [topics.documents]))
    changes = topics.changes(batch)
    of_batch = group_lag(settings.kafka, topics.batch_group(batch), [topics.parsed, changes])
    parsed = _by_partition(each for each in of_batch if each.topic == topics.parsed)
    changed = _by_partition(each for each in of_batch if each.topic == changes)
    return {number: Offsets(documents[number], parsed[number], changed[number]) for number in documents}


def _by_partition(places: Iterable[PartitionLag]) -> dict[int, tuple[int, int]]:
    return {each.partition: (max(each.committed or 0, each.begin), each.end) for each in places}
