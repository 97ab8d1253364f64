"""plan_sync: what was sent before and what the folder holds now → what to send, under which revisions. Pure.

**Revisions.** A revision says which of two states of a document is newer; an older state must never go out under a higher one.
- A file with no recorded history goes out under its modification time in microseconds: the same file gives the same revision
  however often it is sent and from whichever machine, so sending a folder again after the state file was lost says nothing new.
- A file whose content or metadata differs from what was confirmed goes out above everything ever promised for it, and not below
  its modification time: a restored or checked-out file often carries an old time, and is still the newest state seen here.
- A file that is the same is not sent; with `everything` it goes out under the revision it was confirmed with.
- A modification time in the future counts as now, so that a wrong clock can't lock a document against later edits.
- A delete goes out under the present time or above the last promise. Its mark stays in the state: a file that comes back goes
  above it.
After the state file is lost, a file whose time is *older* than what was sent before is called stale by the pipeline and changes
nothing. `docdelta put`, whose revision is the present time, settles such a case.

**Deletes** are only inferred from a complete view of the folder, and never for more than half of the documents without `force`.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal

from schemas.record import REVISION_LIMIT
from streams.connectors.site_file import FileMetadata
from streams.connectors.sync_state import SentDocument, SyncState
from streams.words import counted

SYNC_CONSENT = "sync again with --delete --force"
"""How a person says to `docdelta sync` that the loss of more than half of a folder is meant."""

UpsertReason = Literal["new", "changed", "again"]


@dataclass(frozen=True, slots=True)
class SourceFile:
    """One file as a scan saw it.

    fingerprint: over content, media type and metadata.
    modified_us: newest of the file's and the site file's modification times, in microseconds since 1970.
    source_uri: what a citation names: the path in the folder, or what the site file says.
    problem: why it can't be sent, with what to do; empty when it can.
    """

    document_id: str
    path: Path
    media_type: str
    fingerprint: str
    modified_us: int
    source_uri: str = ""
    metadata: FileMetadata = field(default_factory=FileMetadata)
    problem: str = ""


@dataclass(frozen=True, slots=True)
class PlannedUpsert:
    """One file to send, under which revision, and why."""

    file: SourceFile
    revision: int
    reason: UpsertReason


@dataclass(frozen=True, slots=True)
class PlannedDelete:
    """One document to end, under which revision."""

    document_id: str
    revision: int


@dataclass(frozen=True, slots=True)
class Refusal:
    """Something that is not sent although it should be: which, why, what to do."""

    document_id: str
    reason: str


@dataclass(frozen=True, slots=True)
class SyncPlan:
    """What one sync does. `missing`: gone from the folder, deletes not asked for. `held`: deletes that the guard keeps back."""

    upserts: tuple[PlannedUpsert, ...] = ()
    deletes: tuple[PlannedDelete, ...] = ()
    unchanged: tuple[str, ...] = ()
    refused: tuple[Refusal, ...] = ()
    missing: tuple[str, ...] = ()
    held: tuple[str, ...] = ()
    held_reason: str = ""

    @property
    def size(self) -> int:
        """Number of events to send."""
        return len(self.upserts) + len(self.deletes)


def plan_sync(
    state: SyncState,
    files: Sequence[SourceFile],
    *,
    now_us: int,
    everything: bool = False,
    delete: bool = False,
    force: bool = False,
    complete: bool = True,
    consent: str = SYNC_CONSENT,
) -> SyncPlan:
    """Return what to send. `complete=False`: parts of the folder could not be read, so nothing is taken for deleted.

    `consent`: what to do when the loss of more than half is meant, for the message.
    """
    upserts, unchanged, refused = [], [], []
    present: set[str] = set()
    for file in files:
        if file.document_id in present:
            reason = f"{file.path} has the document id of another file; rename it or give it another id"
            refused.append(Refusal(file.document_id, reason))
            continue
        present.add(file.document_id)
        if file.problem:
            refused.append(Refusal(file.document_id, file.problem))
            continue
        sent = state.documents.get(file.document_id, SentDocument())
        same = sent.live and sent.certain and sent.fingerprint == file.fingerprint
        if same and not everything:
            unchanged.append(file.document_id)
        elif same:
            upserts.append(PlannedUpsert(file, sent.revision, "again"))
        else:
            upserts.append(PlannedUpsert(file, _revision(file, sent, now_us), "changed" if sent.live else "new"))
    gone = [name for name, sent in state.documents.items() if name not in present and sent.live]
    buried = [name for name, sent in state.documents.items() if name not in present and not sent.live]
    held_reason = _guard(state, gone, force=force, complete=complete, consent=consent) if delete else ""
    deletes = []
    if delete and not held_reason:
        deletes = [PlannedDelete(name, _above(state.documents[name], now_us)) for name in gone]
        if everything:
            deletes += [PlannedDelete(name, state.documents[name].revision) for name in buried]
    return SyncPlan(
        tuple(upserts),
        tuple(deletes),
        tuple(unchanged),
        tuple(refused),
        missing=() if delete else tuple(gone),
        held=tuple(gone) if held_reason else (),
        held_reason=held_reason,
    )


def _revision(file: SourceFile, sent: SentDocument, now_us: int) -> int:
    modified = max(0, min(file.modified_us, now_us))
    return _above(sent, modified)


def _above(sent: SentDocument, wanted: int) -> int:
    """Return `wanted`, or what is just above every promise made for the document."""
    floor = max(sent.promised, sent.revision) + 1 if sent.promised or sent.revision else 0
    return min(max(wanted, floor), REVISION_LIMIT - 1)


def _guard(state: SyncState, gone: Sequence[str], *, force: bool, complete: bool, consent: str) -> str:
    """Return why deletes are held back, or an empty text."""
    if not gone:
        return ""
    if not complete:
        return "parts of the folder could not be read, so what seems gone may still be there; mend that and sync again"
    live = sum(sent.live for sent in state.documents.values())
    if len(gone) * 2 > live and not force:
        missing = f"{len(gone)} of {counted(live, 'document is', 'documents are')} gone from the folder"
        return f"{missing}, more than half; if that is meant, {consent}"
    return ""
