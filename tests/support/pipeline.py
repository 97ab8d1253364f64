"""Pipeline: the three agents' bodies one after the other over ports in memory, with the real parsers, strategies and index."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from chunking.document import Document
from chunking.parsers import parse_document
from chunking.policy import ChunkPolicy, Embedding, Limits, Payload
from chunking.tokens import counter
from schemas.codec import decode, encode
from schemas.dead_letter import DeadLetter
from schemas.document_change import Content, DocumentChange
from schemas.receipt import Receipt
from schemas.record import document_key
from streams.agents.chunk_document import ChunkerAgent
from streams.agents.holding import Holding
from streams.agents.index_changes import IndexerAgent
from streams.agents.manifests import Manifests
from streams.agents.order import Order
from streams.agents.parse_document import ParserAgent
from streams.agents.refusals import Outbox
from streams.controls.counts import Counts
from streams.embedders.hashing import hashed
from streams.errors import PoisonRecord
from streams.index.memory import MemoryIndex
from streams.ports import CollectionSpec, IndexPlan, InRecord, Vector
from streams.steps.limits import Limits as BreakerLimits
from streams.topics import TopicNames
from tests.support.ports import MemoryLog, MemoryTable, MemoryView, SteppingClock, impatient

DIMENSIONS = 32
POLICY = ChunkPolicy(
    name="bodies",
    version=1,
    limits=Limits(max_tokens=60),
    embedding=Embedding(model="hashing-v1", dimensions=DIMENSIONS),
    payload=Payload(attributes=("path", "slug", "views")),
)


class WatchedEmbedder:
    """streams.ports.Embedder that notes every text. `answers` are given instead of vectors, an exception is raised."""

    model, dimensions = "hashing-v1", DIMENSIONS

    def __init__(self, max_tokens: int | None = None) -> None:
        self.max_tokens = max_tokens
        self.texts: list[str] = []
        self.calls = 0
        self.answers: list[list[Vector] | Exception] = []

    def count_tokens(self, text: str) -> int:
        return len(text.split())

    async def embed(self, texts: Sequence[str]) -> list[Vector]:
        assert texts
        assert all(text.strip() for text in texts)
        self.calls += 1
        if self.answers:
            answer = self.answers.pop(0)
            if isinstance(answer, Exception):
                raise answer
            return answer
        self.texts += texts
        return [hashed(text, DIMENSIONS) for text in texts]


class WatchedIndex(MemoryIndex):
    """An index that notes every plan. `errors` are raised instead of carrying a plan out; an `after` error is raised after it."""

    def __init__(self) -> None:
        super().__init__()
        self.plans: list[IndexPlan] = []
        self.errors: list[Exception] = []
        self.after: list[Exception] = []
        self.sizes: list[int] = []
        """Number of points after each plan."""

    async def apply(self, collection: str, plan: IndexPlan) -> None:
        if self.errors:
            raise self.errors.pop(0)
        await super().apply(collection, plan)
        self.plans.append(plan)
        self.sizes.append(await self.count(collection))
        if self.after:
            raise self.after.pop(0)


@dataclass
class Pipeline:
    """One partition of everything. `send` appends to [documents]; `drain` runs what stands before the agents."""

    policy: ChunkPolicy = POLICY
    log: MemoryLog = field(default_factory=MemoryLog)
    index: WatchedIndex = field(default_factory=WatchedIndex)
    embedder: WatchedEmbedder = field(default_factory=WatchedEmbedder)
    seen: MemoryTable = field(default_factory=MemoryTable)
    table: MemoryTable = field(default_factory=MemoryTable)
    group_size: int = 8
    breaker: BreakerLimits | None = None
    """With a door before the parser, or without."""
    positions: dict[str, int] = field(default_factory=dict)
    parses: int = 0

    def __post_init__(self) -> None:
        self.names = TopicNames("t")
        self.batch = self.policy.batch_id
        self.restart()

    def restart(self) -> None:
        """Begin with new agents over what is left: log, tables, index and positions."""
        clock, patience = SteppingClock(), impatient()
        outboxes = {
            stage: Outbox(self.log, self.names, patience, clock, stage, "" if stage == "parser" else self.batch)
            for stage in ("parser", "chunker", "indexer")
        }
        manifests = Manifests(self.table)
        order = Order(self._recall, self._say)
        self.parser = ParserAgent(outboxes["parser"], self.seen, self._parse, _no_fetch, 1_000_000, order=order)
        if self.breaker is not None:
            self.view = MemoryView(self.log, self.names.controls)
            self.view.look()
            counts = Counts(self.breaker.window_seconds)
            counts.load(0, self.seen.values.items())
            self.holding = Holding(outboxes["parser"], self.view, counts, self.breaker, lambda: {0}, 1, "worker")
            self.parser = replace(self.parser, holding=self.holding)
        tokens = counter(self.policy.limits.tokenizer)
        self.chunker = ChunkerAgent(outboxes["chunker"], manifests, self.index, self.batch, self.policy, tokens, self.embedder)
        self.indexer = IndexerAgent(outboxes["indexer"], manifests, self.index, self.embedder, self.batch)

    async def _parse(self, data: bytes | str, media_type: str, *, place: Any = None, **about: Any) -> Document:
        self.parses += 1
        if "%unreadable%" in str(data):
            raise PoisonRecord("unreadable markup")
        return parse_document(data, media_type, **about)

    async def _recall(self, late: InRecord, offset: int) -> InRecord | None:
        return next((record for record in self.log.topics[self.names.documents] if record.offset == offset), None)

    async def _say(self, late: InRecord, value: bytes, headers: Mapping[str, bytes]) -> None:
        self.send_raw(late.key, value, headers)

    def compact(self) -> None:
        """Keep only the last record of each key in [documents], as compaction may at any time; offsets stay."""
        records = self.log.topics[self.names.documents]
        last = {record.key: record.offset for record in records}
        records[:] = [record for record in records if last[record.key] == record.offset]

    def send_raw(self, key: bytes | None, value: bytes | None, headers: Mapping[str, bytes] | None = None) -> None:
        """Append any record to [documents]."""
        topic = self.log.topics[self.names.documents]
        offset = topic[-1].offset + 1 if topic else 0
        topic.append(InRecord(self.names.documents, 0, offset, key, value, headers or {}))

    def send(self, document: str, revision: int, text: str | None, tenant: str = "A", **fields: Any) -> None:
        """Append a revision in Markdown, or an end (`text` None)."""
        change = DocumentChange(
            tenant_id=tenant,
            document_id=document,
            revision=revision,
            op="delete" if text is None else "upsert",
            content=None if text is None else Content(text=text),
            **fields,
        )
        self.send_raw(document_key(tenant, document), encode(change))

    async def drain(self, index: bool = True) -> None:
        """Run the three agents (not the indexer, where `index` is false) until nothing stands before them.

        An error that leaves an agent leaves its records where they are.
        """
        await self._prepare()
        await self._each(self.names.documents, self.parser.handle)
        await self._each(self.names.parsed, self.chunker.handle)
        topic = self.names.changes(self.batch)
        while index and (group := self.log.topics[topic][(at := self.positions.get(topic, 0)) : at + self.group_size]):
            await self.indexer.handle(group)
            self.positions[topic] = at + len(group)

    async def _prepare(self) -> None:
        spec = CollectionSpec(self.batch, self.policy.fingerprint, self.policy.embedding.spec, DIMENSIONS, "cosine")
        await self.index.ensure_collection(self.batch, spec)

    async def _each(self, topic: str, handle: Any) -> None:
        while record := next((each for each in self.log.topics[topic] if each.offset >= self.positions.get(topic, 0)), None):
            await handle(record)
            self.positions[topic] = record.offset + 1

    def rewind(self, steps: int = 10_000) -> None:
        """Go back `steps` records in every topic, as after a crash before a commit."""
        self.positions = {topic: max(0, position - steps) for topic, position in self.positions.items()}

    async def texts(self, document: str, tenant: str = "A") -> list[str]:
        """Return a document's chunk texts in the order of their keys."""
        return [str(point.payload["text"]) for point in await self.index.document_points(self.batch, tenant, document)]

    async def ids(self, document: str, tenant: str = "A") -> list[str]:
        """Return a document's chunk ids in the order of their keys."""
        return [point.chunk_id for point in await self.index.document_points(self.batch, tenant, document)]

    async def vectors_are_right(self) -> bool:
        """Return whether every stored vector is that of its own text."""
        for tenant, document in {(p.tenant_id, p.document_id) for p in self.index.plans}:
            ids = await self.ids(document, tenant)
            for point in (await self.index.retrieve(self.batch, ids, with_vectors=True)).values():
                if point.vector is None or not np.allclose(point.vector, hashed(str(point.payload["text"]), DIMENSIONS), atol=1e-6):
                    return False
        return True

    def receipts(self) -> list[Receipt]:
        """Return all receipts."""
        return [decode(record.value, Receipt) for record in self.log.topics[self.names.receipts] if record.value]

    def outcomes(self) -> list[str]:
        """Return all outcomes in order."""
        return [receipt.outcome for receipt in self.receipts()]

    def dead_letters(self) -> list[DeadLetter]:
        """Return all dead letters."""
        return [decode(record.value, DeadLetter) for record in self.log.topics[self.names.dead_letters] if record.value]


async def _no_fetch(reference: str, limit: int) -> bytes:
    raise AssertionError("no references here")


def sections(*words: str) -> str:
    """Return a Markdown page in which every word is a section, and so a chunk, of its own."""
    return "\n\n".join(f"# {word}\n\n{word} is told about here at some length, in a sentence of its own." for word in words)


def garbage(**fields: Any) -> bytes:
    """Return JSON that is no record."""
    return json.dumps(fields).encode()
