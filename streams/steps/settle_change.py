"""What to do with a DocumentChange, before anything is parsed: the front door's memory of each document decides.

Rules, in order (the newest revision seen is the only authority, also when it failed):
  older revision                       stale
  the same event again                 nothing: its outcome is already out
  equal revision, same content         unchanged; parsed again only if it failed before, or if `reindex` asks
  equal revision, delete over upsert   the delete wins, whatever else it says
  equal revision, other content        poison: a revision names one content
  newer revision, same content         unchanged, and the revision is remembered
  otherwise                            parse (upsert) or end (delete)
"""

from __future__ import annotations

import hashlib
import json
from dataclasses import dataclass, replace
from typing import Literal

from schemas.document_change import DocumentChange
from streams.errors import PoisonRecord


@dataclass(frozen=True, slots=True)
class Seen:
    """What the parser remembers of one document: its newest revision, and a fingerprint of all that the revision said.

    `offset` is where the record stood that said it. A null value has no revision of its own ("delete the newest"), so a redelivered
    one is known only by standing before what has been remembered since.
    """

    revision: int
    fingerprint: str
    deleted: bool = False
    failed: bool = False
    event_id: str = ""
    offset: int = -1

    def to_bytes(self) -> bytes:
        """Return a compact, truthy form."""
        return json.dumps([self.revision, self.fingerprint, self.deleted, self.failed, self.event_id, self.offset]).encode()

    @classmethod
    def from_bytes(cls, value: bytes) -> Seen:
        """Return what `to_bytes` wrote. Raises ValueError on anything else."""
        revision, fingerprint, deleted, failed, event_id, offset = json.loads(value)
        return cls(revision, fingerprint, deleted, failed, event_id, offset)


@dataclass(frozen=True, slots=True)
class ToParse:
    """Parse it and pass it on."""

    seen: Seen


@dataclass(frozen=True, slots=True)
class ToEnd:
    """Pass its end on."""

    seen: Seen


@dataclass(frozen=True, slots=True)
class AlreadySettled:
    """Nothing to pass on. `outcome` None: the same event again, its outcome is out. `seen` None: nothing to remember."""

    outcome: Literal["unchanged", "stale"] | None
    reason: str
    seen: Seen | None = None


def change_fingerprint(change: DocumentChange) -> str:
    """Return SHA-256 over all that a revision says of a document, but not who said it, when, or under which number."""
    content = change.model_dump(mode="json", exclude={"revision", "occurred_at", "event_id", "reindex"})
    canonical = json.dumps(content, sort_keys=True, ensure_ascii=False, separators=(",", ":"))
    return hashlib.sha256(canonical.encode("utf-8")).hexdigest()


def settle_change(change: DocumentChange, seen: Seen | None) -> ToParse | ToEnd | AlreadySettled:
    """Return what is to be done. Raises PoisonRecord when a revision comes twice with different contents."""
    deleted = change.op == "delete"
    fresh = Seen(change.revision, change_fingerprint(change), deleted, event_id=change.event_id)
    pass_on = ToEnd(fresh) if deleted else ToParse(fresh)
    if seen is None:
        return pass_on
    if change.revision < seen.revision:
        return AlreadySettled("stale", f"revision {seen.revision} has already been seen")
    same = fresh.fingerprint == seen.fingerprint
    if change.revision > seen.revision:
        if not (same or (deleted and seen.deleted)) or seen.failed or change.reindex:
            return pass_on
        return AlreadySettled("unchanged", "same content under a newer revision", fresh)
    if deleted and not seen.deleted:
        return pass_on
    if seen.deleted and not deleted:
        return AlreadySettled("stale", "deleted at this revision")
    if not same and not deleted:
        raise PoisonRecord(
            f"revision {change.revision} was already seen with other content; send a higher revision", revision=change.revision
        )
    if change.reindex or seen.failed:
        return pass_on
    if change.event_id == seen.event_id:
        return AlreadySettled(None, "the same event again")
    return AlreadySettled("unchanged", "same revision again")


def failed(seen: Seen) -> Seen:
    """Return the memory of a revision that could not be parsed: it still makes older ones stale."""
    return replace(seen, failed=True)
