"""A walk over the buckets of a collection: finds the documents that may differ from their manifests, reading next to nothing."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field

from chunking.manifest import Manifest
from schemas.record import document_key, split_document_key
from streams.audit.compare import Group, Wanted, judge
from streams.audit.findings import Finding, Reads
from streams.errors import InvariantBroken
from streams.index.marks import BUCKET, DIGEST, marks_of
from streams.kafka.partitioner import partition_of
from streams.ports import StoredPoint, VectorIndex

LEAST_DIGESTS = 1024
FOREIGN = "a point that docdelta did not write; remove it by its id"


@dataclass(slots=True)
class Walk:
    """One walk over one collection. Errors are those of the index."""

    index: VectorIndex
    collection: str
    partitions: int
    reads: Reads = field(default_factory=Reads)
    foreign: list[Finding] = field(default_factory=list)
    """Points that name no document of ours: no event can mend them."""
    unmarked: int = 0
    _plain: dict[int, list[tuple[int, bytes]]] = field(default_factory=dict)
    """Bucket to digest and document of points without marks, as if they had them."""

    async def read_unmarked(self) -> None:
        """Read the points without marks in full, and reckon with them from now on."""
        async for page in self.index.unmarked(self.collection):
            self.reads.points += len(page)
            self.unmarked += len(page)
            for point in page:
                key = key_of(point)
                if key is None or point.chunk_id.startswith("point:"):
                    self.foreign.append(Finding("left_over_point", key or b"", point.chunk_id, FOREIGN))
                    continue
                marks = marks_of(point.chunk_id, point.payload, partition_of(key, self.partitions))
                self._plain.setdefault(marks[BUCKET], []).append((marks[DIGEST], key))

    async def look(self, group: Group, manifests: Mapping[bytes, Manifest]) -> tuple[set[bytes], int]:
        """Return the documents of a group that may differ, those that no manifest names included, and how many points there are."""
        wanted = Wanted()
        for key in group.keys:
            if key in manifests:
                wanted.add(key, manifests[key])
        found = Counter(await self._digests(group, len(wanted.counts)))
        marked = found.total()
        plain = [each for bucket, of_bucket in self._plain.items() if group.first <= bucket < group.end for each in of_bucket]
        found.update(digest for digest, _ in plain)
        suspects, extra = wanted.differing(found)
        suspects.update(key for digest, key in plain if digest in extra)
        if extra:
            points = await self.index.marked(self.collection, group.first, group.end, sorted(extra))
            self.reads.points += len(points)
            for point in points:
                key_there = key_of(point)
                if key_there is None:
                    self.foreign.append(Finding("left_over_point", b"", point.chunk_id, FOREIGN))
                else:
                    suspects.add(key_there)
        return suspects, marked

    async def _digests(self, group: Group, expected: int) -> dict[int, int]:
        limit = max(LEAST_DIGESTS, 2 * expected)
        while True:
            self.reads.facets += 1
            found = await self.index.digests(self.collection, group.first, group.end, limit)
            if len(found) < limit:
                return found
            limit *= 8

    async def judge(self, key: bytes, manifest: Manifest | None) -> tuple[Finding, ...]:
        """Read a document's points and return what is wrong with them now."""
        tenant, document = split_document_key(key)
        try:
            points = await self.index.document_points(self.collection, tenant, document)
        except InvariantBroken:
            return (Finding("left_over_point", key, "", FOREIGN),)
        self.reads.points += len(points)
        return judge(key, manifest, points)


def key_of(point: StoredPoint) -> bytes | None:
    """Return the key of the document that a point says it is of, or None where it names none that could be."""
    key = document_key(str(point.payload.get("tenant_id", "")), str(point.payload.get("document_id", "")))
    try:
        split_document_key(key)
    except ValueError:
        return None
    return key
