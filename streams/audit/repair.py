"""Repair: what an audit found, mended on the way that every event goes. A plan and an execute.

A document that differs is sent again (`streams.repair.reindex`): every stage looks at it anew, the indexer compares with the index
itself, and embeds only what has no vector in place. A payload or vector that is wrong under a right hash would look right to it, so
its hash in the index is taken away first; until the event arrives the point serves as it is.

Points of a document that nobody knows (no event or only an older end, no living manifest) get a delete event at the newest revision
they name: it goes through every stage, and outlives the document like any other. Where many documents are unknown, the log is lost
rather than they are: then nothing is deleted.

Order of effects: ① hashes taken away ② events, confirmed by the broker. A crash between leaves points that every audit
finds, or events twice; running the command again completes it.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from chunking.manifest import Manifest
from schemas.codec import encode
from schemas.document_change import DocumentChange
from schemas.record import document_key, split_document_key
from streams.audit.findings import MEANING, Finding
from streams.crash_points import reached
from streams.kafka.produce import OutRecord, produce_all
from streams.ports import IndexPlan, VectorIndex
from streams.repair.newest import Newest
from streams.repair.reindex import Selection, reindex_documents
from streams.settings import Settings
from streams.words import counted

FEW = 10
FEW_SHARE = 0.1
"""Unknown documents up to FEW, or up to this share of the known ones, are deleted; more are not."""


@dataclass(frozen=True, slots=True)
class RepairPlan:
    """What is to be done. Keys are tenant/document."""

    reindex: tuple[bytes, ...] = ()
    delete: Mapping[bytes, int] = field(default_factory=dict)
    """Key to the revision of the delete."""
    payloads: frozenset[str] = frozenset()
    """Chunks whose payload is to be written anew."""
    vectors: frozenset[str] = frozenset()
    """Chunks whose vector is to be made anew."""
    spoil: Mapping[bytes, tuple[str, ...]] = field(default_factory=dict)
    """The same chunks by document."""
    left: tuple[tuple[Finding, str], ...] = ()
    """What no event can mend, and what will."""

    def __str__(self) -> str:
        told = (
            counted(len(self.reindex), "document is sent again", "documents are sent again"),
            counted(len(self.delete), "that nobody knows is deleted", "that nobody knows are deleted"),
            counted(len(self.left), "finding is left to you", "findings are left to you"),
        )
        return ", ".join(told)


def plan_repair(findings: Iterable[Finding], newest: Mapping[bytes, Newest], manifests: Mapping[bytes, Manifest]) -> RepairPlan:
    """Return what mends the findings. `manifests`: of the documents that are found, and of all others that are live."""
    reindex: set[bytes] = set()
    unknown: dict[bytes, int] = {}
    payloads: set[str] = set()
    vectors: set[str] = set()
    spoil: dict[bytes, tuple[str, ...]] = {}
    left: list[tuple[Finding, str]] = []
    found = list(findings)
    for finding in found:
        key, event = finding.key, newest.get(finding.key)
        manifest = manifests.get(key)
        if MEANING[finding.kind][1] != "docdelta audit --repair":
            left.append((finding, MEANING[finding.kind][1]))
        elif not key or finding.chunk_id.startswith("point:"):
            left.append((finding, "remove it from the index by its id: no event can"))
        elif finding.kind == "left_over_point" and _ended(manifest) and _older_end(event, finding.revision):
            unknown[key] = max(unknown.get(key, 0), finding.revision, manifest.revision if manifest is not None else 0)
        elif event is None:
            left.append((finding, "send the document again from its source: the log has no event of it"))
        elif finding.kind not in ("document_without_manifest", "deleted_but_present") and finding.revision > event.revision:
            left.append((finding, f"send the document with a revision above {finding.revision}: the point is fenced by it"))
        else:
            reindex.add(key)
            if finding.kind == "wrong_vector":
                vectors.add(finding.chunk_id)
            if finding.payload_edited:
                payloads.add(finding.chunk_id)
            if finding.kind == "wrong_vector" or finding.payload_edited:
                spoil[key] = (*spoil.get(key, ()), finding.chunk_id)
    live = sum(not manifest.deleted for manifest in manifests.values())
    if len(unknown) > max(FEW, FEW_SHARE * live):
        beside = f"{len(unknown)} documents are unknown beside {live} known ones"
        why = f"{beside}: the log is lost rather than they are; send them first: docdelta sync --all"
        left += [(finding, why) for finding in found if finding.key in unknown]
        unknown = {}
    return RepairPlan(tuple(sorted(reindex)), unknown, frozenset(payloads), frozenset(vectors), spoil, tuple(left))


def _ended(manifest: Manifest | None) -> bool:
    return manifest is None or manifest.deleted


def _older_end(event: Newest | None, revision: int) -> bool:
    """Whether the log has no event of a document, or an end that is older than its point: one sent for another batch, maybe."""
    return event is None or (event.op == "delete" and event.revision < revision)


async def repair(plan: RepairPlan, settings: Settings, index: VectorIndex, collection: str, run: str) -> int:
    """Carry a plan out; return how many events the broker has confirmed. Workers do the rest. Safe to run twice."""
    for key, chunk_ids in plan.spoil.items():
        await spoil(index, collection, key, chunk_ids, plan)
        reached("repair.spoiled")
    return await asyncio.to_thread(_send, plan, settings, run)


async def spoil(index: VectorIndex, collection: str, key: bytes, chunk_ids: Iterable[str], plan: RepairPlan) -> None:
    """Take the hashes of points away, so that the next look at their document finds them wrong. Newer points are left alone."""
    tenant, document = split_document_key(key)
    points = await index.retrieve(collection, list(chunk_ids))
    for chunk_id, point in points.items():
        payload = dict(point.payload)
        if chunk_id in plan.payloads:
            payload["payload_hash"] = ""
        if chunk_id in plan.vectors:
            payload |= {"payload_hash": "", "embed_hash": ""}
        payload |= {"tenant_id": tenant, "document_id": document}
        await index.apply(collection, IndexPlan(tenant, document, int(payload["revision"]), payloads=((chunk_id, payload),)))


def _send(plan: RepairPlan, settings: Settings, run: str) -> int:
    sent = 0
    if plan.reindex:
        documents = tuple(split_document_key(key) for key in plan.reindex)
        sent += reindex_documents(settings, Selection(documents=documents), run=run).sent
    reached("repair.sent")
    deletes = []
    for key, revision in plan.delete.items():
        tenant, document = split_document_key(key)
        change = DocumentChange(
            tenant_id=tenant,
            document_id=document,
            revision=revision,
            op="delete",
            event_id=f"audit-{run}-{document_key(tenant, document).hex()[:64]}",
            reindex=True,
        )
        deletes.append(OutRecord(settings.topics.documents, key, encode(change), sends="repair"))
    return sent + (produce_all(settings.kafka, deletes) if deletes else 0)
