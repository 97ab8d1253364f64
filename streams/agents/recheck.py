"""Re-check after a partition changed hands: what its predecessor may still have done is done over. (DESIGN §4)

A worker that lost a partition may not know it yet (a pause, a cut line). For a while it goes on with the records it had in hand,
and all of these stand at or after the offsets committed when the new owner began. It can't commit any more, but its effects still
land: an upsert that brings back a removed point, a delete between the new owner's look and its write, an old manifest at the end of
the changelog. No fence sees these. What the new owner does about it, per partition
(`faustio/handover.py` keeps the order, `streams/duties.py` calls what stands here):

  ① from assignment until the grace is over, commit nothing; note which records of [changes] were taken, and the keys of all
  ② when it is over, take no new records and let those in work end
  ③ `recheck`: manifests (or what the parser has seen) are saved once more, so that the changelog ends with this owner's; the noted
     records of [changes] are read and handled once more, in order: whatever is amiss for them is written, the rest costs a look-up
     and a second receipt. `recheck_held`: what this owner's rows say is held and [held] has not (the predecessor let it pass, by
     what it knew) is said there again and released, so that it is judged by what is in force now
  ④ commit, and go on as usual
       crash before ④: the next owner begins at the same committed offsets, with a grace of its own

The grace (setting `worker.handover_grace_seconds`) must be longer than any effect of a predecessor can be under way. Unset it is
the largest of one try to write to Kafka, the index's timeout and the session timeout. What is not mended: a predecessor that
wakes up only after the grace is over, and records that it had in hand but that were not reached within the grace (an outage, a
backlog of one key). There the document's next event does, or sending it again with `reindex`.
"""

from __future__ import annotations

import uuid
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import Protocol

import structlog

from schemas.codec import UndecodableRecord, decode, encode
from schemas.held_change import HeldChange
from streams.agents.index_changes import IndexerAgent
from streams.agents.manifests import Manifests
from streams.agents.refusals import Outbox
from streams.controls.counts import Counts
from streams.controls.release import release_headers
from streams.errors import PoisonRecord
from streams.patience import Patience
from streams.ports import InRecord, Table
from streams.steps.settle_change import HeldMark, Seen

log = structlog.get_logger(__name__)
Place = tuple[int, int]
"""Partition and offset in [held]."""
Say = Callable[[InRecord, bytes, Mapping[str, bytes]], Awaitable[None]]
"""As in `order.Order`: (a record, value, headers), append it to the same partition under its key."""


class HeldLog(Protocol):
    """Reads [held]. Waits while the broker is away; raises Stopping."""

    async def amiss(self, marks: Mapping[bytes, HeldMark]) -> Mapping[bytes, Place | None]:
        """Return what the function `amiss` makes of all that [held] has of these keys."""
        ...

    async def at(self, place: Place) -> InRecord | None:
        """Return the record at a place; None where it is gone."""
        ...


async def recheck(indexer: IndexerAgent, manifests: Manifests, keys: Iterable[bytes], changes: Sequence[InRecord]) -> None:
    """Do over what a predecessor may have undone in one batch. Raises only what stops the worker (see `attempt`).

    keys: of every record of [parsed] and [changes] handled since assignment. changes: all of [changes] handled since then, in
    offset order. No record of the partition may be in work meanwhile. May be called again with more of the same.
    """
    saved = 0
    for key in dict.fromkeys(keys):
        async with manifests.lock(key):
            saved += await _save_again(manifests.table, indexer.outbox.patience, key)
    await indexer.handle(changes, again=True)
    log.debug("re-checked", batch=indexer.outbox.batch, manifests=saved, changes=len(changes))


async def recheck_seen(seen: Table, patience: Patience, keys: Iterable[bytes]) -> None:
    """Do over what a predecessor may have undone in the parser's memory: `keys` of every record handled since assignment."""
    for key in dict.fromkeys(keys):
        await _save_again(seen, patience, key)


async def recheck_held(
    outbox: Outbox, seen: Table, counts: Counts, partition: int, keys: Iterable[bytes], there: HeldLog, say: Say
) -> None:
    """Do over what a predecessor may have undone in [held], for `keys` of every record handled since assignment.

    Order of effects, per event: ① it is in [held] again ② it is sent once more through [documents], as a release. A crash between
    the two leaves it held, and listed; the next owner of the partition has a re-check of its own.
    """
    rows = {key: Seen.from_bytes(value) for key in dict.fromkeys(keys) if (value := seen.get(key)) is not None}
    marks = {key: row.held for key, row in rows.items() if row.held is not None}
    if not marks:
        return
    release = uuid.uuid4().hex
    for key, place in (await there.amiss(marks)).items():
        record, mark = await there.at(place) if place is not None else None, marks[key]
        if record is None or record.value is None:
            log.warning("an event marked as held is gone from [held]: its source must send it again", event_id=mark.event_id)
            row = replace(rows[key], held=None)
            await outbox.patience.hold(partial(seen.put, key, row.to_bytes()), "remembering what was seen")
            counts.change(partition, key, rows[key], row)
            continue
        held = decode(record.value, HeldChange)
        stood = InRecord(outbox.topics.documents, held.partition, held.offset, key, None)
        again, headers = held.original or encode(held.end), release_headers(held, release)
        try:
            await outbox.publish(outbox.topics.held, key, record.value)
            await outbox.patience.hold(partial(say, stood, again, headers), "sending a held event again")
        except PoisonRecord as error:  # a limit that was made smaller; a worker that went down for it would never come up
            log.warning("a held event could not be sent again", event_id=mark.event_id, reason=str(error))
            continue
        log.info("a held event that a predecessor let go is asked again", event_id=mark.event_id)


def amiss(records: Iterable[InRecord], marks: Mapping[bytes, HeldMark]) -> dict[bytes, Place | None]:
    """Return, of the keys with a mark, those whose event [held] has no more, each with the place where it last was in [held].

    records: of [held], in offset order, tombstones included; they may be many and large, and none is kept. A place None: its record
    is gone. One that can't be read (of a newer release) counts as the event in question: nothing is known against it.
    """
    newest: dict[bytes, int] = {}
    places: dict[bytes, Place] = {}
    for record in records:
        mark = marks.get(record.key or b"")
        if mark is None or record.key is None:
            continue
        try:
            offset = decode(record.value, HeldChange).offset if record.value is not None else -1
        except UndecodableRecord:
            newest[record.key] = mark.offset
            continue
        newest[record.key] = offset
        if offset == mark.offset:
            places[record.key] = record.partition, record.offset
    # One that is newer than its mark: its release takes the mark's place.
    return {key: places.get(key) for key, mark in marks.items() if newest.get(key, -1) < mark.offset}


async def _save_again(table: Table, patience: Patience, key: bytes) -> int:
    value = table.get(key)
    if value is None:
        return 0
    await patience.hold(lambda: table.put(key, value), "saving a key once more")
    return 1
