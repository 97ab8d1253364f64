"""BatchRecord: the policy of a batch and where it stands in its life."""

from __future__ import annotations

from typing import ClassVar, Literal

from pydantic import AwareDatetime, Field

from schemas.record import Frozen, Record

BatchState = Literal["proposed", "building", "ready", "active", "warm", "retired"]
LIVE_STATES: frozenset[BatchState] = frozenset({"building", "ready", "active", "warm"})
"""A worker runs a batch app for a batch in one of these states."""
BUILD_STATES: frozenset[BatchState] = frozenset({"building", "ready"})
"""Live, and nobody is served from it yet."""


class EmbeddingRecord(Frozen):
    """What made the vectors of a batch. Two batches may share vectors only where all of it is equal."""

    model: str
    dimensions: int = Field(gt=0)
    distance: Literal["cosine", "dot", "euclid"] = "cosine"
    document_prefix: str = ""
    query_prefix: str = ""


class LaunchRecord(Frozen):
    """What stood when a build began: the gate measures against it, so that a busy site can still switch. Offsets by partition."""

    at: AwareDatetime
    parsed: dict[int, int] = Field(default_factory=dict)
    """End offsets of [parsed]."""
    receipts: dict[int, int] = Field(default_factory=dict)
    dead_letters: dict[int, int] = Field(default_factory=dict)
    documents: int = 0
    """Live documents of the batch that was served."""
    chunks: int = 0


class BatchRecord(Record):
    """One batch. `batch` is ``<policy>-v<version>-<fingerprint 8>``, with ``.2`` and so on where the name was used before;
    `policy_yaml` is the policy's text as it was given.

    Records of [batches] are claims (streams/batches/ledger.py): one that names in `after` an offset behind the newest claim that
    holds was written without knowing that one, and does not hold.
    """

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
    after: int | None = None
    """Offset of the newest record of [batches] that the writer knew; -1: it knew of none. None: holds in any case."""
    claim: str = ""
    """Names this record, so that its writer can tell whether it holds."""
    by: str = ""
    """Who wrote it: user, host, process."""
    replaces: str = ""
    """Batch that was served before this one: where `docdelta rollback` goes."""
    warm_since: AwareDatetime | None = None
    """When another batch took over: the grace period before `retire` runs from here."""
    launch: LaunchRecord | None = None
    parsers: tuple[str, ...] = ()
    """Parsers that its documents went through (``markdown/1``). Empty: an earlier release did not note them."""
    build_rate: float | None = Field(default=None, gt=0)
    """Documents a second that one worker may take while the batch is built. None: as fast as live work lets it."""
