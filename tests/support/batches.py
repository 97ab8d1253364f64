"""Batches in memory: one log of parsed documents, any number of batches over it at their own speed, one ledger, one index."""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any

from chunking.chunker import chunk
from chunking.identity import CONTENT
from chunking.parsers import parse_document
from chunking.policy import ChunkPolicy, load_policy
from chunking.tokens import counter
from schemas.batch import BatchRecord, BatchState
from schemas.codec import decode, encode
from schemas.document_change import Content, DocumentChange
from schemas.parsed_document import ParsedDocument
from schemas.receipt import Receipt
from schemas.record import document_key
from streams.agents.chunk_document import ChunkerAgent
from streams.agents.index_changes import IndexerAgent, Lender
from streams.agents.manifests import Manifests
from streams.agents.refusals import Outbox
from streams.batches.evidence import Planned, planned_of
from streams.batches.ledger import Clerk, Ledger, fold, with_state
from streams.batches.record import batch_record, collection_spec
from streams.embedders.hashing import hashed
from streams.errors import Unavailable
from streams.index.memory import MemoryIndex
from streams.ports import IndexPlan, InRecord, Vector, VectorIndex
from streams.steps.wire_document import end_to_wire, from_wire, to_wire
from streams.topics import TopicNames
from tests.support.ports import MemoryLog, MemoryTable, SteppingClock, impatient

NOW = datetime(2031, 1, 1, tzinfo=UTC)
NAMES = TopicNames("t")
ALIAS = "docs"
DIMENSIONS = 32
BLUE = "name: p\nversion: 1\nlimits: {max_tokens: 60}\nembedding: {model: hashing-v1, dimensions: 32}\n"
GREEN = BLUE.replace("version: 1", "version: 2").replace("60", "40")


def page(name: str, sections: int = 4, edit: str = "") -> str:
    """Return a page whose sections are too long for the smaller of the two policies."""
    body = "\n\n".join(f"## Part {n}\n\n" + f"Part {n} of {name} tells what happened on day {n}. " * 4 for n in range(sections))
    return f"# {name}{edit}\n\n{body}"


class Topic:
    """[batches] as a list: what operators share."""

    def __init__(self) -> None:
        self.records: list[InRecord] = []

    def write(self, key: bytes, value: bytes) -> None:
        self.records.append(InRecord("batches", 0, len(self.records), key, value))

    def clerk(self, name: str = "anna@a (process 1)") -> Clerk:
        return Clerk(lambda: fold(self.records), self.write, lambda: NOW, by=name)


class CountingEmbedder:
    """An embedder that notes every text."""

    model, dimensions, max_tokens = "hashing-v1", DIMENSIONS, None

    def __init__(self) -> None:
        self.texts: list[str] = []

    def count_tokens(self, text: str) -> int:
        return len(text.split())

    async def embed(self, texts: Sequence[str]) -> list[Vector]:
        self.texts += texts
        return [hashed(text, DIMENSIONS) for text in texts]


class FlakyIndex(MemoryIndex):
    """An index that is away now and then: `away` is how many of the next calls fail."""

    def __init__(self) -> None:
        super().__init__()
        self.away = 0

    def _answer(self) -> None:
        if self.away:
            self.away -= 1
            raise Unavailable("away by script")

    async def apply(self, collection: str, plan: IndexPlan) -> None:
        self._answer()
        await super().apply(collection, plan)

    async def retrieve(self, collection: str, chunk_ids: Sequence[str], with_vectors: bool = False) -> Any:
        self._answer()
        return await super().retrieve(collection, chunk_ids, with_vectors)


@dataclass
class Hosted:
    """One batch's agents over the common log, and how far each is."""

    record: BatchRecord
    policy: ChunkPolicy
    log: MemoryLog
    table: MemoryTable
    embedder: CountingEmbedder
    chunker: ChunkerAgent
    indexer: IndexerAgent
    changelog: list[InRecord] = field(default_factory=list)
    parsed_at: int = 0
    changes_at: int = 0

    @property
    def changes(self) -> list[InRecord]:
        return self.log.topics[NAMES.changes(self.record.batch)]

    def receipts(self) -> list[Receipt]:
        return [decode(record.value, Receipt) for record in self.log.topics[NAMES.receipts] if record.value]

    @property
    def embedded(self) -> int:
        return len(self.embedder.texts)

    def planned(self) -> dict[bytes, Planned]:
        """The manifests, as the changelog would tell them."""
        return planned_of(InRecord("m", 0, n, key, value) for n, (key, value) in enumerate(self.table.values.items()))


