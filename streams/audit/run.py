"""audit(): one batch, looked at as a whole. Changes nothing.

① manifests and newest events are read; ② a walk over the buckets finds documents that may differ; ③ these are looked at again,
alone, until two looks in a row say the same with nothing of the document on its way; ④ a sample is read in full, if asked.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Awaitable, Callable, Iterable
from dataclasses import dataclass, field
from typing import Protocol

from chunking.manifest import Manifest
from chunking.policy import ChunkPolicy
from schemas.record import split_document_key
from streams.audit.compare import GROUP_CHUNKS, chunks_in, groups, judge
from streams.audit.documents import judge_document
from streams.audit.findings import Finding, Report, in_order
from streams.audit.sample import differs, embed_text_of, is_edited
from streams.audit.sources import Unsettled, tenant_of
from streams.audit.walk import Walk
from streams.index.marks import bucket_of
from streams.ports import Embedder, StoredPoint
from streams.repair.newest import Newest

PAUSE_SECONDS = 1.0
LOOKS = 8
"""How often a document that differs is looked at; two equal looks in a row are enough."""
LAST_BUCKET = 1 << 40
AT_ONCE = 16
SAMPLE_BATCH = 64

Pause = Callable[[float], Awaitable[None]]


class Broker(Protocol):
    """What an audit asks of the broker (`streams.audit.sources.Sources`). Blocking."""

    manifests: dict[bytes, bytes]

    def event(self, key: bytes) -> Newest | None:
        """Return the newest word on a document."""
        ...

    def documents(self) -> set[bytes]:
        """Return the documents of manifests and events."""
        ...

    def manifest(self, key: bytes) -> Manifest | None:
        """Return a document's manifest."""
        ...

    def partition(self, key: bytes) -> int:
        """Return the partition that a document travels in."""
        ...

    def refresh_events(self) -> None:
        """Read on in [documents]."""
        ...

    def refresh_manifests(self) -> None:
        """Read on in the manifests."""
        ...

    def unsettled(self) -> Unsettled:
        """Return what can't be judged now."""
        ...


@dataclass(frozen=True, slots=True)
class Sample:
    """How many points are to be read in full, and what their vectors are made with."""

    points: int
    policy: ChunkPolicy
    embedder: Embedder
    distance: str
    dice: random.Random = field(default_factory=random.Random)


@dataclass(slots=True)
class _Look:
    """What is known of a document that differs: what it was at the last look, if it could be judged then."""

    manifest: bytes = b""
    found: tuple[Finding, ...] = ()
    judged: bool = False


