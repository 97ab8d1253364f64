"""What users run today, on the same pages: LangChain `index()`, LlamaIndex's IngestionPipeline, CocoIndex. One peer a process.

Each is set up as its documentation shows it, with what makes it fastest here: one process, a Qdrant in local mode, the hashing
embedder, state that survives a restart. Prints one JSON line of figures: build, unchanged re-sync (the best of three), one edit a
page. A re-sync begins with the pages in hand (CocoIndex reads files) and ends when its state is saved. With `--folder` it begins
with a folder of files, in which nothing changed, and nothing else is measured: beside `docdelta sync` (folder.py).

Run by `make bench-peers`; by hand: ``python peers.py langchain --documents 1000``.
"""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from counting_client import CountingClient
from hashing_with_count import DIMENSIONS, Counted
from pages import edited, pages

CHUNK = 1000
"""Characters a chunk: about what docdelta's policy gives on these pages."""
Pages = Mapping[str, str]


class LangChain:
    """`index()` with a SQLRecordManager on a SQLite file, cleanup `scoped_full`: the mode that does not embed anew what spans
    batches. Batches of 1,000: fewer statements than the default of 100."""

    offsets = False
    """Whether a chunk says where it stands. Its metadata is part of its hash, so one that moved is another."""

    def __init__(self, folder: Path, client: CountingClient, embed: Counted) -> None:
        from langchain_classic.indexes import SQLRecordManager
        from langchain_core.embeddings import Embeddings
        from langchain_qdrant import QdrantVectorStore
        from langchain_text_splitters import RecursiveCharacterTextSplitter
        from qdrant_client.models import Distance, VectorParams

        class Hashing(Embeddings):
            def embed_documents(self, texts: list[str]) -> list[list[float]]:
                return embed(texts)

            def embed_query(self, text: str) -> list[float]:
                return embed([text])[0]

        client.create_collection("pages", vectors_config=VectorParams(size=DIMENSIONS, distance=Distance.COSINE))
        self._store = QdrantVectorStore(client, "pages", Hashing(), validate_collection_config=False)
        self._records = SQLRecordManager("pages", db_url=f"sqlite:///{folder}/records.db")
        self._records.create_schema()
        self._split = RecursiveCharacterTextSplitter(chunk_size=CHUNK, chunk_overlap=0, add_start_index=self.offsets)

    def sync(self, texts: Pages) -> None:
        """Bring the index to these pages."""
        from langchain_core.documents import Document
        from langchain_core.indexing import index

        chunks = self._split.split_documents([Document(text, metadata={"source": name}) for name, text in texts.items()])
        index(
            chunks, self._records, self._store, batch_size=1000, cleanup="scoped_full", source_id_key="source", key_encoder="sha1"
        )


class LangChainWithOffsets(LangChain):
    """The same with `add_start_index`: chunks that can be cited by their place, as docdelta's can."""

    offsets = True


class LlamaIndex:
    """IngestionPipeline with a docstore and UPSERTS. Its docstore is kept in a JSON file, read before and written after each run:
    without that it would forget everything at a restart. No cache: it would only save splitting of what changed."""

    def __init__(self, folder: Path, client: CountingClient, embed: Counted) -> None:
        from llama_index.core.base.embeddings.base import BaseEmbedding
        from llama_index.vector_stores.qdrant import QdrantVectorStore

        class Hashing(BaseEmbedding):
            def _get_text_embedding(self, text: str) -> list[float]:
                return embed([text])[0]

            def _get_text_embeddings(self, texts: list[str]) -> list[list[float]]:
                return embed(texts)

            def _get_query_embedding(self, query: str) -> list[float]:
                return embed([query])[0]

            async def _aget_query_embedding(self, query: str) -> list[float]:
                return embed([query])[0]

        self._file = str(folder / "docstore.json")
        self._embedding = Hashing(embed_batch_size=512)
        self._store = QdrantVectorStore("pages", client=client)

    def sync(self, texts: Pages) -> None:
        """Bring the index to these pages."""
        from llama_index.core import Document
        from llama_index.core.ingestion import DocstoreStrategy, IngestionPipeline
        from llama_index.core.node_parser import SentenceSplitter
        from llama_index.core.storage.docstore import SimpleDocumentStore

        known = SimpleDocumentStore.from_persist_path(self._file) if Path(self._file).exists() else SimpleDocumentStore()
        pipeline = IngestionPipeline(
            transformations=[SentenceSplitter(chunk_size=256, chunk_overlap=0), self._embedding],
            docstore=known,
            vector_store=self._store,
            docstore_strategy=DocstoreStrategy.UPSERTS,
            disable_cache=True,
        )
        pipeline.run(documents=[Document(text=text, id_=name) for name, text in texts.items()])
        known.persist(self._file)


