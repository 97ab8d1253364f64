"""The four ports of the agents. What an agent may touch, and nothing else, so that the same bodies run under Faust and in tests.

All methods are coroutines that end only when the effect is certain. Any of them may raise `Unavailable` (not done, or not known
whether done: it may be repeated) or `InvariantBroken`. Repeating any of them with the same arguments changes nothing more.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping, Sequence
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt

Vector = npt.NDArray[np.float32]


@dataclass(frozen=True, slots=True)
class SparseVector:
    """A sparse vector: distinct `indices` (0..2^31) with a value each. Empty for a text without words; then it is not stored."""

    indices: tuple[int, ...]
    values: tuple[float, ...]

    def __len__(self) -> int:
        return len(self.indices)


@dataclass(frozen=True, slots=True)
class InRecord:
    """One record as it came from Kafka: raw bytes and where it stood. `value` None is a tombstone."""

    topic: str
    partition: int
    offset: int
    key: bytes | None
    value: bytes | None
    headers: Mapping[str, bytes] = field(default_factory=dict)
    timestamp: float = 0.0


NO_HEADERS: Mapping[str, bytes] = MappingProxyType({})


class Log(Protocol):
    """The broker. `publish` returns when it has confirmed the record (all in-sync replicas)."""

    async def publish(self, topic: str, key: bytes, value: bytes | None, headers: Mapping[str, bytes] = NO_HEADERS) -> None:
        """Append a record; None: a tombstone. `headers` go beside those that the record in hand hands on.

        PoisonRecord if it is over the topic's limit; Unavailable if the broker is away.
        """
        ...

    def trace_id(self, key: bytes) -> str:
        """Return the trace, in hex, that the record in hand with this key belongs to; empty without one."""
        ...

    def lane(self, key: bytes) -> str:
        """Return the lane (`streams.metrics.EVENT_LANES`) by which the record in hand with this key came."""
        ...


class Table(Protocol):
    """A keyed table of this agent's partitions with a changelog. Values are bytes, never empty."""

    def get(self, key: bytes) -> bytes | None:
        """Return the value of a key that belongs to a partition of the current event, or None."""
        ...

    async def put(self, key: bytes, value: bytes) -> None:
        """Store a value; returns when the changelog record is confirmed."""
        ...


class Embedder(Protocol):
    """A text embedding model."""

    @property
    def model(self) -> str:
        """Name as policies write it in `embedding.model`."""
        ...

    @property
    def dimensions(self) -> int:
        """Length of every vector."""
        ...

    @property
    def max_tokens(self) -> int | None:
        """The model's own input limit in its own tokens, or None when it has none."""
        ...

    def count_tokens(self, text: str) -> int:
        """Return the number of the model's own tokens of a text, uncut."""
        ...

    async def embed(self, texts: Sequence[str]) -> list[Vector]:
        """Return one finite float32 vector a text, in order. Called with non-blank texts only; any number of them."""
        ...


class SparseEmbedder(Protocol):
    """Makes sparse vectors. Cheap beside an `Embedder` (0.3 ms a text), and never wrong by the weather: it asks nobody."""

    @property
    def spec(self) -> str:
        """What it makes, as `Sparse.spec` writes it."""
        ...

    async def documents(self, texts: Sequence[str]) -> list[SparseVector]:
        """Return the vector of each text as it is stored, in order."""
        ...

    async def query(self, text: str) -> SparseVector:
        """Return the vector that a question searches with; empty when it has no words."""
        ...


@dataclass(frozen=True, slots=True)
class StoredPoint:
    """A point as the index holds it."""

    chunk_id: str
    payload: Mapping[str, Any]
    vector: Vector | None = None
    sparse: SparseVector | None = None


@dataclass(frozen=True, slots=True)
class NewPoint:
    """A point to be written whole. `vector` None: stored without one (PARENT chunks). `sparse` beside each vector, or nowhere."""

    chunk_id: str
    vector: Vector | None
    payload: Mapping[str, Any]
    sparse: SparseVector | None = None


@dataclass(frozen=True, slots=True)
class IndexPlan:
    """All that one revision does to the index, for one document. Applied in the order of the fields (DESIGN §4).

    Every payload carries tenant_id, document_id, revision and order_key. Writes are fenced with the revision: a stored point of a
    newer revision is left alone.
    """

    tenant_id: str
    document_id: str
    revision: int
    upserts: tuple[NewPoint, ...] = ()
    payloads: tuple[tuple[str, Mapping[str, Any]], ...] = ()
    """(chunk_id, whole payload): replaces the payload, leaves the vector."""
    stamps: tuple[str, ...] = ()
    """Chunk ids whose payload field `revision` alone is raised: kept chunks, so that a reader can tell generations apart."""
    deletes: tuple[str, ...] = ()
    seen: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    """Payloads of points that the caller read a moment ago, by chunk id. Where one is given, `payloads` sends only the fields that
    differ, if the point still has the revision that was read, and `deletes` look at it in place of reading anew. To be left out
    when a plan is sent again: then whole payloads go out, and nothing old is believed."""
    partition: int = 0
    """Of Kafka, in which the document travels: the index keeps the points of a partition together for audits (index/marks.py)."""

    @property
    def empty(self) -> bool:
        """True when there is nothing to write."""
        return not (self.upserts or self.payloads or self.deletes)


