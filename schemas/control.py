"""Control: one thing that every worker follows: a pause of a tenant or a stage, a breaker that tripped, a decision on it.

And one that they only tell: a build that a worker can't host."""

from __future__ import annotations

from typing import ClassVar, Literal

from pydantic import AwareDatetime, Field

from schemas.record import Frozen, Record, TenantId

Verdict = Literal["approve", "reject"]
Counted = Literal["deletes", "changes"]
"""What a breaker counted and holds: deletes; or changes of documents that are there, deletes included."""


class Figures(Frozen):
    """What was counted when a breaker tripped, over the partitions that the worker owned."""

    counted: int = Field(ge=0)
    """Documents that went (or changed) within the window, the one that tripped it included."""
    documents: int = Field(ge=0)
    """Documents that were there before."""
    window_seconds: float
    partitions: int = 1
    """Partitions that were counted; a tenant's other documents are in the rest."""

    @property
    def share(self) -> float:
        """Counted documents of those that were there, 0 to 1."""
        return self.counted / self.documents if self.documents else 0.0


class Decision(Frozen):
    """What a person decided of a tenant's held events. It covers what stood in [documents] before `ends` or waited in [bulk] before
    `bulk_ends`, and nothing after it; nor anything in a topic of the same name that was made anew since."""

    id: str = Field(min_length=1, max_length=64)
    verdict: Verdict
    what: Counted = "deletes"
    """What was held, and so is decided."""
    ends: dict[int, int]
    """End offsets of [documents] by partition when it was decided."""
    bulk_ends: dict[int, int] = Field(default_factory=dict)
    """The same of [bulk]."""
    topic_id: str = ""
    """Id of the topic [documents] that `ends` are offsets of; empty: the broker did not tell."""
    bulk_topic_id: str = ""
    """The same of [bulk]."""
    at: AwareDatetime
    by: str = ""
    reason: str = ""


class Control(Record):
    """A record of [controls]; a tombstone takes it back. `key` is the Kafka key, so that the last word on each thing is kept:

    ``pause/tenant/<tenant>``, ``pause/stage/parser``, ``pause/stage/batch:<id>``  paused
    ``breaker/<tenant>/<partition>``  tripped by the worker that owns the partition, its only writer
    ``breaker/<tenant>``              what was decided, newest last
    ``refused/batch:<id>/<worker>``   a build that a worker tried to host and can't; the worker, its only writer, takes it back

    A breaker is open while a tripping of its tenant names in `decision` the newest decision there is: one that was written without
    knowing it does not count. Fold with `streams.controls.state.Controls`.
    """

    record_name: ClassVar[str] = "control"

    kind: Literal["pause", "tripped", "decided", "refused"]
    at: AwareDatetime
    tenant_id: TenantId | None = None
    stage: str = ""
    """Of a pause: ``parser`` or ``batch:<id>``; empty: the pause is a tenant's. Of a refusal: ``batch:<id>``."""
    reason: str = ""
    by: str = ""
    """Who: user, host, process. Of a refusal: the worker, by the host it runs on and what it is told to host."""
    partition: int | None = None
    what: Counted = "deletes"
    figures: Figures | None = None
    decision: str = ""
    """Of a tripping: id of the newest decision its writer knew."""
    decisions: tuple[Decision, ...] = ()
    claim: str = ""
    """Of a refusal: the batch's claim that the worker followed. It says nothing of a later one."""

    @property
    def key(self) -> bytes:
        """Return the Kafka key."""
        if self.kind == "pause":
            return pause_key(self.tenant_id, self.stage)
        if self.kind == "refused":
            return f"refused/{self.stage}/{self.by}".encode()
        return f"breaker/{self.tenant_id}{'' if self.kind == 'decided' else f'/{self.partition}'}".encode()


def pause_key(tenant: str | None, stage: str) -> bytes:
    """Return the Kafka key of the pause of a tenant, or of a stage."""
    return (f"pause/tenant/{tenant}" if tenant is not None else f"pause/stage/{stage}").encode()
