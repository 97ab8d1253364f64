"""What a reader wants around a hit: the passages before and after it, and its number in the document.

The order key says only what comes before what; the number a person reads (`ordinal`) is its rank among the document's points.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from streams.ports import StoredPoint, VectorIndex


@dataclass(frozen=True, slots=True)
class Neighbours:
    """Passages around a hit, each list in document order."""

    before: tuple[StoredPoint, ...]
    after: tuple[StoredPoint, ...]


async def neighbours(index: VectorIndex, collection: str, payload: Mapping[str, Any], n: int) -> Neighbours:
    """Return up to `n` passages on each side of the hit with this payload, of its own generation, parents left out."""
    points = [point for point in await _generation(index, collection, payload) if point.payload.get("role") != "parent"]
    key = payload["order_key"]
    before = [point for point in points if point.payload["order_key"] < key]
    after = [point for point in points if point.payload["order_key"] > key]
    return Neighbours(tuple(before[-n:] if n > 0 else ()), tuple(after[: max(n, 0)]))


async def ordinal(index: VectorIndex, collection: str, payload: Mapping[str, Any]) -> int:
    """Return the position, from 0, of the hit with this payload among the points of its document and generation."""
    points = await _generation(index, collection, payload)
    return sum(point.payload["order_key"] < payload["order_key"] for point in points)


async def _generation(index: VectorIndex, collection: str, payload: Mapping[str, Any]) -> list[StoredPoint]:
    points = await index.document_points(collection, payload["tenant_id"], payload["document_id"])
    return [point for point in points if point.payload["revision"] == payload["revision"]]
