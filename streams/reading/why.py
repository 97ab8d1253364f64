"""Why a document stands where it stands: newest revision seen, what each batch did with it, its points, what was refused.

Everything is read by the document's key; `streams/repair/timeline.py` reads it and adds the rest of the story.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any, Literal

from schemas.codec import UndecodableRecord, decode
from schemas.dead_letter import DeadLetter
from schemas.document_change import AGAIN, DocumentChange
from schemas.receipt import Receipt
from streams.errors import DocdeltaError
from streams.ports import InRecord, VectorIndex
from streams.reading.citation import clauses_of
from streams.words import counted

State = Literal["unknown", "current", "deleted", "waiting", "held", "dead_lettered"]


@dataclass(frozen=True, slots=True)
class Seen:
    """The newest event on [documents]: highest revision, the later of equal ones."""

    revision: int
    op: str
    media_type: str
    partition: int
    offset: int
    occurred_at: datetime | None


@dataclass(frozen=True, slots=True)
class InIndex:
    """The document's points in the collection being served, in document order."""

    collection: str
    chunks: tuple[Mapping[str, Any], ...]
    """Payloads of the points."""

    @property
    def revisions(self) -> tuple[int, ...]:
        """Revisions that the points carry; more than one while a change is being written."""
        return tuple(sorted({payload["revision"] for payload in self.chunks}))


@dataclass(frozen=True, slots=True)
class Why:
    """All that is known of one document."""

    tenant_id: str
    document_id: str
    seen: Seen | None
    receipts: tuple[Receipt, ...] = ()
    """The last receipt of the parser (batch empty) and of each batch."""
    indexed: InIndex | None = None
    dead_letters: tuple[DeadLetter, ...] = ()
    """Oldest first; of repeats of one source record the last."""
    problems: tuple[str, ...] = field(default=())
    builds: frozenset[str] = frozenset()
    """Batches that nobody is served from yet: what they refused does not say how the document is served."""

    @property
    def state(self) -> State:
        """Where the newest revision stands."""
        return self._verdict()[0]

    @property
    def explanation(self) -> str:
        """One sentence: where the document stands and what to do."""
        return self._verdict()[1]

    def _verdict(self) -> tuple[State, str]:
        serving = self._serving()
        refusal = self._refusal()
        if self.seen is None:
            if refusal:
                return "dead_lettered", f"its event was refused: {refusal}; mend it and send it again; {serving}"
            if self.indexed and self.indexed.chunks:
                return "current", f"no event of it is left on the broker; {serving}"
            return "unknown", "no event of this document was ever seen: check tenant and id, or send it with docdelta put"
        newest = self.seen.revision
        settled = self._settled()
        if refusal:
            return "dead_lettered", f"an event was refused: {refusal}; mend it and send a revision above {newest}; {serving}"
        held = next((receipt for receipt in settled if receipt.outcome == "held"), None)
        if held is not None and (held.batch or not any(receipt.batch for receipt in settled)):  # it did not go on since
            return "held", f"revision {newest} is held: {held.reason}; {serving}"
        if not settled:
            return "waiting", f"revision {newest} waits on the broker: look at docdelta status, is a worker running? {serving}"
        if self.seen.op == "delete":
            turned = next((receipt for receipt in settled if receipt.outcome == "unchanged" and not receipt.batch), None)
            if turned is not None and self.indexed is not None and self.indexed.chunks:
                return "current", f"the delete of revision {newest} was dropped: {turned.reason}; {serving}"
            return "deleted", f"revision {newest} ended it"
        return "current", f"revision {newest} is settled; {serving}"

    def _settled(self) -> list[Receipt]:
        """Return the receipts about the newest revision. A "stale" of the parser is about an event that came late, not about it."""
        newest = self.seen.revision if self.seen else 0
        return [
            receipt
            for receipt in self.receipts
            if receipt.revision >= newest and receipt.batch not in self.builds and (receipt.batch or receipt.outcome != "stale")
        ]

    def _refusal(self) -> str:
        """Return why the newest revision, or an unreadable event after it, was refused; empty when it was not."""
        settled = self._settled()
        told = [receipt.reason for receipt in settled if receipt.outcome == "dead_lettered" and not _healed(receipt, settled)]
        for letter in self.dead_letters:
            if letter.batch in self.builds:
                continue
            if self.seen is None:
                told.append(letter.reason)
            elif letter.revision is None:
                later = letter.partition == self.seen.partition and letter.offset > self.seen.offset
                told += [letter.reason] if later and letter.stage == "parser" else []
            elif (letter.revision >= self.seen.revision and not settled) or any(receipt.dropped for receipt in settled):
                told.append(letter.reason)
        return told[-1] if told else ""

    def _serving(self) -> str:
        if self.indexed is None:
            return "the index could not be asked" if self.problems else "no batch is served yet"
        if not self.indexed.chunks:
            return "searches find nothing of it"
        revisions = ", ".join(str(revision) for revision in self.indexed.revisions)
        return f"searches find {counted(len(self.indexed.chunks), 'chunk')} of revision {revisions}"

    def as_json(self) -> dict[str, Any]:
        """Return the answer as `docdelta why --json` prints it."""
        return {
            "tenant_id": self.tenant_id,
            "document_id": self.document_id,
            "state": self.state,
            "explanation": self.explanation,
            "newest_seen": _seen_json(self.seen),
            "receipts": [receipt.model_dump(mode="json") for receipt in self.receipts],
            "index": _index_json(self.indexed),
            "dead_letters": [_letter_json(letter) for letter in self.dead_letters],
            "problems": list(self.problems),
        }


