"""Readers: the law at every moment, not only at the end: a living document is never taken apart before its next revision stands."""

from __future__ import annotations

from collections.abc import Callable

from schemas.record import document_key
from streams.ports import IndexPlan
from tests.crash.simulation.histories import UNREADABLE, History
from tests.crash.simulation.oracle import clean_build
from tests.crash.simulation.world import World


class Readers:
    """Looks at every removal: a document of which some revision is whole in the index must have one that is whole after it.

    Documents that are ended or emptied on the way are left out, and histories where two owners or a lost table make it impossible.
    """

    def __init__(self, history: History, world: World, fail: Callable[[str], None]) -> None:
        self._index = world.index
        self._fail = fail
        self._revisions: dict[bytes, list[frozenset[str]]] = {}
        if not history.faults.isdisjoint({"zombie", "lose_manifests", "lose_seen"}):
            return
        ended = {e.key for e in history.events if e.kind in ("delete", "null") or (e.kind == "upsert" and not e.paragraphs)}
        for event in history.events:
            if event.kind == "upsert" and event.key not in ended and UNREADABLE not in event.paragraphs:
                chunks = clean_build(event.key, (event.paragraphs, event.title))
                self._revisions.setdefault(event.key, []).append(frozenset(chunk.chunk_id for chunk in chunks))

    def before_delete(self, plan: IndexPlan, chunk_id: str) -> None:
        """Complain when the removal of a chunk leaves no revision whole."""
        revisions = self._revisions.get(document_key(plan.tenant_id, plan.document_id))
        if not revisions:
            return
        points = self._index.points.keys()
        whole = [revision for revision in revisions if revision <= points]
        if whole and all(chunk_id in revision for revision in whole):
            name = f"{plan.tenant_id}/{plan.document_id}"
            self._fail(f"{name}: revision {plan.revision} removes a chunk before the next one is whole")
