"""A small site for audits: an index, and a broker's side that says what the test wants it to say."""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from chunking.identity import embed_hash, payload_hash
from chunking.manifest import Manifest, ManifestEntry
from schemas.record import document_key, split_document_key
from streams.audit.run import Audit
from streams.audit.sources import Unsettled
from streams.audit.walk import Walk
from streams.index.memory import MemoryIndex
from streams.kafka.partitioner import partition_of
from streams.ports import CollectionSpec, IndexPlan, NewPoint, VectorIndex
from streams.repair.newest import Newest

PARTITIONS = 4
SPEC = CollectionSpec("b", "f" * 64, "hashing/4 cosine", 4, "cosine")
COLLECTION = "b"


def chunk_name(key: bytes, number: int) -> str:
    """Return a chunk id."""
    return "chk_" + hashlib.sha256(key + b"#%d" % number).hexdigest()


def payload_of(key: bytes, number: int, text: str = "") -> dict[str, Any]:
    """Return a payload as the chunker makes it, as far as an audit looks at it."""
    tenant, document = split_document_key(key)
    text = text or f"passage {number} of {document}"
    return {
        "tenant_id": tenant,
        "document_id": document,
        "chunk_id": chunk_name(key, number),
        "text": text,
        "role": "body",
        "acl": None,
        "language": "en",
        "title": "",
        "embed_hash": embed_hash("hashing/4", text),
    }


@dataclass
class Site:
    """Documents, their manifests and points, and their newest events. All agree until a test breaks them."""

    index: VectorIndex = field(default_factory=MemoryIndex)
    manifests: dict[bytes, bytes] = field(default_factory=dict)
    events: dict[bytes, Newest] = field(default_factory=dict)
    said: Unsettled = field(default_factory=Unsettled)
    on_look: Callable[[], None] = lambda: None
    """Called when a look begins: the moment editors work in."""
    pauses: int = 0

    async def begin(self) -> Site:
        """Make the collection."""
        await self.index.ensure_collection(COLLECTION, SPEC)
        return self

    async def put(self, document: str, chunks: int = 5, revision: int = 1, tenant: str = "acme") -> bytes:
        """Take a document in everywhere."""
        key = document_key(tenant, document)
        self.plan(key, chunks, revision)
        self.tell(key, revision)
        await self.write(key, range(chunks), revision)
        return key

    def plan(self, key: bytes, chunks: int, revision: int = 1, **more: Any) -> Manifest:
        """Set a document's manifest."""
        entries = tuple(
            ManifestEntry(chunk_name(key, number), payload_hash(payload_of(key, number)), (number + 1) << 20)
            for number in range(chunks)
        )
        manifest = Manifest(revision, entries, event_id=f"e{revision}", changed=revision, **more)
        self.manifests[key] = manifest.to_bytes()
        return manifest

    def tell(self, key: bytes, revision: int, op: Any = "upsert") -> None:
        """Set a document's newest event."""
        self.events[key] = Newest(revision, op, self.partition(key), 0)

    async def write(self, key: bytes, numbers: Any, revision: int = 1, **fields: Any) -> None:
        """Write points as the indexer does, or with other `fields`."""
        tenant, document = split_document_key(key)
        points = []
        for number in numbers:
            payload = payload_of(key, number)
            hashed = payload_hash(payload)
            whole = {**payload, "revision": revision, "order_key": (number + 1) << 20, "payload_hash": hashed, **fields}
            vector = np.random.default_rng(number).normal(size=4).astype(np.float32)
            points.append(NewPoint(chunk_name(key, number), vector, whole))
        await self.index.apply(COLLECTION, IndexPlan(tenant, document, revision, tuple(points), partition=self.partition(key)))

    async def remove(self, key: bytes, *numbers: int) -> None:
        """Remove points, as nobody should."""
        tenant, document = split_document_key(key)
        ids = tuple(chunk_name(key, number) for number in numbers)
        await self.index.apply(COLLECTION, IndexPlan(tenant, document, 1 << 50, deletes=ids))

    # streams.audit.run.Broker

    def event(self, key: bytes) -> Newest | None:
        return self.events.get(key)

    def documents(self) -> set[bytes]:
        return {*self.manifests, *self.events}

    def manifest(self, key: bytes) -> Manifest | None:
        value = self.manifests.get(key)
        return Manifest.from_bytes(value) if value else None

    def partition(self, key: bytes) -> int:
        return partition_of(key, PARTITIONS)

    def refresh_events(self) -> None:
        self.on_look()

    def refresh_manifests(self) -> None:
        pass

    def unsettled(self) -> Unsettled:
        return self.said

    # Shorthands

    def flies(self, *keys: bytes) -> None:
        """Say that events of these documents are on their way."""
        self.said = replace(self.said, in_flight=frozenset(keys))

    async def pause(self, seconds: float) -> None:
        """Let no time pass."""
        self.pauses += 1

    def audit(self, tenant: str = "", group_chunks: int = 512) -> Audit:
        """Return an audit of this site."""
        return Audit(self, Walk(self.index, COLLECTION, PARTITIONS), "b", tenant, self.pause, group_chunks)