@dataclass(slots=True)
class Audit:
    """One audit of one batch. `broker` and `walk` begin empty; errors are those of broker and index."""

    broker: Broker
    walk: Walk
    batch: str
    tenant: str = ""
    pause: Pause = asyncio.sleep
    group_chunks: int = GROUP_CHUNKS
    on_progress: Callable[[int], None] = lambda documents: None
    """Called with the number of documents that were compared since the last call."""
    refused: set[bytes] = field(default_factory=set)
    held: set[bytes] = field(default_factory=set)
    rejected: set[bytes] = field(default_factory=set)

    async def run(self, sample: Sample | None = None) -> Report:
        """Return what was found."""
        await asyncio.to_thread(self.broker.refresh_events)
        await asyncio.to_thread(self.broker.refresh_manifests)
        await self.walk.read_unmarked()
        suspects = await self._walk()
        drifting = {key for key in self._all_keys() if self._of_document(key) is not None}
        findings, open_ = await self._settle(suspects, drifting)
        findings += [found for found in self.walk.foreign if not self.tenant or tenant_of(found.key) == self.tenant]
        sampled = unsampled = 0
        if sample is not None and sample.points:
            known = {(found.kind, found.chunk_id) for found in findings}
            more, sampled, unsampled = await self._sample(sample)
            findings += [found for found in more if (found.kind, found.chunk_id) not in known]
        live = [manifest for key in self.broker.manifests if (manifest := self.broker.manifest(key)) and not manifest.deleted]
        return Report(
            batch=self.batch,
            collection=self.walk.collection,
            documents=len(live),
            chunks=sum(len(manifest.entries) for manifest in live),
            points=await self.walk.index.count(self.walk.collection),
            findings=in_order(findings),
            reads=self.walk.reads,
            in_flight=len(open_),
            refused=len(self.refused),
            held=len(self.held),
            rejected=len(self.rejected),
            unmarked=self.walk.unmarked,
            sampled=sampled,
            unsampled=unsampled,
        )

    def _all_keys(self) -> Iterable[bytes]:
        for key in self.broker.documents():
            if self._is_meant(key):
                yield key

    def _is_meant(self, key: bytes) -> bool:
        tenant = tenant_of(key)
        return bool(tenant) and (not self.tenant or tenant == self.tenant)

    async def _walk(self) -> set[bytes]:
        rows = []
        for key, value in self.broker.manifests.items():
            if tenant_of(key):
                bucket = bucket_of(self.broker.partition(key), *split_document_key(key))
                rows.append((bucket, key, chunks_in(value)))
        rows.sort()
        suspects: set[bytes] = set()
        for group in groups(rows, 0, LAST_BUCKET, self.group_chunks):
            manifests = {key: manifest for key in group.keys if (manifest := self.broker.manifest(key)) is not None}
            found, _ = await self.walk.look(group, manifests)
            suspects |= {key for key in found if self._is_meant(key)}
            self.on_progress(len(group.keys))
        return suspects

    def _of_document(self, key: bytes) -> Finding | None:
        return judge_document(key, self.broker.event(key), self.broker.manifest(key))

    async def _settle(self, suspects: set[bytes], drifting: set[bytes]) -> tuple[list[Finding], set[bytes]]:
        """Look at documents again until two looks agree. Returns what is wrong, and the documents that never stood still."""
        open_ = {key: _Look() for key in suspects | drifting}
        confirmed: list[Finding] = []
        limit = asyncio.Semaphore(AT_ONCE)
        for _ in range(LOOKS):
            if not open_:
                break
            await self.pause(PAUSE_SECONDS)
            await asyncio.to_thread(self.broker.refresh_events)
            unsettled = await asyncio.to_thread(self.broker.unsettled)
            await asyncio.to_thread(self.broker.refresh_manifests)

            async def look(key: bytes, unsettled: Unsettled = unsettled) -> tuple[Finding, ...]:
                async with limit:
                    return await self._judge(key, key in suspects, unsettled)

            keys = sorted(open_)
            for key, found in zip(keys, await asyncio.gather(*map(look, keys)), strict=True):
                before, manifest = open_[key], self.broker.manifests.get(key, b"")
                if key in unsettled.in_flight:
                    open_[key] = _Look()
                elif not found:
                    del open_[key]
                elif before.judged and (before.manifest, before.found) == (manifest, found):
                    confirmed += found
                    del open_[key]
                else:
                    open_[key] = _Look(manifest, found, judged=True)
        return confirmed, set(open_)

    async def _judge(self, key: bytes, has_suspect_points: bool, unsettled: Unsettled) -> tuple[Finding, ...]:
        document, manifest = self._of_document(key), self.broker.manifest(key)
        if document is not None and key in unsettled.held:
            self.held.add(key)
            document = None
        elif document is not None and key in unsettled.refused:
            self.refused.add(key)
            document = None
        elif document is not None and key in unsettled.rejected:
            self.rejected.add(key)
            document = None
        if document is not None and document.kind == "document_without_manifest":
            return (document,)  # its points, if any, are taken in again with it
        points: tuple[Finding, ...] = ()
        if has_suspect_points:
            if manifest is not None and manifest.suspect:
                self.refused.add(key)
            else:
                points = await self.walk.judge(key, manifest)
        return (*points, document) if document is not None else points

    async def _sample(self, sample: Sample) -> tuple[list[Finding], int, int]:
        """Return what is wrong with a sample, how many vectors were compared, and of how many points no text could be made."""
        keys = [key for key in sorted(self._all_keys()) if (manifest := self.broker.manifest(key)) and manifest.entries]
        sample.dice.shuffle(keys)
        found: list[Finding] = []
        points: list[tuple[bytes, StoredPoint]] = []
        for key in keys:
            if len(points) >= sample.points:
                break
            manifest = self.broker.manifest(key)
            assert manifest is not None
            entries = {entry.chunk_id: entry for entry in manifest.entries}
            stored = await self.walk.index.retrieve(self.walk.collection, list(entries), with_vectors=True)
            self.walk.reads.points += len(stored)
            self.walk.reads.vectors += len(stored)
            found += [each for each in judge(key, manifest, stored.values()) if each.kind != "missing_point"]
            for chunk_id, point in stored.items():
                points.append((key, point))
                if is_edited(point.payload):
                    revision = int(point.payload.get("revision", -1))
                    said = "fields were changed and its hash was not"
                    found.append(Finding("wrong_payload", key, chunk_id, said, revision, payload_edited=True))
        edited = {finding.chunk_id for finding in found if finding.payload_edited}
        texts = [(key, point, embed_text_of(point.payload, sample.policy)) for key, point in points if point.chunk_id not in edited]
        known = [(key, point, text) for key, point, text in texts if text is not None and text.strip()]
        for start in range(0, len(known), SAMPLE_BATCH):
            some = known[start : start + SAMPLE_BATCH]
            fresh = await sample.embedder.embed([text for _, _, text in some])
            for (key, point, _), vector in zip(some, fresh, strict=True):
                if said := differs(point.vector, vector, sample.distance):
                    found.append(Finding("wrong_vector", key, point.chunk_id, said, int(point.payload["revision"])))
        unknown = sum(text is None and point.payload.get("role") != "parent" for _, point, text in texts)
        return await self._still(found), len(known), unknown

    async def _still(self, found: list[Finding]) -> list[Finding]:
        """Return the findings of a sample that no editor has touched meanwhile: the manifest is the same, nothing is on its way."""
        if not found:
            return []
        before = {finding.key: self.broker.manifests.get(finding.key) for finding in found}
        await asyncio.to_thread(self.broker.refresh_events)
        unsettled = await asyncio.to_thread(self.broker.unsettled)
        await asyncio.to_thread(self.broker.refresh_manifests)
        moved = {key for key, value in before.items() if self.broker.manifests.get(key) != value or key in unsettled.in_flight}
        return [finding for finding in found if finding.key not in moved]