@dataclass
class Installation:
    """Everything of one installation. Documents are sent with `put` and `delete`; batches take them with `step` and `drain`."""

    index: VectorIndex = field(default_factory=FlakyIndex)
    topic: Topic = field(default_factory=Topic)
    parsed: list[InRecord] = field(default_factory=list)
    newest: dict[str, ParsedDocument] = field(default_factory=dict)
    hosted: dict[str, Hosted] = field(default_factory=dict)

    @property
    def clerk(self) -> Clerk:
        return self.topic.clerk()

    @property
    def ledger(self) -> Ledger:
        return fold(self.topic.records)

    async def host(self, policy_yaml: str, state: BatchState = "building") -> Hosted:
        """Claim a batch and begin it, or begin it anew with other agents (a worker that died)."""
        policy = load_policy(policy_yaml)
        record = batch_record(policy, policy_yaml, state, ALIAS, NOW)
        if record.batch not in self.ledger.batches:
            served = self.ledger.served(ALIAS)
            self.clerk.claim(self.ledger, with_state(record, replaces=served.batch if served else ""))
        await self.index.ensure_collection(record.collection, collection_spec(record, policy))
        if state == "active" and await self.index.alias_target(ALIAS) is None:
            await self.index.set_alias(ALIAS, record.collection)
        before = self.hosted.get(record.batch)
        log, table = (before.log, before.table) if before else (MemoryLog(), MemoryTable())
        embedder = before.embedder if before else CountingEmbedder()
        clock, patience, manifests = SteppingClock(), impatient(), Manifests(table)

        def outbox(stage: Any) -> Outbox:
            return Outbox(log, NAMES, patience, clock, stage, record.batch)

        chunker = ChunkerAgent(
            outbox("chunker"), manifests, self.index, record.collection, policy, counter(policy.limits.tokenizer), embedder
        )
        indexer = IndexerAgent(
            outbox("indexer"), manifests, self.index, embedder, record.collection, lender=lambda: self.lender_of(record.batch)
        )
        made = Hosted(record, policy, log, table, embedder, chunker, indexer)
        if before is not None:
            made.parsed_at, made.changes_at = before.parsed_at, before.changes_at
        self.hosted[record.batch] = made
        return made

    def lender_of(self, batch: str) -> Lender | None:
        served = self.ledger.served(ALIAS)
        mine = self.ledger.batches[batch]
        if served is None or served.batch == batch or served.embedding != mine.embedding:
            return None
        return Lender(served.collection, served.policy_fingerprint, load_policy(served.policy_yaml).identity == CONTENT)

    def put(self, document: str, text: str, **fields: Any) -> None:
        """Append the next revision of a document to [parsed]."""
        revision = self.newest[document].revision + 1 if document in self.newest else 1
        change = DocumentChange(
            tenant_id="acme",
            document_id=document,
            revision=revision,
            op="upsert",
            content=Content(text=text),
            event_id=f"{document}@{revision}",
            **fields,
        )
        self._append(to_wire(change, parse_document(text, "text/markdown"), NOW))

    def delete(self, document: str) -> None:
        """Append a document's end."""
        revision = self.newest[document].revision + 1
        change = DocumentChange(
            tenant_id="acme", document_id=document, revision=revision, op="delete", event_id=f"{document}@{revision}"
        )
        self._append(end_to_wire(change, NOW))

    def _append(self, parsed: ParsedDocument) -> None:
        self.newest[parsed.document_id] = parsed
        key = document_key(parsed.tenant_id, parsed.document_id)
        self.parsed.append(InRecord(NAMES.parsed, 0, len(self.parsed), key, encode(parsed)))

    async def step(self, hosted: Hosted, documents: int = 1, groups: int = 1, size: int = 8) -> None:
        """Let a batch take some records: its chunker, then its indexer."""
        for record in self.parsed[hosted.parsed_at : hosted.parsed_at + documents]:
            await hosted.chunker.handle(record)
            hosted.parsed_at += 1
        for _ in range(groups):
            group = hosted.changes[hosted.changes_at : hosted.changes_at + size]
            if group:
                await hosted.indexer.handle(group)
                hosted.changes_at += len(group)

    async def drain(self, *batches: Hosted) -> None:
        """Let batches (all, when none is named) take everything."""
        for hosted in batches or tuple(self.hosted.values()):
            while hosted.parsed_at < len(self.parsed) or hosted.changes_at < len(hosted.changes):
                await self.step(hosted, documents=50, groups=10)

    async def points(self, collection: str) -> dict[str, dict[str, Any]]:
        """Return every point's payload by chunk id."""
        found: dict[str, dict[str, Any]] = {}
        async for each in self.index.scan(collection):
            found |= {point.chunk_id: dict(point.payload) for point in each}
        return found

    async def check(self, hosted: Hosted) -> None:
        """Hold a batch's collection against a rebuild of the newest documents under its policy."""
        expected: dict[str, Any] = {}
        for parsed in self.newest.values():
            if parsed.op == "upsert":
                document, provenance = from_wire(parsed)
                made = chunk(document, provenance, hosted.policy, counter(hosted.policy.limits.tokenizer))
                expected |= {each.chunk_id: dict(each.payload) for each in made}
        held = await self.points(hosted.record.collection)
        own = ("revision", "order_key", "payload_hash")
        found = {chunk_id: {k: v for k, v in payload.items() if k not in own} for chunk_id, payload in held.items()}
        assert found.keys() == expected.keys(), (len(found.keys() - expected.keys()), len(expected.keys() - found.keys()))
        assert found == expected


def edit(installation: Installation, dice: random.Random, documents: int) -> None:
    """Change one document at random: edited, removed, made again, new."""
    name = f"d{dice.randrange(documents)}"
    before = installation.newest.get(name)
    if before is not None and before.op == "upsert" and dice.random() < 0.3:
        installation.delete(name)
    else:
        installation.put(name, page(name, dice.randrange(0, 5), f" {dice.randrange(3)}"))
