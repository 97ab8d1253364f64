"""Store: what QdrantIndex asks of a Qdrant, wherever it runs: `qdrant_remote` (a server) or `qdrant_local` (in process).

Methods raise the errors of their own world; QdrantIndex translates them (`qdrant_errors`).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

from streams.index.client import models
from streams.ports import Query, Readiness, Vector


@dataclass(frozen=True, slots=True)
class Described:
    """A collection as it is: metadata, size and distance of the dense vector, payload indexes (None: this store has none)."""

    metadata: dict[str, Any] | None
    dimensions: int | None
    distance: str | None
    indexes: dict[str, str] | None = field(default=None)
    sparse: bool = False
    """Whether points may have a sparse vector, weighed by how rare its words are."""


class Store(Protocol):
    """Qdrant's calls, reduced to those in use. Names may be aliases where something is read."""

    async def collections(self) -> list[str]:
        """Return the names of all collections."""
        ...

    async def aliases(self) -> dict[str, str]:
        """Return alias to collection."""
        ...

    async def describe(self, name: str) -> Described | None:
        """Return a collection as it is, or None where there is none."""
        ...

    async def create(
        self, name: str, dimensions: int, distance: models.Distance, metadata: dict[str, Any], sparse: bool = False
    ) -> None:
        """Create a collection with one named dense vector and, if asked, one named sparse vector. Raises when it exists."""
        ...

    async def index_field(self, name: str, field_name: str, schema: models.PayloadFieldSchema) -> None:
        """Create a payload index and wait for it."""
        ...

    async def drop(self, name: str) -> None:
        """Remove a collection. Nothing happens where there is none."""
        ...

    async def point_alias(self, alias: str, collection: str) -> None:
        """Point an alias at a collection in one action."""
        ...

    async def batch(self, name: str, operations: Sequence[models.UpdateOperation]) -> list[models.UpdateStatus]:
        """Carry out operations in order, waiting for each. The first that fails ends it; earlier ones stay done."""
        ...

    async def retrieve(self, name: str, ids: Sequence[str], payload: bool | list[str], vectors: bool) -> list[models.Record]:
        """Return the points that exist among `ids`."""
        ...

    async def scroll(self, name: str, where: models.Filter | None, offset: Any, limit: int) -> tuple[list[models.Record], Any]:
        """Return a page of points by id with their payloads, and where the next begins (None: no more)."""
        ...

    async def count(self, name: str, where: models.Filter | None = None) -> int:
        """Return the exact number of points that a filter lets through, or of all."""
        ...

    async def facet(self, name: str, field_name: str, where: models.Filter, limit: int) -> dict[int, int]:
        """Return how many points have each value of an integer field, at most `limit` values."""
        ...

    async def query(self, name: str, vector: Vector, where: models.Filter, limit: int) -> list[models.ScoredPoint]:
        """Return the nearest points of the dense vector, best first, with payloads."""
        ...

    async def hybrid(self, name: str, query: Query, where: models.Filter, limit: int) -> list[models.ScoredPoint]:
        """Return the best of the dense and the sparse list fused, best first, with payloads. `where` holds within both lists."""
        ...

    async def readiness(self, name: str) -> Readiness:
        """Return whether optimizers and update queue of a collection are at rest. Wakes those that wait for a write."""
        ...

    async def close(self) -> None:
        """Release files and connections."""
        ...