class CocoIndex:
    """The shape of its Qdrant example, files memoised; the chunk's function is memoised too and its payload holds no offsets, which
    makes it write one point an edit."""

    def __init__(self, folder: Path, client: CountingClient, embed: Counted) -> None:
        import cocoindex as coco
        import numpy as np
        from cocoindex.connectors import localfs, qdrant
        from cocoindex.ops.text import RecursiveSplitter
        from cocoindex.resources.id import IdGenerator
        from cocoindex.resources.schema import VectorSchema

        self._source = folder / "pages"
        self._source.mkdir()
        self._there: dict[str, str] = {}
        database = coco.ContextKey[CountingClient]("database")
        splitter = RecursiveSplitter()
        environment = coco.Environment(coco.Settings(db_path=folder / "state"))
        environment._context_provider.provide(database, client)

        @coco.fn(memo=True)
        async def vector_of(text: str) -> list[float]:
            return embed([text])[0]

        @coco.fn(memo=True)
        async def process_file(file: Any, target: Any) -> None:
            text = await file.read_text()
            ids = IdGenerator()
            for piece in splitter.split(text, chunk_size=CHUNK, chunk_overlap=0, language="markdown"):
                payload = {"filename": str(file.file_path.path), "text": piece.text}
                vector = await vector_of(piece.text)
                target.declare_point(qdrant.PointStruct(id=await ids.next_id(piece.text), vector=vector, payload=payload))

        @coco.fn
        async def main(source: Path) -> None:
            schema = await qdrant.CollectionSchema.create(
                vectors=qdrant.QdrantVectorDef(schema=VectorSchema(dtype=np.dtype(np.float32), size=DIMENSIONS))
            )
            target = await qdrant.mount_collection_target(database, "pages", schema)
            await coco.mount_each(process_file, localfs.walk_dir(source).items(), target)

        self._app = coco.App(coco.AppConfig("pages", environment), main, self._source)

    def prepare(self, texts: Pages) -> None:
        """Write the files that changed: that is the user's doing, not CocoIndex's."""
        for name, text in texts.items():
            if self._there.get(name) != text:
                (self._source / f"{name}.md").write_text(text, encoding="utf-8")
                self._there[name] = text

    def sync(self, texts: Pages) -> None:
        """Bring the index to the files."""
        self._app.update_blocking()


PEERS: dict[str, Callable[[Path, CountingClient, Counted], Any]] = {
    "langchain": LangChain,
    "langchain_with_offsets": LangChainWithOffsets,
    "llamaindex": LlamaIndex,
    "cocoindex": CocoIndex,
}


def measured(name: str, count: int, characters: int, folder: Path) -> dict[str, Any]:
    """Return the figures of one peer."""
    client, embed = CountingClient(path=str(folder / "qdrant")), Counted()
    peer = PEERS[name](folder, client, embed)
    now = pages(count, characters)

    def timed(texts: Pages) -> dict[str, float]:
        if isinstance(peer, CocoIndex):
            peer.prepare(texts)
        embedded, written, points, began = embed.texts, client.written, client.points, time.perf_counter()
        peer.sync(texts)
        seconds = time.perf_counter() - began
        return {
            "seconds": seconds,
            "documents_per_second": count / seconds,
            "embedded": embed.texts - embedded,
            "bytes_written": client.written - written,
            "points_written": client.points - points,
        }

    build = timed(now)
    again = [timed(now) for _ in range(3)]
    assert build["embedded"] >= count, build
    assert not any(run["embedded"] for run in again), "an unchanged page was embedded again"
    edit = timed({page: edited(text, 1) for page, text in now.items()})
    return {"peer": name, "documents": count, "build": build, "resync": min(again, key=lambda run: run["seconds"]), "edit": edit}


def folder_measured(name: str, source: Path, folder: Path) -> dict[str, Any]:
    """Return how long a peer takes to find that nothing changed in a folder of files, which it reads each time."""
    client, embed = CountingClient(path=str(folder / "qdrant")), Counted()
    peer = PEERS[name](folder, client, embed)

    def read_and_sync() -> float:
        began = time.perf_counter()
        peer.sync({path.stem: path.read_text(encoding="utf-8") for path in sorted(source.glob("*.md"))})
        return time.perf_counter() - began

    read_and_sync()
    built = embed.texts
    seconds = min(read_and_sync() for _ in range(3))
    assert embed.texts == built > 0, "an unchanged page was embedded again"
    count = sum(1 for _ in source.glob("*.md"))
    return {"peer": name, "documents": count, "seconds": seconds, "documents_per_second": count / seconds}


def main() -> None:
    """Measure one peer and print a JSON line."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("peer", choices=sorted(PEERS))
    parser.add_argument("--documents", type=int, default=1000)
    parser.add_argument("--characters", type=int, default=4096)
    parser.add_argument("--folder", type=Path, help="measure an unchanged re-sync of this folder alone (not CocoIndex)")
    asked = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        if asked.folder is not None:
            figures = folder_measured(asked.peer, asked.folder, Path(folder))
        else:
            figures = measured(asked.peer, asked.documents, asked.characters, Path(folder))
        json.dump(figures, sys.stdout)
    print()


if __name__ == "__main__":
    main()
