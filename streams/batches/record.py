"""A policy becomes a BatchRecord: the one place that names a batch, its collection and its embedding."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from difflib import unified_diff

from chunking.policy import ChunkPolicy, load_policy
from schemas.batch import BatchRecord, BatchState, EmbeddingRecord
from streams.batches.parser_versions import running_parsers
from streams.errors import InvariantBroken, NotPrepared
from streams.ports import CollectionSpec


def batch_record(
    policy: ChunkPolicy, policy_yaml: str, state: BatchState, alias: str, now: datetime, note: str = "", generation: int = 1
) -> BatchRecord:
    """Return the record of a batch of `policy`. The collection carries the batch's own name and is never reused: a policy that
    comes back after its batch was retired is generation 2, and its names end in ``.2``."""
    embedding = policy.embedding
    name = policy.batch_id if generation == 1 else f"{policy.batch_id}.{generation}"
    return BatchRecord(
        batch=name,
        state=state,
        policy_yaml=policy_yaml,
        policy_fingerprint=policy.fingerprint,
        collection=name,
        embedding=EmbeddingRecord(
            model=embedding.model,
            dimensions=embedding.dimensions,
            distance=embedding.distance,
            document_prefix=embedding.document_prefix,
            query_prefix=embedding.query_prefix,
        ),
        alias=alias,
        created_at=now,
        updated_at=now,
        note=note,
        parsers=running_parsers(),
    )


def base_name(batch: BatchRecord) -> str:
    """Return the batch id without its generation."""
    return batch.batch.partition(".")[0]


def _stem(batch: BatchRecord) -> str:
    """Return policy and version of a batch: they stand for one content for ever."""
    return batch.batch.rsplit("-", 1)[0]


def generation_of(wanted: BatchRecord, existing: Sequence[BatchRecord]) -> int:
    """Return how often the names of `wanted` were used before, plus one: collections, groups and topics never get a used name."""
    return 1 + sum(base_name(batch) == base_name(wanted) for batch in existing)


def refuse_other_content(wanted: BatchRecord, existing: Sequence[BatchRecord]) -> None:
    """Raise NotPrepared, with the difference, when the policy's name and version already stand for other content."""
    for batch in existing:
        if _stem(batch) != _stem(wanted) or batch.policy_fingerprint == wanted.policy_fingerprint:
            continue
        before, after = batch.policy_yaml.splitlines(), wanted.policy_yaml.splitlines()
        names = (f"{batch.batch} ({batch.state})", "this file")
        words = "\n".join(unified_diff(before, after, *names, lineterm="", n=1))
        raise NotPrepared(
            f"{_stem(wanted)} already stands for other content; raise the policy's version and roll it out\n"
            + (words or "the text is the same: this release cuts otherwise than the one that built it")
        )


def policy_of(batch: BatchRecord) -> ChunkPolicy:
    """Return the policy of a batch. InvariantBroken when this release reads another fingerprint from the same text."""
    policy = policy_as_read_here(batch)
    if policy.fingerprint != batch.policy_fingerprint:
        raise InvariantBroken(
            "this release cuts documents otherwise than the batch was built (strategy or option defaults changed): leave the batch "
            "to workers of the release that built it, and roll the policy out as a new version from this one (README: Upgrade)",
            batch=batch.batch,
            built=batch.policy_fingerprint[:8],
            here=policy.fingerprint[:8],
        )
    return policy


def policy_as_read_here(batch: BatchRecord) -> ChunkPolicy:
    """Return the policy of a batch as this release reads it; where `policy_of` refuses it, it cuts otherwise than the batch was."""
    return load_policy(batch.policy_yaml, f"batch {batch.batch}")


def collection_spec(batch: BatchRecord, policy: ChunkPolicy) -> CollectionSpec:
    """Return what the batch's collection must say of itself."""
    return CollectionSpec(
        batch=batch.batch,
        policy_fingerprint=batch.policy_fingerprint,
        embedding_spec=policy.embedding.spec,
        dimensions=policy.embedding.dimensions,
        distance=policy.embedding.distance,
        sparse_spec=policy.sparse.spec if policy.sparse else "",
    )


@dataclass(frozen=True, slots=True)
class InitPlan:
    """What `docdelta init` does: nothing (`record` None, with a reason) or write one record."""

    record: BatchRecord | None
    reason: str


def plan_init(wanted: BatchRecord, existing: Sequence[BatchRecord]) -> InitPlan:
    """Return the plan of a first batch. NotPrepared when its name and version stand for other content, or another one is served."""
    for batch in existing:
        if batch.policy_fingerprint == wanted.policy_fingerprint and batch.state != "retired":
            return InitPlan(None, f"batch {batch.batch} is already {batch.state}; nothing to do")
    refuse_other_content(wanted, existing)
    served = [batch.batch for batch in existing if batch.state == "active"]
    if served:
        raise NotPrepared(f"batch {served[0]} is already served; a further policy is rolled out, not initialised")
    if (generation := generation_of(wanted, existing)) > 1:
        name = f"{base_name(wanted)}.{generation}"
        wanted = wanted.model_copy(update={"batch": name, "collection": name})
    return InitPlan(wanted, f"batch {wanted.batch} becomes the first one")
