"""A Qdrant client in local mode that counts what its writes would be on the wire: bytes of the REST API's JSON.

Its files are set as docdelta sets its own (a journal that is appended to): else seconds would compare how often SQLite syncs.
"""

from __future__ import annotations

import json
from typing import Any

from pydantic import BaseModel
from qdrant_client import QdrantClient


class CountingClient(QdrantClient):
    """`written`: bytes of all points, payloads and ids that were sent to be written or deleted. `points`: upserted so far."""

    def __init__(self, **options: Any) -> None:
        super().__init__(**options)
        self.written = 0
        self.points = 0

    def create_collection(self, collection_name: str, **options: Any) -> bool:
        """Create a collection with the fast journal."""
        made = super().create_collection(collection_name, **options)
        connection = self._client.collections[collection_name].storage.storage  # type: ignore[attr-defined]
        connection.execute("pragma journal_mode=WAL")
        connection.execute("pragma synchronous=NORMAL")
        return made

    def upsert(self, collection_name: str, points: Any, **options: Any) -> Any:
        """Count and upsert."""
        points = list(points) if not isinstance(points, BaseModel) else points
        self._count(points)
        self.points += len(points) if isinstance(points, list) else len(getattr(points, "points", ()) or points.batch.ids)
        return super().upsert(collection_name, points, **options)

    def upload_points(self, collection_name: str, points: Any, **options: Any) -> Any:
        """Count and upload."""
        points = list(points)
        self._count(points)
        self.points += len(points)
        return super().upload_points(collection_name, points, **options)

    def delete(self, collection_name: str, points_selector: Any, **options: Any) -> Any:
        """Count and delete."""
        self._count(points_selector)
        return super().delete(collection_name, points_selector, **options)

    def _count(self, value: Any) -> None:
        self.written += len(json.dumps(value, default=_plain, ensure_ascii=False).encode("utf-8"))


def _plain(value: Any) -> Any:
    return value.model_dump(mode="json", exclude_none=True) if isinstance(value, BaseModel) else str(value)
