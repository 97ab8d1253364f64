"""Rig: the production worker as processes, on a real broker, against an index over REST, and the oracle to hold it against."""

from __future__ import annotations

import asyncio
import json
import os
import subprocess
import sys
import time
from collections.abc import AsyncIterator, Callable, Iterable, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from chunking.chunker import Provenance, chunk
from chunking.document import DocumentKey
from chunking.parsers import parse_document
from chunking.policy import ChunkPolicy, load_policy
from chunking.tokens import counter
from schemas.codec import decode, encode
from schemas.dead_letter import DeadLetter
from schemas.document_change import Content, DocumentChange
from schemas.receipt import Receipt
from schemas.record import document_key
from streams.batches.record import batch_record
from streams.embedders import open_embedder
from streams.kafka.offsets import group_lag
from streams.kafka.produce import OutRecord, produce_all
from streams.kafka.read import read_topic
from streams.lanes.choice import Lane, topic_of
from streams.settings import EmbedderSettings, KafkaSettings, QdrantSettings, Settings
from streams.worker import utc_now
from tests.contracts.qdrant_shim import Shim, running_shim
from tests.support.patience import PATIENCE

POLICY = """
name: stack
version: 1
rules: [{use: structure}]
limits: {max_tokens: 120}
embedding: {model: hashing-v1, dimensions: 64}
payload: {attributes: [owner]}
"""
HASHING = EmbedderSettings(kind="hashing")
STARTS = '"worker starts"'
"""What a worker logs first."""
COMMAND_SECONDS = 600.0
PLACEMENT = ("revision", "order_key", "payload_hash")
"""Payload fields that a rebuild may give otherwise."""
PARTITIONS = 4


def upsert(document: str, revision: int, text: str, tenant: str = "acme", **more: Any) -> DocumentChange:
    """Return an upsert whose event id is unique to tenant, document and revision."""
    return DocumentChange(
        tenant_id=tenant,
        document_id=document,
        revision=revision,
        op="upsert",
        content=Content(text=text),
        event_id=more.pop("event_id", f"{tenant}/{document}@{revision}"),
        **more,
    )


def delete(document: str, revision: int, tenant: str = "acme") -> DocumentChange:
    """Return a delete."""
    return DocumentChange(
        tenant_id=tenant, document_id=document, revision=revision, op="delete", event_id=f"{tenant}/{document}@{revision}"
    )


def a_page(name: str, sections: int = 4, edit: str = "") -> str:
    """Return a Markdown page with a few sections, each long enough for a chunk of its own."""
    parts = [f"# Page {name}\n"]
    for number in range(sections):
        words = f"Section {number} of {name} tells what the depot does on day {number}. " * 6
        parts.append(f"## Part {number}\n\n{words}\n\n第{number}节说明了{name}仓库当天的安排，值班员每两小时巡查一次。\n")
    text = "\n".join(parts)
    return text.replace("Section 1 ", f"Section 1{edit} ", 1)


