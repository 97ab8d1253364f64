"""BatchRecord: the policy of a batch and where it stands in its life."""

from __future__ import annotations

from typing import ClassVar, Literal

from pydantic import AwareDatetime, Field

from schemas.record import Frozen, Record

BatchState = Literal["proposed", "building", "ready", "active", "warm", "retired"]
LIVE_STATES: frozenset[BatchState] = frozenset({"building", "ready", "active", "warm"})
"""A worker runs a batch app for a batch in one of these states."""


class EmbeddingRecord(Frozen):
    """What made the vectors of a batch. Two batches may share vectors only where all of it is equal."""

    model: str
    dimensions: int = Field(gt=0)
    distance: Literal["cosine", "dot", "euclid"] = "cosine"
    document_prefix: str = ""
    query_prefix: str = ""


class BatchRecord(Record):
    """One batch. `batch` is ``<policy>-v<version>-<fingerprint 8>``; `policy_yaml` is the policy's text as it was given."""

    record_name: ClassVar[str] = "batch"

    batch: str = Field(pattern=r"^[a-z0-9][a-z0-9.-]{0,79}$")
    state: BatchState
    policy_yaml: str
    policy_fingerprint: str
    collection: str
    embedding: EmbeddingRecord
    alias: str
    created_at: AwareDatetime
    updated_at: AwareDatetime
    note: str = ""
