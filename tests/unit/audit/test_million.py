"""A million points with 50 faults: all are named, one point in a thousand is read. 20 s of processor: behind the mark `slow`."""

from __future__ import annotations

import hashlib
import random
from collections.abc import AsyncIterator, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pytest

from chunking.manifest import Manifest, ManifestEntry
from schemas.record import document_key, split_document_key
from streams.audit.findings import POINT_KINDS
from streams.audit.run import Audit
from streams.audit.walk import Walk
from streams.index.marks import bucket_of, digest_of
from streams.ports import StoredPoint
from tests.unit.audit.site import PARTITIONS, Site, chunk_name

DOCUMENTS, CHUNKS = 100_000, 10


@dataclass
class LeanIndex:
    """As much of a VectorIndex as an audit asks, with buckets and digests in arrays: a million payloads would not fit a test."""

    held: dict[bytes, list[ManifestEntry]] = field(default_factory=dict)

    def settle(self, partition: Any) -> None:
        """Make the arrays of what is held."""
        self._keys = list(self.held)
        rows = [
            (bucket_of(partition(key), *split_document_key(key)), digest_of(e.chunk_id, e.payload_hash, e.order_key), number)
            for number, key in enumerate(self._keys)
            for e in self.held[key]
        ]
        self._rows = np.array(sorted(rows))

    def _within(self, first: int, end: int) -> Any:
        return self._rows[slice(*np.searchsorted(self._rows[:, 0], [first, end]))]

    def _points(self, key: bytes) -> list[StoredPoint]:
        tenant, document = split_document_key(key)
        named = {"tenant_id": tenant, "document_id": document, "revision": 1}
        return [
            StoredPoint(e.chunk_id, {**named, "payload_hash": e.payload_hash, "order_key": e.order_key})
            for e in self.held.get(key, ())
        ]

    async def digests(self, collection: str, first: int, end: int, limit: int) -> dict[int, int]:
        values, counts = np.unique(self._within(first, end)[:, 1], return_counts=True)
        return dict(zip(values[:limit].tolist(), counts[:limit].tolist(), strict=True))

    async def marked(self, collection: str, first: int, end: int, digests: Sequence[int]) -> list[StoredPoint]:
        rows = self._within(first, end)
        keys = {self._keys[number] for number in rows[np.isin(rows[:, 1], digests)][:, 2]}
        found = [point for key in keys for point in self._points(key)]
        return [p for p in found if digest_of(p.chunk_id, p.payload["payload_hash"], p.payload["order_key"]) in digests]

    async def unmarked(self, collection: str) -> AsyncIterator[list[StoredPoint]]:
        for page in list[list[StoredPoint]]():
            yield page

    async def document_points(self, collection: str, tenant_id: str, document_id: str) -> list[StoredPoint]:
        return self._points(document_key(tenant_id, document_id))

    async def count(self, collection: str, buckets: tuple[int, int] | None = None) -> int:
        return len(self._rows if buckets is None else self._within(*buckets))


@pytest.mark.slow
async def test_fifty_faults_among_a_million_points_are_found_by_reading_one_in_a_thousand() -> None:
    index, site = LeanIndex(), Site()
    for number in range(DOCUMENTS):
        key = b"acme/d%d" % number
        names = [chunk_name(key, each) for each in range(CHUNKS)]
        entries = [ManifestEntry(name, hashlib.md5(name.encode()).hexdigest(), (n + 1) << 20) for n, name in enumerate(names)]
        site.manifests[key] = Manifest(1, tuple(entries), event_id="e", changed=1).to_bytes()
        site.tell(key, 1)
        index.held[key] = entries
    expected = set()
    for number, document in enumerate(random.Random(3).sample(range(DOCUMENTS), 50)):
        key, kind = b"acme/d%d" % document, POINT_KINDS[number % 4]
        entries = index.held[key] = list(index.held[key])
        one = entries[3]
        if kind == "missing_point":
            del entries[3]
        elif kind == "left_over_point":
            entries.append(ManifestEntry(chunk_name(key, 99), "0" * 32, 5))
        elif kind == "wrong_payload":
            entries[3] = ManifestEntry(one.chunk_id, "0" * 32, one.order_key)
        else:
            entries[3] = ManifestEntry(one.chunk_id, one.payload_hash, 7)
        expected.add((kind, key))
    index.settle(site.partition)
    walk = Walk(index, "c", PARTITIONS)  # type: ignore[arg-type]
    report = await Audit(site, walk, "b", pause=site.pause).run()
    assert {(found.kind, found.key) for found in report.findings} == expected
    assert len(report.findings) == 50
    assert abs(report.points - 1_000_000) < 50
    assert report.reads.points <= 1_100
    assert report.reads.facets <= 2_100