@dataclass
class Rig:
    """One installation for one test. `live`: the newest document of each key, as a clean rebuild would find it."""

    kafka: KafkaSettings
    shim: Shim
    folder: Path
    policy: ChunkPolicy = field(default_factory=lambda: load_policy(POLICY))
    first_policy: str = POLICY
    """YAML of the policy that `init` begins with; `policy` is the one whose collection is looked at."""
    embedder: EmbedderSettings = HASHING
    least_cosine: float = 1 - 1e-9
    """Between a stored vector and one made anew. A quantised model's vectors depend a little on what is embedded with them."""
    workers: dict[str, subprocess.Popen[bytes]] = field(default_factory=dict)
    program: tuple[str, ...] = ("-m", "streams.cli")
    """What a worker's Python runs."""
    _starts: dict[str, int] = field(default_factory=dict)
    """How often each worker has started once its newest process has."""

    @property
    def settings(self) -> Settings:
        """Settings that reach broker and index from this process."""
        return Settings(kafka=self.kafka, qdrant=QdrantSettings(url=self.shim.url), embedder=self.embedder)

    @property
    def collection(self) -> str:
        """The one batch's collection."""
        return self.policy.batch_id

    @property
    def environment(self) -> dict[str, str]:
        """Environment of a command or worker of this installation."""
        own = {
            "DOCDELTA_KAFKA__BOOTSTRAP_SERVERS": self.kafka.bootstrap_servers,
            "DOCDELTA_KAFKA__TOPIC_PREFIX": self.kafka.topic_prefix,
            "DOCDELTA_KAFKA__PARTITIONS": str(PARTITIONS),
            "DOCDELTA_KAFKA__SINGLE_RECORD_BATCHES": str(self.kafka.single_record_batches).lower(),
            "DOCDELTA_KAFKA__SESSION_TIMEOUT_SECONDS": "6",
            "DOCDELTA_KAFKA__HEARTBEAT_SECONDS": "1",
            "DOCDELTA_KAFKA__REBALANCE_TIMEOUT_SECONDS": "10",
            "DOCDELTA_QDRANT__URL": self.shim.url,
            "DOCDELTA_EMBEDDER__KIND": self.embedder.kind,
            "DOCDELTA_EMBEDDER__DIRECTORIES": json.dumps({name: str(path) for name, path in self.embedder.directories.items()}),
            "DOCDELTA_PARSER__PROCESSES": "1",
            "DOCDELTA_WORKER__DRAIN_SECONDS": "20",  # a machine may be slow; a stop ends as soon as it can
            "DOCDELTA_WORKER__HANDOVER_GRACE_SECONDS": "3",  # short, so that re-checks fall among everything else
            "DOCDELTA_WORKER__METRICS_PORT": "0",
            "DOCDELTA_AUDIT__EVERY_SECONDS": "600",  # its reads would meet faults that are scripted for others
            "DOCDELTA_LOG_FORMAT": "json",
        }
        return {**os.environ, **own}

    async def docdelta(self, *arguments: str, **environment: str) -> subprocess.CompletedProcess[str]:
        """Run a command of this installation to its end."""
        command = [sys.executable, "-m", "streams.cli", *arguments]
        return await asyncio.to_thread(
            subprocess.run,
            command,
            env={**self.environment, **environment},
            cwd=self.folder,
            capture_output=True,
            text=True,
            timeout=COMMAND_SECONDS,
            check=False,
        )

    async def init(self) -> None:
        """Create topics and the first batch, as an operator does."""
        (self.folder / "policy.yaml").write_text(self.first_policy, encoding="utf-8")
        done = await self.docdelta("init", "--policy", "policy.yaml")
        assert done.returncode == 0, done.stderr

    def start(self, name: str = "one", only: str = "", **environment: str) -> subprocess.Popen[bytes]:
        """Start a worker process, of everything or of `only` one part; its log is `<name>.log`."""
        log = (self.folder / f"{name}.log").open("ab")
        self._starts[name] = self.log(name).count(STARTS) + 1
        state = {"DOCDELTA_WORKER__STATE_DIR": str(self.folder / f"state-{name}")}
        self.workers[name] = subprocess.Popen(
            [sys.executable, *self.program, "worker", *(["--only", only] if only else [])],
            env={**self.environment, **state, **environment},
            cwd=self.folder,
            stdout=log,
            stderr=log,
        )
        log.close()
        return self.workers[name]

    def log(self, name: str = "one") -> str:
        """Return what a worker said."""
        return (self.folder / f"{name}.log").read_text(encoding="utf-8", errors="replace")

    async def stop(self, name: str = "one") -> int:
        """SIGTERM a worker, once it runs at all, and return its exit code: 0 when all was drained and committed in its time."""
        worker = self.workers[name]
        deadline = time.monotonic() + PATIENCE
        while self.log(name).count(STARTS) < self._starts.get(name, 1) and worker.poll() is None:
            assert time.monotonic() < deadline, f"worker {name} does not start:\n{self.log(name)[-3000:]}"
            await asyncio.sleep(0.05)
        worker.terminate()
        return await asyncio.to_thread(worker.wait, PATIENCE)

    def end(self) -> None:
        """Kill what still runs."""
        for worker in self.workers.values():
            if worker.poll() is None:
                worker.kill()
                worker.wait()

    async def send(self, *changes: DocumentChange, lane: Lane = "live") -> None:
        """Produce changes and await the broker."""
        topic = topic_of(lane, self.settings.topics)
        records = [OutRecord(topic, document_key(c.tenant_id, c.document_id), encode(c)) for c in changes]
        await asyncio.to_thread(produce_all, self.kafka, records)

    async def send_raw(self, *pairs: tuple[bytes | None, bytes | None], topic: str = "") -> None:
        """Produce records as they are, to [documents] unless told otherwise."""
        topic = topic or self.settings.topics.documents
        await asyncio.to_thread(produce_all, self.kafka, [OutRecord(topic, key, value) for key, value in pairs])

    async def receipts(self) -> list[Receipt]:
        """Return every receipt so far, in order within each document."""
        return [decode(value, Receipt) for value in await self._values(self.settings.topics.receipts)]

    async def receipts_when(self, enough: Callable[[list[Receipt]], bool]) -> list[Receipt]:
        """Return the receipts as soon as they are enough."""
        deadline = time.monotonic() + PATIENCE
        while not enough(receipts := await self.receipts()):
            assert time.monotonic() < deadline, f"{len(receipts)} receipts are not enough"
            await asyncio.sleep(0.2)
        return receipts

    async def dead_letters(self) -> list[DeadLetter]:
        """Return every dead letter so far."""
        return [decode(value, DeadLetter) for value in await self._values(self.settings.topics.dead_letters)]

    async def _values(self, topic: str) -> list[bytes]:
        records = await asyncio.to_thread(lambda: list(read_topic(self.kafka, topic)))
        return [record.value for record in records if record.value is not None]

    async def outcomes(self, event_ids: Iterable[str]) -> dict[str, Receipt]:
        """Wait until each event has an outcome, and return the first receipt of each."""
        wanted = set(event_ids)
        deadline = time.monotonic() + PATIENCE
        while True:
            first: dict[str, Receipt] = {}
            for receipt in await self.receipts():
                first.setdefault(receipt.event_id, receipt)
            if wanted <= first.keys():
                return {event: first[event] for event in wanted}
            for name, worker in self.workers.items():
                assert worker.poll() is None or worker.returncode in (0, -9), f"worker {name} fell:\n{self.log(name)[-4000:]}"
            assert time.monotonic() < deadline, f"no outcome of {sorted(wanted - first.keys())[:5]}\n" + "\n".join(
                self.log(name)[-3000:] for name in self.workers
            )
            await asyncio.sleep(0.2)

    async def put(self, *changes: DocumentChange) -> dict[str, Receipt]:
        """Send changes and wait for their outcomes."""
        await self.send(*changes)
        return await self.outcomes(change.event_id for change in changes)

    async def points(self) -> dict[str, Mapping[str, Any]]:
        """Return the payload of every point, by chunk id."""
        found = {}
        async for page in self.shim.index.scan(self.collection):
            found |= {point.chunk_id: point.payload for point in page}
        return found

    async def check(self, newest: Iterable[DocumentChange]) -> None:
        """Hold the collection against a clean rebuild of `newest`: ids, payloads, order, vectors; nothing more, nothing less.

        All must have its outcome. What is owed after a death may be cleared by a record behind that of the last outcome, so what
        is wrong at once must be right when the logs are drained.
        """
        newest = list(newest)
        try:
            await self._compare(newest)
        except AssertionError:
            if all(worker.poll() is not None for worker in self.workers.values()):
                raise
            await self.drained()
            await self._compare(newest)

    async def drained(self) -> None:
        """Wait until nothing stands before the stages: all is committed."""
        topics, batch = self.settings.topics, self.policy.batch_id
        groups = {topics.parser_group: [topics.documents], topics.batch_group(batch): [topics.parsed, topics.changes(batch)]}
        deadline = time.monotonic() + PATIENCE
        while True:
            asked = [asyncio.to_thread(group_lag, self.kafka, group, names) for group, names in groups.items()]
            places = [place for each in await asyncio.gather(*asked) for place in each]
            if not sum(place.lag for place in places):
                return
            assert time.monotonic() < deadline, f"never drained: {[place for place in places if place.lag]}"
            await asyncio.sleep(0.2)

    async def _compare(self, newest: Iterable[DocumentChange]) -> None:
        held = await self.points()
        expected: dict[str, Mapping[str, Any]] = {}
        texts: dict[str, str] = {}
        for change in newest:
            if change.op == "delete":
                continue
            made = self._rebuilt(change)
            expected |= {each.chunk_id: each.payload for each in made}
            texts |= {each.chunk_id: each.embed_text for each in made}
            order = [held[each.chunk_id]["order_key"] for each in made if each.chunk_id in held]
            assert order == sorted(set(order)), f"order of {change.document_id}"
        places = {chunk_id: f"{p['tenant_id']}/{p['document_id']}@{p['revision']}" for chunk_id, p in held.items()}
        over, missing = held.keys() - expected.keys(), expected.keys() - held.keys()
        assert not over | missing, f"{[places[each] for each in over]} left over, {len(missing)} missing"
        for chunk_id, payload in expected.items():
            stored = {name: value for name, value in held[chunk_id].items() if name not in PLACEMENT}
            assert stored == dict(payload), chunk_id
        await self._check_vectors(texts)

    async def _check_vectors(self, texts: Mapping[str, str]) -> None:
        if not texts:
            return
        stored = await self.shim.index.retrieve(self.collection, list(texts), with_vectors=True)
        fresh = await open_embedder(self.embedder, self.policy.embedding).embed(list(texts.values()))
        for chunk_id, vector in zip(texts, fresh, strict=True):
            found = stored[chunk_id].vector
            assert found is not None
            one, other = np.asarray(found, np.float64), np.asarray(vector, np.float64)
            assert one @ other / np.linalg.norm(one) / np.linalg.norm(other) >= self.least_cosine, chunk_id

    def _rebuilt(self, change: DocumentChange) -> Any:
        assert change.content is not None
        assert change.content.text is not None
        document = parse_document(
            change.content.text,
            change.media_type,
            title=change.title,
            language=change.language,
            kind=change.kind,
            labels=change.labels,
        )
        provenance = Provenance(
            DocumentKey(change.tenant_id, change.document_id),
            change.revision,
            change.title or document.title,
            change.source_uri,
            change.acl,
            change.attributes,
        )
        return chunk(document, provenance, self.policy, counter(self.policy.limits.tokenizer))


@asynccontextmanager
async def rig(
    kafka: KafkaSettings,
    folder: Path,
    prefix: str,
    prepare: bool = True,
    policy: str = POLICY,
    embedder: EmbedderSettings = HASHING,
) -> AsyncIterator[Rig]:
    """Give an installation of its own (topic prefix) and end its workers."""
    own = kafka.model_copy(update={"topic_prefix": prefix, "partitions": PARTITIONS})
    async with running_shim() as shim:
        made = Rig(own, shim, folder, load_policy(policy), policy, embedder)
        assert batch_record(made.policy, policy, "active", "docdelta", utc_now()).collection == made.collection
        try:
            if prepare:
                await made.init()
            yield made
        finally:
            made.end()