@dataclass(frozen=True, slots=True)
class CollectionSpec:
    """What a collection is for. Stored as its metadata; a collection that says otherwise is refused."""

    batch: str
    policy_fingerprint: str
    embedding_spec: str
    dimensions: int
    distance: str
    sparse_spec: str = ""
    """`Sparse.spec` of the policy; empty where points have no sparse vector."""


@dataclass(frozen=True, slots=True)
class Hit:
    """One search result."""

    chunk_id: str
    score: float
    payload: Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class Fusion:
    """How a dense and a sparse list become one: reciprocal rank fusion, as Qdrant reckons it.

    A hit at rank r (from 1) of a list scores 1 / (r / weight + k - 1), summed over the lists. A `sparse_weight` below 1 lets ranks
    fall off faster among word matches: the first few mean something, the tail is chance. The defaults are the best of a grid on the
    sample site's golden questions (bilingual, 70), and first or near it under five policies.
    """

    k: int = 10
    dense_weight: float = 1.0
    sparse_weight: float = 0.3
    depth: int = 100
    """Hits of each list that take part, at least."""


@dataclass(frozen=True, slots=True)
class Query:
    """A query. `tenant_id` is never optional: a search without a tenant finds nothing.

    With `sparse` (and words in it) it is a hybrid one: both lists are made under the same filter and fused; scores are those of the
    fusion. Without, it is a dense one.
    """

    tenant_id: str
    vector: Vector
    limit: int = 5
    groups: tuple[str, ...] | None = None
    """Reader's groups: a chunk with an acl is found only by a reader in one of them. None: no acl check is asked for."""
    languages: tuple[str, ...] = ()
    sparse: SparseVector | None = None
    fusion: Fusion = Fusion()


@dataclass(frozen=True, slots=True)
class Readiness:
    """Whether optimizers and queues of a collection are at rest, in the index's own words."""

    idle: bool
    said: str


class VectorIndex(Protocol):
    """A vector store with collections and aliases. `collection` is always a concrete name when writing."""

    async def ensure_collection(self, name: str, spec: CollectionSpec) -> None:
        """Create the collection with its payload indexes, or check the one that exists. InvariantBroken when it differs."""
        ...

    async def set_alias(self, alias: str, collection: str) -> None:
        """Point an alias at a collection in one step, and read it back."""
        ...

    async def alias_target(self, alias: str) -> str | None:
        """Return the collection behind an alias, or None."""
        ...

    async def collections(self) -> list[str]:
        """Return the names of all collections, sorted; other applications' included."""
        ...

    async def drop_collection(self, name: str) -> None:
        """Remove a collection; nothing happens where there is none. NotPrepared while an alias points at it."""
        ...

    async def collection_spec(self, name: str) -> CollectionSpec | None:
        """Return what a collection (or the one behind an alias) says it is for, or None where there is none."""
        ...

    async def retrieve(self, collection: str, chunk_ids: Sequence[str], with_vectors: bool = False) -> dict[str, StoredPoint]:
        """Return the points that exist among `chunk_ids`."""
        ...

    async def document_points(self, collection: str, tenant_id: str, document_id: str) -> list[StoredPoint]:
        """Return all points of a document, by ascending order_key, without vectors."""
        ...

    def scan(self, collection: str) -> AsyncIterator[list[StoredPoint]]:
        """Yield all points in pages, without vectors, in no order that means anything: for audits and gates."""
        ...

    async def apply(self, collection: str, plan: IndexPlan) -> None:
        """Carry out a plan: upserts, payloads, stamps, then deletes, each confirmed before the next begins."""
        ...

    async def search(self, collection: str, query: Query) -> list[Hit]:
        """Return the best hits, best first, of one generation a document (see `IndexPlan.stamps`)."""
        ...

    async def count(self, collection: str, buckets: tuple[int, int] | None = None) -> int:
        """Return the exact number of points; with `buckets`, of those whose bucket lies in first..end-1."""
        ...

    async def digests(self, collection: str, first: int, end: int, limit: int) -> dict[int, int]:
        """Return how many points carry each digest, among those whose bucket lies in first..end-1 (see index/marks.py); at most
        `limit` digests. No point is read. May count a point twice while the index moves it: read what differs before it counts."""
        ...

    async def marked(self, collection: str, first: int, end: int, digests: Sequence[int]) -> list[StoredPoint]:
        """Return the points that carry one of these digests, among those whose bucket lies in first..end-1, without vectors."""
        ...

    def unmarked(self, collection: str) -> AsyncIterator[list[StoredPoint]]:
        """Yield in pages the points that carry no bucket, without vectors: written before there were marks, or by others. One
        that is not docdelta's has the chunk id ``point:<its id>``."""
        ...

    async def readiness(self, collection: str) -> Readiness:
        """Return whether the index has nothing left to do for a collection; wakes work that would not begin by itself."""
        ...

    async def close(self) -> None:
        """Release files and connections. Nothing may be called after it."""
        ...
