"""Readers: the law at every moment, not only at the end: a living document is never taken apart before its next revision stands,
what is told to be indexed is there, and readers are not moved to a batch before it holds what was there when its build began."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from functools import partial

from schemas.chunk_changes import ChunkChanges
from schemas.codec import decode
from schemas.receipt import Receipt
from schemas.record import document_key
from streams.ports import IndexPlan, InRecord
from tests.crash.simulation.histories import UNREADABLE, History
from tests.crash.simulation.oracle import as_they_came, clean_build, document_complaints, judge
from tests.crash.simulation.world import BATCHES, BLUE, GREEN, SimulatedBatch, World


class Readers:
    """Looks at every removal: a document of which some revision is whole in the index must have one that is whole after it; at
    every receipt of an indexer: of what is indexed each chunk is there, of what is deleted none; and at every switch: documents
    without an edit since the build began must be in the new batch as they are.

    Documents that are ended or emptied on the way are left out of the first, and histories where two owners or a lost table make
    it impossible out of both.
    """

    def __init__(self, history: History, world: World, fail: Callable[[str], None]) -> None:
        self._world = world
        self._history = history
        self._fail = fail
        self._revisions: dict[tuple[str, bytes], list[frozenset[str]]] = {}
        if not history.faults.isdisjoint({"zombie", "lose_manifests", "lose_seen"}):
            return
        world.at_receipt = self.at_receipt
        told = [event for event in history.events if event.kind in ("upsert", "delete")]
        numbered = Counter((event.key, event.revision) for event in told)
        # Of equal revisions the later one may be planned already, and what the first leaves is the later one's to clear.
        self._said = {(event.event_id, event.key): event for event in told if numbered[event.key, event.revision] == 1}
        world.before_switch = self.before_switch
        for batch in (BLUE, GREEN) if history.commands else (BLUE,):
            self._watch(batch)

    def _watch(self, batch: SimulatedBatch) -> None:
        self._world.indexes[batch.name].before_delete = partial(self.before_delete, batch)
        events = self._history.events
        ended = {e.key for e in events if e.kind in ("delete", "null") or (e.kind == "upsert" and not e.paragraphs)}
        for event in events:
            if event.kind == "upsert" and event.key not in ended and UNREADABLE not in event.paragraphs:
                chunks = clean_build(batch, event.key, (event.paragraphs, event.title))
                self._revisions.setdefault((batch.name, event.key), []).append(frozenset(chunk.chunk_id for chunk in chunks))

    def before_delete(self, batch: SimulatedBatch, plan: IndexPlan, chunk_id: str) -> None:
        """Complain when the removal of a chunk leaves no revision whole."""
        revisions = self._revisions.get((batch.name, document_key(plan.tenant_id, plan.document_id)))
        if not revisions:
            return
        points = self._world.indexes[batch.name].points.keys()
        whole = [revision for revision in revisions if revision <= points]
        if whole and all(chunk_id in revision for revision in whole):
            name = f"{batch.name} {plan.tenant_id}/{plan.document_id}"
            self._fail(f"{name}: revision {plan.revision} removes a chunk before the next one is whole")

    def at_receipt(self, record: InRecord) -> None:
        """Complain about an outcome that is told before it is so."""
        receipt = decode(record.value or b"", Receipt)
        event = self._said.get((receipt.event_id, record.key or b""))
        if event is None or receipt.stage != "indexer" or receipt.outcome not in ("indexed", "unchanged"):
            return
        stored = self._world.indexes[receipt.batch]
        mine = {point.chunk_id for point in stored.of_document(receipt.tenant_id, receipt.document_id)}
        if event.kind == "delete":
            wrong = bool(mine)
        else:
            chunks = clean_build(BATCHES[receipt.batch], event.key, (event.paragraphs, event.title))
            wrong = not {chunk.chunk_id for chunk in chunks} <= mine
        if wrong and not self._planned_again(receipt, record.key):
            self._fail(f"{receipt.batch}: {event} is told as {receipt.outcome} before it is so")

    def _planned_again(self, receipt: Receipt, key: bytes | None) -> bool:
        """Return whether more of a document is in [changes] behind the first time an event is: what that one leaves, or what a
        handler that was left behind undoes, is the later one's to put right."""
        changes = self._world.records(BATCHES[receipt.batch].changes)
        planned = [decode(each.value or b"", ChunkChanges) for each in changes if each.key == key]
        ends = (place for place, each in enumerate(planned) if each.event_id == receipt.event_id and each.part == each.parts)
        return next(ends, len(planned)) < len(planned) - 1

    def before_switch(self, collection: str) -> None:
        """Complain about what readers would miss in the batch that was built."""
        if collection != GREEN.name:
            return
        built = self._world.ledger.batches.get(GREEN.name)
        if built is None or built.state not in ("active", "warm"):
            self._fail("readers are moved to a batch that [batches] does not name")
        came = as_they_came(self._world)
        produced = [event.key for event in came]
        for key, count in self._world.launched.items():
            if produced.count(key) == count:
                mine = [event for event in came if event.key == key][:count]
                if any(event.is_curable for event in mine):
                    continue
                for complaint in document_complaints(self._world, GREEN, key, judge(tuple(mine)).documents[key]):
                    self._fail(f"readers are moved to a batch that is not built: {complaint}")
