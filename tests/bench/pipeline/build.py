"""A full build with the offline model (USE): total time against embedding the same texts with nothing else, on the same cores.

Everything in one process (EmbeddedStack: the index is reached without HTTP) on Apache Kafka, with the policy that `docdelta init`
gives. The texts are embedded alone before and after the build, in the worker's own groups; the faster of the two counts. Twice:
pages of 4 kB, and a tenth as many ten times as long, where what each document costs beside its embedding counts less.
"""

from __future__ import annotations

import asyncio
import tempfile
import time
from pathlib import Path
from typing import Any

from chunking.chunker import Provenance, chunk
from chunking.document import DocumentKey
from chunking.parsers import parse_document
from chunking.policy import ChunkPolicy, load_policy
from chunking.tokens import counter
from schemas.codec import encode
from schemas.record import document_key
from streams.embedded.stack import EmbeddedStack, ReceiptBook
from streams.embedders import open_embedder
from streams.kafka.produce import OutRecord, produce_all
from streams.settings import EmbedderSettings, Settings, WorkerSettings
from tests.bench.pipeline.installation import first_revisions
from tests.bench.pipeline.pages import pages

POLICY_FILE = Path(__file__).resolve().parents[3] / "deploy" / "policies" / "default.yaml"


SHORT, LONG = 4_096, 40_960
"""Characters a page."""


async def measure(documents: int) -> dict[str, Any]:
    """Return seconds of the build, of embedding alone, and their ratio: for short pages, and for long ones of as much text."""
    return {
        "short pages": await _measure(documents, SHORT),
        "long pages": await _measure(max(1, documents * SHORT // LONG), LONG),
        "target": "ratio <= 1.10",
    }


async def _measure(documents: int, characters: int) -> dict[str, Any]:
    text = POLICY_FILE.read_text(encoding="utf-8")
    policy = load_policy(text)
    changes = first_revisions(pages(documents, characters))
    groups = _embed_texts(policy, {change.document_id: change.content.text for change in changes if change.content})
    settings = Settings(embedder=EmbedderSettings(kind="fastembed"))
    embedder = await asyncio.to_thread(open_embedder, settings.embedder, policy.embedding)
    size = WorkerSettings().batch_documents

    async def embed_alone() -> tuple[float, float]:
        began, cpu = time.perf_counter(), time.process_time()
        for start in range(0, len(groups), size):
            await embedder.embed([text for group in groups[start : start + size] for text in group])
        return time.perf_counter() - began, time.process_time() - cpu

    with tempfile.TemporaryDirectory(prefix="docdelta-bench-") as folder:
        async with EmbeddedStack(Path(folder), policy, text, settings, "apache") as stack, ReceiptBook(stack) as receipts:
            before = await embed_alone()
            records = [
                OutRecord(stack.settings.topics.documents, document_key(c.tenant_id, c.document_id), encode(c)) for c in changes
            ]
            began, cpu = time.perf_counter(), time.process_time()
            await asyncio.to_thread(produce_all, stack.settings.kafka, records)
            outcomes = await receipts.of([change.event_id for change in changes])
            total, total_cpu = time.perf_counter() - began, time.process_time() - cpu
            after = await embed_alone()
    embedded = sum(outcome.embedded for outcome in outcomes)
    texts = sum(map(len, groups))
    assert embedded == texts, (embedded, texts)
    alone = min(before, after)
    return {
        "documents": documents,
        "characters a page": characters,
        "texts": texts,
        "seconds": total,
        "embedding_alone_seconds": [before[0], after[0]],
        "texts_per_second": texts / total,
        "ratio": total / alone[0],
        "processor_ratio": total_cpu / alone[1],
    }


def _embed_texts(policy: ChunkPolicy, texts: dict[str, str]) -> list[list[str]]:
    """Return the texts that each document's chunks embed."""
    tokens = counter(policy.limits.tokenizer)
    groups = []
    for name, text in texts.items():
        document = parse_document(text, "text/markdown")
        chunks = chunk(document, Provenance(DocumentKey("acme", name), 1, document.title), policy, tokens)
        groups.append(list({each.embed_hash: each.embed_text for each in chunks}.values()))
    return groups
