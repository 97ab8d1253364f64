"""The indexer agent's body: ChunkChanges records in, points in the collection and one outcome an event out.

Order of effects for one document, and what a crash in between leaves (a batch of operations is not atomic):
  ① vectors: already there, borrowed from the served batch, or embedded        nothing is written yet
  ② upsert  ③ payload updates  ④ delete by id, each confirmed (`index.apply`)  the record comes again and completes them
  ⑤ receipt                                                                  the record comes again, ②-④ find nothing to do
  ⑥ the caller lets the offset advance

A delta that can't be carried out is refused whole: ① manifest marked suspect ② dead letter and receipt ③ the caller goes on. A
later delta that builds on it finds chunks missing and is refused as well; the next event after the mark compares with the index.

A delta that a newer one has overtaken writes only what that one keeps, and removes nothing: until the newer one is in, readers
have the old chunks. What it leaves behind is owed (manifest marked suspect); the newer one clears whatever it does not name.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any

from chunking.document import DocumentKey
from chunking.identity import content_id
from chunking.manifest import Manifest
from schemas.chunk_changes import ChunkChanges, ChunkRecord
from schemas.codec import decode
from schemas.record import document_key
from streams.agents.attempts import attempt, understood
from streams.agents.chunk_document import about_parsed
from streams.agents.manifests import Manifests
from streams.agents.refusals import Outbox
from streams.crash_points import reached
from streams.errors import NotPrepared, PoisonRecord
from streams.ports import Embedder, InRecord, SparseEmbedder, SparseVector, StoredPoint, Vector, VectorIndex
from streams.steps.plan_index import Wanted, leftovers, misplaced, needs_vector, plan_index, still_wanted


@dataclass(frozen=True, slots=True)
class Lender:
    """The batch being served, from which equal vectors may be taken (same embedding spec only)."""

    collection: str
    policy_fingerprint: str
    computable: bool = True
    """Whether its ids follow from the embedded text (recipe content/1). Else the document is listed."""


def no_lender() -> Lender | None:
    """Return nobody: this batch is served itself, or vectors of the served one do not fit."""
    return None


@dataclass(slots=True)
class _Item:
    """One record on its way through a round."""

    record: InRecord
    changes: ChunkChanges
    wanted: Wanted
    newest: Manifest | None
    lost: bool
    """Planned before the state was lost: what earlier records left behind is not known any more."""
    again: bool
    """It is handled once more, after another owner."""
    there: Mapping[str, StoredPoint] = field(default_factory=dict)
    embedded: int = 0
    borrowed: int = 0

    @property
    def key(self) -> bytes:
        return document_key(self.changes.tenant_id, self.changes.document_id)

    @property
    def lists_document(self) -> bool:
        """True for the last part of a record that is to clear whatever it does not name."""
        return self.changes.part == self.changes.parts and (self.changes.complete or self.in_doubt or self.lost)

    @property
    def in_doubt(self) -> bool:
        """True where an earlier record was refused, or left behind what this one is to remove."""
        newest = self.newest
        return not self.wanted.superseded and newest is not None and newest.suspect and newest.changed == self.changes.revision

    @property
    def doubtful(self) -> frozenset[str]:
        """Chunk ids that must be there already for this record to end its revision, where an earlier one may have been refused."""
        return frozenset(self.changes.kept) if self.in_doubt else frozenset()

    def lacking(self) -> list[ChunkRecord]:
        """Return the chunks that still need a vector."""
        return [record for record in self.wanted.write if needs_vector(record, self.there)]


@dataclass(slots=True)
class IndexerAgent:
    """What the indexer agent of one batch may touch, and its body `handle`."""

    outbox: Outbox
    manifests: Manifests
    """Read to leave out what a newer revision has overtaken; written only to mark a refused delta."""
    index: VectorIndex
    embedder: Embedder
    collection: str
    lender: Callable[[], Lender | None] = no_lender
    """Asked for each record: which batch is served changes while this one lives."""
    sparse: SparseEmbedder | None = None
    """Where the policy has sparse vectors. They are made anew for each point that is written: cheaper than to borrow."""
    poison_attempts: int = 3
    compare_until: dict[int, int] = field(default_factory=dict)
    """Partition to offset of [changes]. Below it records clear whatever they do not name. Set it to the end offset where the table
    turns out empty at assignment but the partition of [changes] is not (state lost), together with the chunker's."""
    _unwritten: dict[bytes, dict[str, ChunkRecord]] = field(default_factory=dict)
    """Key to the chunks of refused records that were planned before the state was lost. There was no manifest to be marked, and a
    later record that was planned on them names only their ids."""
    _embedded: dict[tuple[bytes, str], int] = field(default_factory=dict)
    """Texts embedded for the earlier parts of a record that came in parts, for its receipt."""

    async def handle(self, records: Sequence[InRecord], again: bool = False) -> None:
        """Settle records of [changes] in order. Raises only what stops the worker (see `attempt`).

        again: it is a re-check, after another owner; then what a record only keeps is looked at too.
        """
        for round_ in _rounds(records):
            items = [item for record in round_ if (item := await self._open(record, again)) is not None]
            await self._find_what_is_there(items)
            vectors = await self._find_vectors(items)
            reached("indexer.vectors")
            await asyncio.gather(*(self._finish(item, vectors) for item in items))

    async def _open(self, record: InRecord, again: bool) -> _Item | None:
        """Return a record with what of it still matters, or None where it was refused."""
        try:
            if record.value is None:
                raise PoisonRecord("a null value means nothing on this topic")
            value = record.value
            changes = understood(lambda: decode(value, ChunkChanges))
        except PoisonRecord as error:
            await self.outbox.refuse(record, error, None)
            return None
        key = document_key(changes.tenant_id, changes.document_id)
        newest = self.manifests.get(key)
        lost = record.offset < self.compare_until.get(record.partition, 0)
        wanted = still_wanted(changes, newest)
        if lost and not wanted.superseded:
            kept, unwritten = set(changes.kept), self._unwritten.get(key, {})
            wanted = replace(wanted, write=(*wanted.write, *(unwritten[chunk_id] for chunk_id in unwritten if chunk_id in kept)))
        return _Item(record, changes, wanted, newest, lost, again)

    async def _find_what_is_there(self, items: Sequence[_Item]) -> None:
        """Look up the points that the items are about: by id in one call; where a record is complete, all of its document."""
        by_id = [chunk_id for item in items if not item.lists_document for chunk_id in _ids_of_interest(item)]
        there = (
            await self.outbox.patience.hold(lambda: self.index.retrieve(self.collection, by_id), "reading points") if by_id else {}
        )
        listing = [item for item in items if item.lists_document]
        listed = await asyncio.gather(*(self._listed(item) for item in listing))
        for item, points in zip(listing, listed, strict=True):
            item.there = points
        for item in items:
            if not item.lists_document:
                item.there = {chunk_id: there[chunk_id] for chunk_id in _ids_of_interest(item) if chunk_id in there}

    async def _listed(self, item: _Item) -> dict[str, StoredPoint]:
        """Return all points of a record's document, by chunk id."""
        changes = item.changes
        listing = partial(self.index.document_points, self.collection, changes.tenant_id, changes.document_id)
        points = await self.outbox.patience.hold(listing, "listing a document")
        return {point.chunk_id: point for point in points}

    async def _find_vectors(self, items: Sequence[_Item]) -> dict[str, Vector]:
        """Return the vectors that are lacking, by embed_hash: borrowed where possible, else embedded in one call."""
        vectors: dict[str, Vector] = {}
        for item, borrowed in zip(items, await asyncio.gather(*(self._borrow(item) for item in items)), strict=True):
            item.borrowed = sum(record.embed_hash in borrowed for record in item.lacking())
            vectors |= borrowed
        texts: dict[str, str] = {}
        for item in items:
            for record in item.lacking():
                if record.embed_hash not in vectors and record.embed_hash not in texts:
                    texts[record.embed_hash] = record.embed_text
                    item.embedded += 1
        if not texts:
            return vectors
        try:
            return vectors | await self._embed(texts)
        except PoisonRecord:
            # One text spoils the call: ask for each document alone, so that only the guilty one is refused (in _write).
            for item in items:
                wanted = {record.embed_hash: texts[record.embed_hash] for record in item.lacking() if record.embed_hash in texts}
                try:
                    vectors |= await self._embed(wanted) if wanted else {}
                except PoisonRecord:
                    item.embedded = 0
            return vectors

    async def _embed(self, texts: Mapping[str, str]) -> dict[str, Vector]:
        async def call() -> list[Vector]:
            return await self.embedder.embed(list(texts.values()))

        found = await attempt(call, self.outbox.patience, self.poison_attempts, "embedding")
        return dict(zip(texts, found, strict=True))

    async def _sparse_vectors(self, item: _Item) -> dict[str, SparseVector]:
        """Return the sparse vectors of what lacks a vector, by embed_hash: of the same text as the dense ones."""
        texts = {record.embed_hash: record.embed_text for record in item.lacking()} if self.sparse is not None else {}
        if self.sparse is None or not texts:
            return {}
        return dict(zip(texts, await self.sparse.documents(list(texts.values())), strict=True))

    async def _borrow(self, item: _Item) -> dict[str, Vector]:
        """Return vectors of the served batch for chunks with the same embed_hash: by their ids there, which can be computed.

        Equal passages of one document have one embed_hash, so the first of them (twin 0) speaks for all.
        """
        lender = self.lender()
        lacking = item.lacking() if lender is not None else []
        if lender is None or not lacking:
            return {}
        try:
            return await self.outbox.patience.hold(lambda: self._lent(item, lender, lacking), "borrowing vectors")
        except NotPrepared:  # retired since: its collection is gone
            return {}

    async def _lent(self, item: _Item, lender: Lender, lacking: Sequence[ChunkRecord]) -> dict[str, Vector]:
        key = DocumentKey(item.changes.tenant_id, item.changes.document_id)
        if lender.computable:
            ids = {content_id(key, lender.policy_fingerprint, record.embed_text, 0): record.embed_hash for record in lacking}
        else:
            wanted = {record.embed_hash for record in lacking}
            listed = await self.index.document_points(lender.collection, key.tenant, key.document)
            ids = {p.chunk_id: p.payload["embed_hash"] for p in listed if p.payload.get("embed_hash") in wanted}
        points = await self.index.retrieve(lender.collection, list(ids), with_vectors=True) if ids else {}
        return {
            ids[chunk_id]: point.vector
            for chunk_id, point in points.items()
            if point.vector is not None and point.payload.get("embed_hash") == ids[chunk_id]
        }

    async def _finish(self, item: _Item, vectors: Mapping[str, Vector]) -> None:
        await self._close(item, await self._write(item, vectors))
        reached("indexer.settled")

    async def _write(self, item: _Item, vectors: Mapping[str, Vector]) -> PoisonRecord | None:
        """Carry out one document's plan; return the refusal where it can't be.

        A newer revision may have been planned since the record was opened, on top of what is refused here: then only what that one
        holds is tried again, and it is the newer manifest that gets the mark.
        """
        while True:
            try:
                await self._carry_out(item, vectors)
                return None
            except PoisonRecord as error:
                upto = max(item.changes.revision, item.newest.changed if item.newest else 0)
                newest = await self.manifests.suspect(item.key, upto, self.outbox.patience)
                reached("indexer.suspect")
                if newest is None or newest.changed <= upto:
                    return error
                item.newest, item.wanted = newest, still_wanted(item.changes, newest)
                await self._find_what_is_there([item])  # what it owes now was of no interest before

    async def _carry_out(self, item: _Item, vectors: Mapping[str, Vector]) -> None:
        absent = item.doubtful.difference(item.there)
        if absent:
            reason = f"{len(absent)} chunks of a revision refused before this one are missing; send the document again with reindex"
            raise PoisonRecord(reason, chunk_id=min(absent))
        missing = [record for record in item.lacking() if record.embed_hash not in vectors]
        if missing:
            # Embed this document alone: raises the refusal that the common call met.
            vectors = {**vectors, **await self._embed({record.embed_hash: record.embed_text for record in missing})}
        remove = leftovers(item.changes, item.there, item.newest) if item.lists_document else item.wanted.remove
        if item.wanted.superseded and item.newest is not None and item.newest.entries:
            if not item.there.keys().isdisjoint(remove):
                await self._owe(item)
            remove = ()
        sparse, partition = await self._sparse_vectors(item), item.record.partition
        placed = misplaced(item.changes, item.there, item.newest) if item.again else {}
        plan = plan_index(item.changes, item.wanted, remove, item.there, vectors, sparse, partition, placed)
        if not plan.empty:
            tries = iter([replace(plan, seen=_payloads(item))])  # what was read is believed once: an outage may be long

            async def write() -> None:
                await self.index.apply(self.collection, next(tries, plan))

            await attempt(write, self.outbox.patience, self.poison_attempts, "writing points")
        reached("indexer.written")

    async def _owe(self, item: _Item) -> None:
        """Leave removals to the newest revision that is planned."""
        upto = item.changes.revision
        while True:
            newest = await self.manifests.suspect(item.key, upto, self.outbox.patience)
            if newest is None or newest.suspect:
                return
            upto = newest.changed

    async def _close(self, item: _Item, refusal: PoisonRecord | None) -> None:
        """Say what became of a record: a dead letter, or after its last part a receipt."""
        changes = item.changes
        about = about_parsed(changes)
        if refusal is not None:
            if item.lost:
                records = (*changes.added, *changes.updated)
                self._unwritten.setdefault(item.key, {}).update((record.chunk_id, record) for record in records)
            await self.outbox.refuse(item.record, refusal, about)
            return
        tally = (item.key, changes.event_id)
        embedded = self._embedded.pop(tally, 0) + item.embedded
        if changes.part < changes.parts:
            self._embedded[tally] = embedded
            return
        if item.wanted.superseded and item.newest is not None:
            reason = f"overtaken by revision {item.newest.changed}"
            await self.outbox.settle(self.outbox.receipt(about, "stale", reason).model_copy(update={"embedded": embedded}))
            return
        if item.in_doubt:
            await self.manifests.trust(item.key, changes.revision, self.outbox.patience)
        # A document that the manifests know and the index had lost changes nothing but the index.
        changed = changes.chunks_added or changes.chunks_updated or changes.removed or embedded or item.borrowed
        receipt = self.outbox.receipt(about, "indexed") if changed else self.outbox.receipt(about, "unchanged", _no_change(changes))
        figures = {
            "deleted": changes.deleted,
            "kept": changes.chunks_kept,
            "added": changes.chunks_added,
            "updated": changes.chunks_updated,
            "removed": len(changes.removed),
            "embedded": embedded,
            "borrowed": item.borrowed,
        }
        await self.outbox.settle(receipt.model_copy(update=figures))


def _ids_of_interest(item: _Item) -> list[str]:
    kept = item.changes.kept if item.again and not item.wanted.superseded else sorted(item.doubtful)
    return [*(record.chunk_id for record in item.wanted.write), *kept, *item.wanted.remove]


def _payloads(item: _Item) -> dict[str, Mapping[str, Any]]:
    return {chunk_id: point.payload for chunk_id, point in item.there.items()}


def _rounds(records: Sequence[InRecord]) -> list[list[InRecord]]:
    """Return records in rounds: at most one of a key in a round, so that a document's records keep their order."""
    rounds: list[list[InRecord]] = []
    depth: dict[bytes | None, int] = {}
    for record in records:
        place = depth.get(record.key, 0)
        depth[record.key] = place + 1
        if place == len(rounds):
            rounds.append([])
        rounds[place].append(record)
    return rounds


def _no_change(changes: ChunkChanges) -> str:
    """Return why nothing was to be written."""
    if changes.chunks_kept:
        return "the index already holds it"
    return "nothing of it was in the index" if changes.deleted else "there is no text in it"
