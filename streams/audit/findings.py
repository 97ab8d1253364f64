"""What an audit can find, kind by kind, and what is to be done about each."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

Kind = Literal[
    "missing_point",
    "left_over_point",
    "wrong_payload",
    "wrong_order",
    "wrong_vector",
    "document_without_manifest",
    "manifest_without_document",
    "deleted_but_present",
    "missing_here",
    "unknown_at_source",
    "older_than_source",
]
POINT_KINDS: tuple[Kind, ...] = ("missing_point", "left_over_point", "wrong_payload", "wrong_order")
"""What a comparison of manifests and points alone can find: all that a worker looks for by itself."""

MEANING: dict[Kind, tuple[str, str]] = {
    "missing_point": ("a manifest names it, the index has it not", "docdelta audit --repair"),
    "left_over_point": ("the index has it, no manifest names it", "docdelta audit --repair"),
    "wrong_payload": ("its payload is not what its manifest says", "docdelta audit --repair"),
    "wrong_order": ("its order key is not what its manifest says", "docdelta audit --repair"),
    "wrong_vector": ("its vector is not that of its text", "docdelta audit --repair"),
    "document_without_manifest": ("its newest event says it is there, the batch does not know it", "docdelta audit --repair"),
    "manifest_without_document": ("the batch has it, the log has no event of it", "send it again, or docdelta delete it"),
    "deleted_but_present": ("its newest event is a delete, the batch still has it", "docdelta audit --repair"),
    "missing_here": ("the source has it, the log has not", "docdelta sync, or send it from the source"),
    "unknown_at_source": ("the log has it, the source has not", "docdelta delete it"),
    "older_than_source": ("the source has a newer revision than the log", "docdelta sync, or send it from the source"),
}
"""Of each kind: what it means, and the one action."""
EXAMPLES = 5


@dataclass(frozen=True, slots=True)
class Finding:
    """One thing that is wrong. `key`: tenant/document; empty for a point that names no document."""

    kind: Kind
    key: bytes
    chunk_id: str = ""
    said: str = ""
    revision: int = -1
    """Of the point that is there, or of the newest event."""
    payload_edited: bool = False
    """The payload is not that of its own hash: `repair` has to say so to the index before the document is sent again."""

    @property
    def place(self) -> str:
        """Return what names it: tenant/document, and the chunk."""
        document = self.key.decode("utf-8", "replace") or "(no document)"
        return f"{document} {self.chunk_id[:16]}".strip()

    def as_json(self) -> dict[str, Any]:
        """Return the finding as `docdelta audit --json` prints it."""
        tenant, _, document = self.key.decode("utf-8", "replace").partition("/")
        return {
            "kind": self.kind,
            "tenant_id": tenant,
            "document_id": document,
            "chunk_id": self.chunk_id,
            "revision": self.revision,
            "said": self.said,
        }


@dataclass(slots=True)
class Reads:
    """What an audit asked of the index."""

    facets: int = 0
    points: int = 0
    """Points read: payloads that came over the wire, those read again included."""
    vectors: int = 0
    """Points read with their vectors, for a sample."""


@dataclass(frozen=True, slots=True)
class Report:
    """All that one audit of one batch found."""

    batch: str
    collection: str
    documents: int
    """Live documents of the manifests."""
    chunks: int
    """Chunks of the manifests."""
    points: int
    """Points there, by exact count."""
    findings: tuple[Finding, ...]
    reads: Reads
    in_flight: int = 0
    """Documents that differed with an event still on its way: not judged."""
    refused: int = 0
    """Documents that differ since their newest event was refused: the dead letter tells."""
    held: int = 0
    """Documents whose newest event is held for a decision."""
    rejected: int = 0
    """Documents that stay, since a person decided against their newest event, a delete."""
    unmarked: int = 0
    """Points without a bucket: read in full."""
    sampled: int = 0
    """Points whose vector was made anew and compared."""
    unsampled: int = 0
    """Points of the sample whose text could not be made from their payload."""
    examples: Sequence[str] = field(default=())

    @property
    def clean(self) -> bool:
        """True when nothing was found."""
        return not self.findings

    def counts(self) -> dict[Kind, int]:
        """Return how many were found of each kind that was found."""
        return dict(Counter(finding.kind for finding in self.findings))

    def as_json(self) -> dict[str, Any]:
        """Return the report as `docdelta audit --json` prints it."""
        return {
            "batch": self.batch,
            "collection": self.collection,
            "clean": self.clean,
            "documents": self.documents,
            "chunks": self.chunks,
            "points": self.points,
            "points_read": self.reads.points,
            "vectors_read": self.reads.vectors,
            "facets": self.reads.facets,
            "in_flight": self.in_flight,
            "refused": self.refused,
            "held": self.held,
            "rejected": self.rejected,
            "unmarked": self.unmarked,
            "sampled": self.sampled,
            "unsampled": self.unsampled,
            "counts": self.counts(),
            "findings": [finding.as_json() for finding in self.findings],
        }


def in_order(findings: Iterable[Finding]) -> tuple[Finding, ...]:
    """Return findings by kind (as `MEANING` lists them), document and chunk."""
    rank = {kind: number for number, kind in enumerate(MEANING)}
    return tuple(sorted(findings, key=lambda found: (rank[found.kind], found.key, found.chunk_id)))
