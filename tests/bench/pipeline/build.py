"""A full build with the offline model (USE): total time against embedding the same texts with nothing else, on the same cores.

Everything in one process (EmbeddedStack: the index is reached without HTTP) on Apache Kafka, with the policy that `docdelta init`
gives. What embedding alone takes is measured twice over, before and after the build, the faster time of each counts:
  by fastembed      one call of its `embed` with all texts, on all cores, with its own defaults
  by docdelta       the same texts through docdelta's embedder, in the worker's own groups
The broker has served another build before: a virtual machine that compiles itself on the same cores is not what is measured.
Twice: pages of 4 kB, and a tenth as many ten times as long, where what each document costs beside its embedding counts less.
"""

from __future__ import annotations

import asyncio
import os
import tempfile
import time
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from fastembed import TextEmbedding

from chunking.chunker import Provenance, chunk
from chunking.document import DocumentKey
from chunking.parsers import parse_document
from chunking.policy import ChunkPolicy, load_policy
from chunking.tokens import counter
from schemas.codec import encode
from schemas.document_change import DocumentChange
from schemas.record import document_key
from streams.embedded.model import offline_model_directory
from streams.embedded.stack import EmbeddedStack, ReceiptBook
from streams.embedders import open_embedder
from streams.kafka.produce import OutRecord, produce_all
from streams.logs import configure_logs
from streams.ports import Embedder
from streams.settings import EmbedderSettings, Settings, WorkerSettings
from tests.bench.pipeline.installation import first_revisions, processor_seconds
from tests.bench.pipeline.pages import page, pages
from tests.stack.rig import upsert

POLICY_FILE = Path(__file__).resolve().parents[3] / "deploy" / "policies" / "default.yaml"

SHORT, LONG = 4_096, 40_960
"""Characters a page."""
WARMING = 300
"""Pages that are built before, at most: of a smaller size twice as many as are measured."""


async def measure(documents: int) -> dict[str, Any]:
    """Return seconds of the build, of embedding alone, and their ratio: for short pages, and for long ones of as much text."""
    return {
        "short pages": await _measure(documents, SHORT, warming := min(WARMING, 2 * documents)),
        "long pages": await _measure(max(1, documents * SHORT // LONG), LONG, warming),
        "target": "each ratio <= 1.10",
    }


async def _measure(documents: int, characters: int, warming: int) -> dict[str, Any]:
    text = POLICY_FILE.read_text(encoding="utf-8")
    policy = load_policy(text)
    made = pages(documents, characters)
    groups = _embed_texts(policy, made)
    texts = [text for group in groups for text in group]
    settings = Settings(embedder=EmbedderSettings(kind="fastembed"))
    alone = Alone(await asyncio.to_thread(open_embedder, settings.embedder, policy.embedding), groups)
    configure_logs("warning", "console")
    with tempfile.TemporaryDirectory(prefix="docdelta-bench-") as folder:
        async with EmbeddedStack(Path(folder), policy, text, settings, "apache") as stack, ReceiptBook(stack) as receipts:
            await _built(stack, receipts, [upsert(name, 1, page(number, SHORT)) for name, number in _others(warming)])
            await alone.measure()
            before = _processors()
            total, embedded = await _built(stack, receipts, first_revisions(made))
            used = {name: seconds - before.get(name, 0.0) for name, seconds in _processors().items()}
            await alone.measure()
    assert embedded == len(texts), (embedded, len(texts))
    return {
        "documents": documents,
        "characters a page": characters,
        "texts": len(texts),
        "seconds": total,
        "embedding alone, seconds": {"by fastembed": alone.by_fastembed, "by docdelta": alone.by_docdelta},
        "texts a second": len(texts) / total,
        "ratio to fastembed": total / min(alone.by_fastembed),
        "ratio to docdelta's embedder": total / min(alone.by_docdelta),
        "processor seconds": {**used, "embedding alone": min(alone.processor)},
    }


@dataclass
class Alone:
    """Embedding the texts of all documents with nothing else, as often as `measure` is called. Figures are seconds."""

    embedder: Embedder
    groups: list[list[str]]
    by_fastembed: list[float] = field(default_factory=list)
    by_docdelta: list[float] = field(default_factory=list)
    processor: list[float] = field(default_factory=list)
    """Processor seconds of `by_docdelta`."""

    async def measure(self) -> None:
        """Embed all texts in both ways."""
        size = WorkerSettings().batch_documents
        began, processor = time.perf_counter(), time.process_time()
        for start in range(0, len(self.groups), size):
            await self.embedder.embed([text for group in self.groups[start : start + size] for text in group])
        self.by_docdelta.append(time.perf_counter() - began)
        self.processor.append(time.process_time() - processor)
        model = TextEmbedding(self.embedder.model, specific_model_path=str(offline_model_directory()))
        began = time.perf_counter()
        await asyncio.to_thread(lambda: list(model.embed([text for group in self.groups for text in group])))
        self.by_fastembed.append(time.perf_counter() - began)


async def _built(stack: EmbeddedStack, receipts: ReceiptBook, changes: list[DocumentChange]) -> tuple[float, int]:
    """Send changes; return the seconds until the last receipt, and how many texts were embedded."""
    topic = stack.settings.topics.documents
    records = [OutRecord(topic, document_key(c.tenant_id, c.document_id), encode(c)) for c in changes]
    began = time.perf_counter()
    await asyncio.to_thread(produce_all, stack.settings.kafka, records)
    outcomes = await receipts.of([change.event_id for change in changes])
    return time.perf_counter() - began, sum(outcome.embedded for outcome in outcomes)


def _others(count: int) -> list[tuple[str, int]]:
    return [(f"other{number:06}", 1_000_000 + number) for number in range(count)]


def _processors() -> dict[str, float]:
    """Return the processor seconds used so far by the process with the worker, by its parsers, and by the broker."""
    used = {"worker": time.process_time(), "parsers": 0.0, "broker": 0.0}
    for child in _descendants(os.getpid()):
        with suppress(FileNotFoundError):
            used["broker" if b"java" in Path(f"/proc/{child}/cmdline").read_bytes() else "parsers"] += processor_seconds(child)
    return used


def _descendants(process: int) -> list[int]:
    found = [int(child) for file in Path(f"/proc/{process}/task").glob("*/children") for child in file.read_text().split()]
    return found + [each for child in found for each in _descendants(child)]


def _embed_texts(policy: ChunkPolicy, texts: dict[str, str]) -> list[list[str]]:
    """Return the texts that each document's chunks embed."""
    tokens = counter(policy.limits.tokenizer)
    groups = []
    for name, text in texts.items():
        document = parse_document(text, "text/markdown")
        chunks = chunk(document, Provenance(DocumentKey("acme", name), 1, document.title), policy, tokens)
        groups.append(list({each.embed_hash: each.embed_text for each in chunks}.values()))
    return groups
