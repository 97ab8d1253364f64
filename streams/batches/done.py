"""How far a batch's work is, where its commits say less: after a takeover workers hold commits back for a while.

A record whose outcome is out is done, committed or not: the receipt comes after every write. So a group stands at the first record
that has no outcome. Reads at most MOST records behind the commits; with more of them the commits count.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace

from schemas.chunk_changes import ChunkChanges
from schemas.codec import UndecodableRecord, decode
from schemas.parsed_document import ParsedDocument
from streams.batches.outcomes import Event, Outcomes
from streams.kafka.offsets import PartitionLag
from streams.ports import InRecord

MOST = 5_000
Span = Callable[[str, int, int, int], Sequence[InRecord]]
"""(topic, partition, begin, end) to the records in between, as far as they are kept."""


def standing(offsets: Sequence[PartitionLag], outcomes: Outcomes, parsed_topic: str, span: Span) -> list[PartitionLag]:
    """Return the offsets with each partition at its first record without an outcome. Errors are those of `span`."""
    if sum(each.lag for each in offsets) > MOST:
        return list(offsets)
    return [_at_first_undone(each, outcomes, parsed_topic, span) if each.lag else each for each in offsets]


def _at_first_undone(place: PartitionLag, outcomes: Outcomes, parsed_topic: str, span: Span) -> PartitionLag:
    begin = max(place.begin, place.committed or 0)
    kind = ParsedDocument if place.topic == parsed_topic else ChunkChanges
    for record in span(place.topic, place.partition, begin, place.end):
        if event_of(record, kind) not in outcomes.events:
            return replace(place, committed=max(begin, record.offset))
    return replace(place, committed=place.end)


def event_of(record: InRecord, kind: type[ParsedDocument] | type[ChunkChanges]) -> Event | None:
    """Return which event a record of [parsed] or [changes] belongs to; None for what can't be read."""
    try:
        said = decode(record.value, kind) if record.value else None
    except UndecodableRecord:
        return None
    return (said.tenant_id, said.document_id, said.revision, said.event_id, said.received_at) if said is not None else None
