"""One document's manifest against its points, and groups of manifests against counts of digests. Pure."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from chunking.manifest import Manifest
from streams.audit.findings import Finding
from streams.index.marks import digest_of
from streams.ports import StoredPoint

GROUP_CHUNKS = 512
"""Chunks that one facet is to tell about. A document is never cut, so a group may be larger."""


def judge(key: bytes, manifest: Manifest | None, points: Iterable[StoredPoint]) -> tuple[Finding, ...]:
    """Return what is wrong with a document's points. Without a manifest, or with one that says deleted, none should be there."""
    wanted = {entry.chunk_id: entry for entry in manifest.entries} if manifest is not None else {}
    found: list[Finding] = []
    for point in points:
        revision = point.payload.get("revision")
        at = revision if isinstance(revision, int) else -1
        entry = wanted.pop(point.chunk_id, None)
        if entry is None:
            why = "no manifest" if manifest is None else "deleted" if manifest.deleted else "not in the manifest"
            found.append(Finding("left_over_point", key, point.chunk_id, f"{why}; the point says revision {at}", at))
            continue
        if point.payload.get("payload_hash") != entry.payload_hash:
            said = f"payload hash {str(point.payload.get('payload_hash'))[:12]}, manifest says {entry.payload_hash[:12]}"
            found.append(Finding("wrong_payload", key, point.chunk_id, said, at))
        if point.payload.get("order_key") != entry.order_key:
            said = f"order key {point.payload.get('order_key')}, manifest says {entry.order_key}"
            found.append(Finding("wrong_order", key, point.chunk_id, said, at))
    found += [Finding("missing_point", key, chunk_id, f"revision {manifest.revision}") for chunk_id in wanted if manifest]
    return tuple(sorted(found, key=lambda finding: (finding.kind, finding.chunk_id)))


def chunks_in(stored: bytes) -> int:
    """Return how many chunks a manifest in its stored form names, without reading it: 56 bytes each, in base64 at its end."""
    return (len(stored) - stored.rfind(b'"e":"') - len('"e":""}')) * 3 // 4 // 56


@dataclass(frozen=True, slots=True)
class Group:
    """Documents whose buckets lie in first..end-1. Groups in a row leave no bucket out."""

    first: int
    end: int
    keys: tuple[bytes, ...]


def groups(documents: Sequence[tuple[int, bytes, int]], first: int, end: int, size: int = GROUP_CHUNKS) -> Iterator[Group]:
    """Yield documents (bucket, key, chunks), sorted by bucket, in groups of about `size` chunks that cover first..end-1."""
    keys: list[bytes] = []
    weight, begin, last = 0, first, first
    for bucket, key, chunks in documents:
        if weight and bucket != last and weight + chunks > size:
            yield Group(begin, bucket, tuple(keys))
            keys, weight, begin = [], 0, bucket
        keys.append(key)
        weight += chunks
        last = bucket
    yield Group(begin, end, tuple(keys))


@dataclass(slots=True)
class Wanted:
    """How often each digest is to stand in a group, and which documents it stands for."""

    counts: Counter[int] = field(default_factory=Counter)
    keys: dict[int, list[bytes]] = field(default_factory=lambda: defaultdict(list))

    def add(self, key: bytes, manifest: Manifest) -> None:
        """Take the chunks of one document in."""
        for entry in manifest.entries:
            digest = digest_of(entry.chunk_id, entry.payload_hash, entry.order_key)
            self.counts[digest] += 1
            self.keys[digest].append(key)

    def differing(self, found: Mapping[int, int]) -> tuple[set[bytes], set[int]]:
        """Return the documents that lack a point, and the digests that stand too often: whose points those are, the index tells."""
        lacking = {key for digest, count in self.counts.items() if found.get(digest, 0) < count for key in self.keys[digest]}
        extra = {digest for digest, count in found.items() if count > self.counts.get(digest, 0)}
        return lacking, extra
