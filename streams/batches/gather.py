"""Evidence for the gate: reads offsets, manifests, receipts, dead letters and the index. Changes nothing."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Awaitable, Callable, Mapping
from datetime import UTC, datetime
from functools import partial

from schemas.batch import BatchRecord, LaunchRecord
from streams.batches.done import standing
from streams.batches.evidence import Agreement, Planned, agree, planned_of
from streams.batches.gate import Evidence, Recall
from streams.batches.outcomes import Outcomes, strays
from streams.batches.record import collection_spec, policy_of
from streams.controls.standing import read_held
from streams.kafka.admin import group_lag
from streams.kafka.offsets import end_offsets
from streams.kafka.read import read_span, read_topic
from streams.ports import Query, Readiness, StoredPoint, VectorIndex
from streams.settings import Settings

PROBES = 8
_PROBE_TRIES = 4
_PROBE_HITS = 10
_NO_COLLECTION = Readiness(False, "there is no collection yet")

Compare = Callable[[BatchRecord, BatchRecord], Awaitable[Recall]]
"""(green, blue) to their recall on golden questions."""


def read_planned(settings: Settings, batch: str) -> dict[bytes, Planned]:
    """Return the manifests of a batch, read from the changelog of its table."""
    topics = settings.topics
    return planned_of(read_topic(settings.kafka, topics.changelog(topics.batch_group(batch), topics.manifests_table)))


def note_launch(settings: Settings, served: BatchRecord) -> LaunchRecord:
    """Return what stands now, for a build that is about to begin."""
    topics = settings.topics
    ends = end_offsets(settings.kafka, [topics.parsed, topics.receipts, topics.dead_letters])
    planned = read_planned(settings, served.batch)

    def of(topic: str) -> dict[int, int]:
        return {partition: end for (name, partition), end in sorted(ends.items()) if name == topic}

    return LaunchRecord(
        at=datetime.now(UTC),
        parsed=of(topics.parsed),
        receipts=of(topics.receipts),
        dead_letters=of(topics.dead_letters),
        documents=sum(not document.deleted for document in planned.values()),
        chunks=sum(document.digest.chunks for document in planned.values()),
    )


async def gather(
    settings: Settings, index: VectorIndex, batch: BatchRecord, served: BatchRecord | None, compare: Compare | None = None
) -> Evidence:
    """Return the evidence about a batch. `served`: the batch that readers see; `compare` where golden questions are given."""
    topics, launch = settings.topics, batch.launch
    spec = await index.collection_spec(batch.collection)
    manifests = partial(asyncio.to_thread, read_planned, settings, batch.batch)
    places = [topics.parsed, topics.changes(batch.batch)]
    lag = partial(group_lag, settings.kafka, topics.batch_group(batch.batch), places)
    behind_before = sum(each.lag for each in await asyncio.to_thread(lag))
    agreement = await agree(manifests, index, batch.collection, asyncio.sleep) if spec is not None else Agreement()
    unknown: tuple[str, ...] = ()
    if served is not None and served.batch != batch.batch:
        unknown = _unknown(await asyncio.to_thread(read_planned, settings, served.batch), agreement.planned)
    outcomes = Outcomes(batch.batch)
    for record in await asyncio.to_thread(
        lambda: list(read_topic(settings.kafka, topics.receipts, begin=launch.receipts if launch else None))
    ):
        outcomes.take(record)
    letters = await asyncio.to_thread(
        lambda: strays(read_topic(settings.kafka, topics.dead_letters, begin=launch.dead_letters if launch else None), batch.batch)
    )
    held = {key.decode("utf-8", "replace"): each.change.why for key, each in (await asyncio.to_thread(read_held, settings)).items()}
    probes, missed = await probe(index, batch.collection, agreement) if spec is not None else (0, ())
    recall = None
    if compare is not None and served is not None and spec is not None:
        recall = await compare(batch, served)
    offsets = await asyncio.to_thread(lag)
    done = await asyncio.to_thread(standing, offsets, outcomes, topics.parsed, partial(read_span, settings.kafka))
    return Evidence(
        batch=batch,
        offsets=tuple(done),
        behind_before=behind_before,
        uncommitted=sum(each.lag for each in offsets) - sum(each.lag for each in done),
        parsed_topic=topics.parsed,
        agreement=agreement,
        unknown=unknown,
        refused=outcomes.of("dead_lettered"),
        held=held,
        stray_letters=letters,
        readiness=await index.readiness(batch.collection) if spec is not None else _NO_COLLECTION,
        spec=spec,
        wanted_spec=collection_spec(batch, policy_of(batch)),
        probes=probes,
        missed_probes=missed,
        recall=recall,
    )


def _unknown(blue: Mapping[bytes, Planned], green: Mapping[bytes, Planned]) -> tuple[str, ...]:
    missing = (key for key, document in blue.items() if not document.deleted and key not in green)
    return tuple(sorted(key.decode("utf-8", "replace") for key in missing))


async def probe(
    index: VectorIndex, collection: str, agreement: Agreement, dice: random.Random | None = None
) -> tuple[int, tuple[str, ...]]:
    """Return how many stored chunks were looked for by their own vector, and those not found.

    Tried a few times: a query can miss a point for a moment while the server optimises.
    """
    dice = dice or random.Random(0)
    keys = sorted(key for key, document in agreement.planned.items() if document.digest.chunks)
    asked, missed = 0, []
    for key in dice.sample(keys, min(PROBES, len(keys))):
        tenant, _, document = key.decode("utf-8").partition("/")
        points = await index.document_points(collection, tenant, document)
        with_vectors = await index.retrieve(collection, [point.chunk_id for point in points[:3]], with_vectors=True)
        found = next((point for point in with_vectors.values() if point.vector is not None), None)
        if found is None:
            continue
        asked += 1
        if not await _found(index, collection, tenant, found):
            missed.append(f"{tenant}/{document} {found.chunk_id}")
    return asked, tuple(missed)


async def _found(index: VectorIndex, collection: str, tenant: str, point: StoredPoint) -> bool:
    assert point.vector is not None
    for attempt in range(_PROBE_TRIES):
        hits = await index.search(collection, Query(tenant, point.vector, limit=_PROBE_HITS))
        if any(hit.chunk_id == point.chunk_id for hit in hits):
            return True
        # Passages of equal words in many documents crowd each other out of a short list; equal embed_hash is as good.
        if any(hit.payload.get("embed_hash") == point.payload.get("embed_hash") for hit in hits):
            return True
        await asyncio.sleep(0.2 * 2**attempt)
    return False
