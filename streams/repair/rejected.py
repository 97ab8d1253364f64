"""Rejected: documents that live although the log's newest word on them is a delete, since a person decided against it.

Only the parser knows (`Seen.dropped`): of the deletes that a decision covers, some had passed before.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping

from streams.repair.broker import Broker, KafkaBroker
from streams.repair.newest import Newest
from streams.settings import Settings
from streams.steps.settle_change import Seen


def rejected(
    settings: Settings, newest: Mapping[bytes, Newest], partitions: Collection[int] | None = None, broker: Broker | None = None
) -> dict[bytes, Seen]:
    """Return what the parser remembers of those of the documents whose newest event, a delete, it dropped. `partitions` None: all.

    One pass over the changelog of `seen`, where there are deletes at all. Blocking; errors of the broker.
    """
    deletes = {key: each.revision for key, each in newest.items() if each.op == "delete"}
    if not deletes:
        return {}
    broker = broker or KafkaBroker(settings.kafka)
    topics = settings.topics
    topic = topics.changelog(topics.parser_group, topics.seen_table)
    ends = broker.ends(topic)
    if partitions is not None:
        ends = {number: end for number, end in ends.items() if number in partitions}
    rows: dict[bytes, bytes] = {}
    for record in broker.read(topic, ends):
        if record.key is not None and record.key in deletes and record.value:
            rows[record.key] = record.value
    found = {key: Seen.from_bytes(row) for key, row in rows.items()}
    return {key: seen for key, seen in found.items() if seen.dropped >= deletes[key]}
