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
     and a second receipt
  ④ commit, and go on as usual
       crash before ④: the next owner begins at the same committed offsets, with a grace of its own

The grace (setting `worker.handover_grace_seconds`) must be longer than any effect of a predecessor can be under way. Unset it is
the largest of one try to write to Kafka, the index's timeout and the session timeout. What is not mended: a predecessor that
wakes up only after the grace is over, and records that it had in hand but that were not reached within the grace (an outage, a
backlog of one key). There the document's next event does, or sending it again with `reindex`.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import structlog

from streams.agents.index_changes import IndexerAgent
from streams.agents.manifests import Manifests
from streams.patience import Patience
from streams.ports import InRecord, Table

log = structlog.get_logger(__name__)


async def recheck(indexer: IndexerAgent, manifests: Manifests, keys: Iterable[bytes], changes: Sequence[InRecord]) -> None:
    """Do over what a predecessor may have undone in one batch. Raises only what stops the worker (see `attempt`).

    keys: of every record of [parsed] and [changes] handled since assignment. changes: all of [changes] handled since then, in
    offset order. No record of the partition may be in work meanwhile. May be called again with more of the same.
    """
    saved = 0
    for key in dict.fromkeys(keys):
        async with manifests.lock(key):
            saved += await _save_again(manifests.table, indexer.outbox.patience, key)
    await indexer.handle(changes)
    log.debug("re-checked", batch=indexer.outbox.batch, manifests=saved, changes=len(changes))


async def recheck_seen(seen: Table, patience: Patience, keys: Iterable[bytes]) -> None:
    """Do over what a predecessor may have undone in the parser's memory: `keys` of every record handled since assignment."""
    for key in dict.fromkeys(keys):
        await _save_again(seen, patience, key)


async def _save_again(table: Table, patience: Patience, key: bytes) -> int:
    value = table.get(key)
    if value is None:
        return 0
    await patience.hold(lambda: table.put(key, value), "saving a key once more")
    return 1
