"""A small index with known answers: three documents of one tenant, one of another."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pytest

from chunking.policy import Embedding, Sparse
from streams.embedders.sparse import open_sparse
from streams.index.memory import MemoryIndex
from streams.ports import CollectionSpec, IndexPlan, NewPoint, Vector
from tests.contracts.index_values import chunk_id

TOPICS = ("leave", "travel", "limits", "story")
EMBEDDING = Embedding(model="topics", dimensions=len(TOPICS), query_prefix="ask: ")


@dataclass
class Topics:
    """Embeds a text by how often it names each topic. Remembers what it was given."""

    model: str = "topics"
    dimensions: int = len(TOPICS)
    max_tokens: int | None = None
    given: list[str] = field(default_factory=list)

    def count_tokens(self, text: str) -> int:
        return len(text.split())

    async def embed(self, texts: Sequence[str]) -> list[Vector]:
        self.given += texts
        return [np.array([text.count(topic) + 0.01 for topic in TOPICS], np.float32) for text in texts]


def words(text: str) -> int:
    return len(text.split())


@dataclass
class Shelf:
    """The index, and `put` to fill it."""

    index: MemoryIndex
    collection: str
    sparse: Sparse | None

    async def put(self, document: str, *texts: str, tenant: str = "acme", revision: int = 1, **fields: Any) -> None:
        """Write a document of these chunks, in order."""
        dense = await Topics().embed(texts)
        made = open_sparse(self.sparse.spec) if self.sparse else None
        sparse = await made.documents(texts) if made else [None] * len(texts)
        points = []
        for number, text in enumerate(texts):
            identity = chunk_id(f"{tenant}/{document}/{number}")
            payload = {
                "tenant_id": tenant,
                "document_id": document,
                "revision": revision,
                "order_key": number,
                "chunk_id": identity,
                "role": "body",
                "language": "en",
                "acl": None,
                "text": text,
                "heading_path": [document.title()],
                "clause": f"{number + 1}",
                **fields,
            }
            points.append(NewPoint(identity, dense[number], payload, sparse[number]))
        await self.index.apply(self.collection, IndexPlan(tenant, document, revision, tuple(points)))


async def shelf(collection: str, sparse: Sparse | None) -> Shelf:
    index = MemoryIndex()
    spec = CollectionSpec(collection, "f" * 64, EMBEDDING.spec, EMBEDDING.dimensions, "cosine", sparse.spec if sparse else "")
    await index.ensure_collection(collection, spec)
    made = Shelf(index, collection, sparse)
    await made.put("leave", "leave is ten days", "sick leave is paid at eighty percent", "leave travel leave form E-4031")
    await made.put("travel", "travel by train travel", "travel by plane needs approval")
    await made.put("limits", "limits are six hundred", revision=7)
    await made.put("leave", "leave of the rival", tenant="rival")
    return made


@pytest.fixture
async def dense_shelf() -> Shelf:
    return await shelf("cms-v1-0a1b2c3d", None)


@pytest.fixture
async def hybrid_shelf() -> Shelf:
    return await shelf("cms-v2-0a1b2c3d", Sparse())
