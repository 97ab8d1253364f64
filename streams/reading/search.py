"""search(): a question to the best passages with all that a citation needs. Reads the index alone; the broker may be away."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from chunking.passage import Part
from chunking.policy import Embedding
from streams.errors import NotPrepared, UsageError
from streams.index.reading import neighbours as read_neighbours
from streams.index.reading import ordinal as read_ordinal
from streams.ports import CollectionSpec, Embedder, Hit, Query, StoredPoint, Vector, VectorIndex
from streams.reading.citation import clauses_of, parts_of

Mode = Literal["dense", "hybrid"]
MAX_HITS = 1_000
MAX_NEIGHBOURS = 50


@dataclass(frozen=True, slots=True)
class Passage:
    """A passage beside a hit."""

    chunk_id: str
    text: str
    heading_path: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Found:
    """One hit. `clause` is the one it begins in, `clauses` are all it holds, `parts` says where each begins in `text`. `span` is in
    characters of the normalised source; `parent_text` where the policy makes parents.
    """

    score: float
    text: str
    document_id: str
    revision: int
    title: str
    source_uri: str
    heading_path: tuple[str, ...]
    clause: str
    clauses: tuple[str, ...]
    parts: tuple[Part, ...]
    page: int | None
    span: tuple[int, int]
    chunk_id: str
    ordinal: int
    language: str
    kind: str
    parent_id: str | None
    parent_text: str | None
    before: tuple[Passage, ...] = ()
    after: tuple[Passage, ...] = ()

    def as_json(self) -> dict[str, Any]:
        """Return the hit as `docdelta search --json` prints it."""
        return {
            "score": self.score,
            "text": self.text,
            "document_id": self.document_id,
            "revision": self.revision,
            "title": self.title,
            "source_uri": self.source_uri,
            "heading_path": list(self.heading_path),
            "clause": self.clause,
            "clauses": list(self.clauses),
            "parts": [{"at": part.at, "heading_path": list(part.heading_path), "clause": part.clause} for part in self.parts],
            "page": self.page,
            "span": {"start": self.span[0], "end": self.span[1]},
            "chunk_id": self.chunk_id,
            "ordinal": self.ordinal,
            "language": self.language,
            "kind": self.kind,
            "parent": self.parent_id,
            "parent_text": self.parent_text,
            "before": [_passage_json(passage) for passage in self.before],
            "after": [_passage_json(passage) for passage in self.after],
        }


@dataclass(frozen=True, slots=True)
class Question:
    """What is asked, by whom. `groups` None: no check of readers' groups is asked for.

    mode: by meaning alone (dense), or by meaning and words (hybrid); None: hybrid where the policy has sparse vectors.
    """

    tenant_id: str
    text: str
    limit: int = 5
    neighbours: int = 0
    groups: tuple[str, ...] | None = None
    languages: tuple[str, ...] = ()
    mode: Mode | None = None

    def __post_init__(self) -> None:
        if not self.text.strip():
            raise UsageError("the query is blank; ask something")
        if not 1 <= self.limit <= MAX_HITS:
            raise UsageError(f"-k {self.limit} is out of range; 1 to {MAX_HITS}")
        if not 0 <= self.neighbours <= MAX_NEIGHBOURS:
            raise UsageError(f"--neighbours {self.neighbours} is out of range; 0 to {MAX_NEIGHBOURS}")


@dataclass(frozen=True, slots=True)
class Served:
    """What searches read: the collection behind the alias and what made its vectors."""

    alias: str
    collection: str
    spec: CollectionSpec
    embedding: Embedding


async def served(index: VectorIndex, alias: str) -> Served:
    """Return what stands behind an alias. Raises NotPrepared where nothing does."""
    collection = await index.alias_target(alias)
    if collection is None:
        raise NotPrepared(f"alias {alias!r} points at no collection yet: run docdelta init and a worker, and give it a moment")
    return await searchable(index, collection, alias)


async def searchable(index: VectorIndex, collection: str, alias: str = "") -> Served:
    """Return what a collection says made it. Raises NotPrepared where there is none."""
    spec = await index.collection_spec(collection)
    if spec is None:
        raise NotPrepared(f"collection {collection} does not exist; docdelta batches lists what there is")
    return Served(alias, collection, spec, embedding_of(spec.embedding_spec))


def embedding_of(spec: str) -> Embedding:
    """Return the embedding that an embedding spec names (`Embedding.spec`). Raises NotPrepared on any other text."""
    try:
        model, dimensions, distance, document_prefix, query_prefix = json.loads(spec)
        return Embedding(
            model=model,
            dimensions=dimensions,
            distance=distance,
            document_prefix=document_prefix,
            query_prefix=query_prefix,
        )
    except (ValueError, TypeError) as error:
        raise NotPrepared("the collection's embedding spec can't be read by this release") from error


async def search(index: VectorIndex, open_embedder: Callable[[Embedding], Embedder], alias: str, question: Question) -> list[Found]:
    """Return the best passages, best first. The embedder is opened for what the alias serves, its query prefix before the text."""
    target = await served(index, alias)
    embedder = await asyncio.to_thread(open_embedder, target.embedding)
    (vector,) = await embedder.embed([target.embedding.query_prefix + question.text])
    hits = await best_hits(index, target, question, vector)
    found = (_found(index, target.collection, hit.score, hit.payload, question.neighbours) for hit in hits)
    return list(await asyncio.gather(*found))


def mode_of(target: Served, asked: Mode | None) -> Mode:
    """Return how a collection is searched. NotPrepared when a hybrid search is asked of one without sparse vectors."""
    if asked == "hybrid" and not target.spec.sparse_spec:
        raise NotPrepared(
            f"collection {target.collection} has no sparse vectors, so it can't be searched by words: "
            "add `sparse: {}` to a new version of its policy and roll it out, or ask with --mode dense"
        )
    return asked or ("hybrid" if target.spec.sparse_spec else "dense")


async def best_hits(index: VectorIndex, target: Served, question: Question, vector: Vector) -> list[Hit]:
    """Return the hits of a question whose dense vector is known, best first."""
    sparse = None
    if mode_of(target, question.mode) == "hybrid":
        from streams.embedders.sparse import open_sparse

        embedder = await asyncio.to_thread(open_sparse, target.spec.sparse_spec)
        sparse = await embedder.query(question.text) if embedder else None
    query = Query(question.tenant_id, vector, question.limit, question.groups, question.languages, sparse)
    return await index.search(target.collection, query)


async def _found(index: VectorIndex, collection: str, score: float, payload: Mapping[str, Any], count: int) -> Found:
    before: Sequence[StoredPoint] = ()
    after: Sequence[StoredPoint] = ()
    if count:
        around = await read_neighbours(index, collection, payload, count)
        before, after = around.before, around.after
    span = payload["span"]
    return Found(
        score=score,
        text=payload["text"],
        document_id=payload["document_id"],
        revision=payload["revision"],
        title=payload.get("title", ""),
        source_uri=payload.get("source_uri", ""),
        heading_path=tuple(payload.get("heading_path", ())),
        clause=payload.get("clause", ""),
        clauses=clauses_of(payload),
        parts=parts_of(payload),
        page=payload.get("page"),
        span=(span[0], span[1]),
        chunk_id=payload["chunk_id"],
        ordinal=await read_ordinal(index, collection, payload),
        language=payload.get("language", ""),
        kind=payload.get("kind", ""),
        parent_id=payload.get("parent_id"),
        parent_text=payload.get("parent_text"),
        before=tuple(_passage(point.payload) for point in before),
        after=tuple(_passage(point.payload) for point in after),
    )


def _passage(payload: Mapping[str, Any]) -> Passage:
    return Passage(payload["chunk_id"], payload["text"], tuple(payload.get("heading_path", ())))


def _passage_json(passage: Passage) -> dict[str, Any]:
    return {"chunk_id": passage.chunk_id, "text": passage.text, "heading_path": list(passage.heading_path)}