def _healed(refused: Receipt, settled: Iterable[Receipt]) -> bool:
    """Return whether a later outcome of a batch shows that what the parser refused went through since (a replay)."""
    return not refused.batch and any(
        other.batch
        and other.outcome in ("indexed", "unchanged")
        and refused.settled_at is not None
        and other.settled_at is not None
        and other.settled_at >= refused.settled_at
        for other in settled
    )


async def read_points(index: VectorIndex, alias: str, tenant_id: str, document_id: str) -> InIndex | None:
    """Return the document's points behind the alias, or None where the alias points nowhere."""
    collection = await index.alias_target(alias)
    if collection is None:
        return None
    points = await index.document_points(collection, tenant_id, document_id)
    return InIndex(collection, tuple(point.payload for point in points))


def newest_seen(records: Iterable[InRecord]) -> Seen | None:
    """Return the newest readable event among the records of one document. What can't be read is told by its dead letter."""
    newest: Seen | None = None
    for record in records:
        if record.value is None:
            continue
        try:
            change = decode(record.value, DocumentChange)
        except (UndecodableRecord, DocdeltaError):
            continue
        if newest is None or change.revision >= newest.revision:
            newest = Seen(change.revision, change.op, change.media_type, record.partition, _came(record), change.occurred_at)
    return newest


def _came(record: InRecord) -> int:
    """Return an offset that tells when an event came: of one that the parser said again, that before the late record."""
    late = record.headers.get(AGAIN, b"")
    return min(record.offset, int(late) - 1) if late.isdigit() and len(late) < 19 else record.offset


def last_receipts(records: Iterable[InRecord]) -> tuple[Receipt, ...]:
    """Return the last receipt about the highest revision of each batch, the parser's (batch empty) first."""
    last: dict[str, Receipt] = {}
    for record in records:
        if record.value is None:
            continue
        receipt = decode(record.value, Receipt)
        before = last.get(receipt.batch)
        if before is None or receipt.revision >= before.revision:
            last[receipt.batch] = receipt
    return tuple(last[batch] for batch in sorted(last))


def dead_letters_of(records: Iterable[InRecord]) -> tuple[DeadLetter, ...]:
    """Return the dead letters among the records, each source record and stage once."""
    letters: dict[tuple[str, int, int, str, str], DeadLetter] = {}
    for record in records:
        if record.value is not None:
            letter = decode(record.value, DeadLetter)
            letters[letter.topic, letter.partition, letter.offset, letter.stage, letter.batch] = letter
    return tuple(letters.values())


def _seen_json(seen: Seen | None) -> dict[str, Any] | None:
    if seen is None:
        return None
    return {
        "revision": seen.revision,
        "op": seen.op,
        "media_type": seen.media_type,
        "partition": seen.partition,
        "offset": seen.offset,
        "occurred_at": seen.occurred_at.isoformat() if seen.occurred_at else None,
    }


def _index_json(indexed: InIndex | None) -> dict[str, Any] | None:
    if indexed is None:
        return None
    chunks = [
        {
            "ordinal": ordinal,
            "chunk_id": payload["chunk_id"],
            "revision": payload["revision"],
            "kind": payload.get("kind"),
            "role": payload.get("role"),
            "tokens": payload.get("tokens"),
            "heading_path": list(payload.get("heading_path", ())),
            "clause": payload.get("clause"),
            "clauses": list(clauses_of(payload)),
            "text": payload.get("text"),
        }
        for ordinal, payload in enumerate(indexed.chunks)
    ]
    return {"collection": indexed.collection, "revisions": list(indexed.revisions), "chunks": chunks}


def _letter_json(letter: DeadLetter) -> dict[str, Any]:
    return letter.model_dump(mode="json", exclude={"value", "key", "headers"})
