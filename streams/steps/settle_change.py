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
from dataclasses import astuple, dataclass, replace
from typing import Literal

import orjson

from chunking.identity import canonical_json
from schemas.document_change import DocumentChange
from schemas.held_change import HeldReason
from streams.errors import PoisonRecord


@dataclass(frozen=True, slots=True)
class HeldMark:
    """What the parser remembers of a document's event that is held: the one in [held]. `offset`: where it first stood."""

    reason: HeldReason
    revision: int
    fingerprint: str
    deleted: bool
    event_id: str
    offset: int

    @property
    def as_seen(self) -> Seen:
        """Return the memory that there would be, had it been let pass."""
        return Seen(self.revision, self.fingerprint, self.deleted, event_id=self.event_id)


UNSEEN = -1
"""The revision of a document of which nothing was let pass yet."""


@dataclass(frozen=True, slots=True)
class Seen:
    """What the parser remembers of one document: its newest revision, and a fingerprint of all that the revision said.

    `offset` is where the record stood that said it. A null value has no revision of its own ("delete the newest"), so a redelivered
    one is known only by standing before what has been remembered since.
    """

    revision: int
    fingerprint: str
    """Empty: not known any more (agents/memory.py)."""
    deleted: bool = False
    failed: bool = False
    event_id: str = ""
    offset: int = -1
    at: float = 0.0
    """When the event that last changed the document reached [documents], seconds since 1970. 0: not known, or not to be counted."""
    changed: bool = False
    """That event found the document there: it was an edit, not a first upsert."""
    epoch: str = ""
    """Of the newest decision on the tenant's breaker when it passed, the first letters: what is decided begins to count anew."""
    passing: int = -1
    """Offset of an event that was counted and let pass, and may be out already: whatever has come between, it passes again. `at`,
    `changed` and `epoch` are its own then, so that it counts whether or not its worker lives."""
    held: HeldMark | None = None
    """A newer event of the document that is kept back."""
    dropped: int = -1
    """Revision of a newer event that a person decided against (`breaker reject`). What is sent again of it is dropped too."""
    passed: int | None = None
    """Revision that was last passed on to the batches. None: `revision` itself, or not known where that could not be parsed."""

    @property
    def known(self) -> Seen | None:
        """Return what counts for a newer event: None where all that came of the document is held."""
        return None if self.revision == UNSEEN else self

    @property
    def live(self) -> bool:
        """Whether the document is there, as far as the front door knows."""
        return self.revision != UNSEEN and not self.deleted

    @property
    def ending(self) -> bool:
        """Whether the event that is passing is the document's end."""
        return self.passing >= 0 and not self.changed

    @property
    def last_passed(self) -> int | None:
        """Return the revision that was last passed on to the batches; None: none, or not known."""
        if self.passed is not None:
            return self.passed
        return None if self.revision == UNSEEN or self.failed else self.revision

    def to_bytes(self) -> bytes:
        """Return a compact, truthy form. What is not known is left out, so that old and new rows are the same."""
        row: list[object] = [self.revision, self.fingerprint, self.deleted, self.failed, self.event_id, self.offset]
        more: list[object] = [self.at, self.changed, self.epoch, self.passing]
        more += [astuple(self.held) if self.held is not None else None, self.dropped, self.passed]
        counted = self.at or self.changed or self.passing >= 0
        known = 7 if self.passed is not None else 6 if self.dropped >= 0 else 5 if self.held is not None else 4 if counted else 0
        return json.dumps(row + more[:known]).encode()

    @classmethod
    def from_bytes(cls, value: bytes) -> Seen:
        """Return what `to_bytes` wrote, here or in an earlier release. Raises ValueError on anything else."""
        revision, fingerprint, deleted, failed, event_id, offset, *rest = orjson.loads(value)
        at, changed, epoch, passing, *more = rest or (0.0, False, "", -1)
        mark = HeldMark(*more[0]) if more and more[0] is not None else None
        dropped = more[1] if len(more) > 1 else -1
        passed = more[2] if len(more) > 2 else None
        return cls(revision, fingerprint, deleted, failed, event_id, offset, at, changed, epoch, passing, mark, dropped, passed)


Effect = Literal["removal", "change"]
"""What an event takes away: a document that is there, or its content."""


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
    return hashlib.sha256(canonical_json(content)).hexdigest()


def settle_change(change: DocumentChange, seen: Seen | None, fingerprint: str = "") -> ToParse | ToEnd | AlreadySettled:
    """Return what is to be done. Raises PoisonRecord when a revision comes twice with different contents.

    `fingerprint`: the change's own, where the caller has it.
    """
    deleted = change.op == "delete"
    fresh = Seen(change.revision, fingerprint or change_fingerprint(change), deleted, event_id=change.event_id)
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
    if not same and not deleted and seen.fingerprint:
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


def passed_before(seen: Seen, row: Seen | None) -> Seen:
    """Return the memory of a revision that was not passed on: the batches have what they had."""
    last = row.last_passed if row is not None else None
    return replace(seen, passed=None if last == seen.revision and not seen.failed else last)


def dropped(row: Seen | None, revision: int) -> Seen | None:
    """Return a document's row with a revision that a person decided against."""
    return row if row is None else replace(row, dropped=max(row.dropped, revision))


def still_dropped(seen: Seen, before: Seen | None) -> int:
    """Return what of a rejection a document's new row has to keep: a revision that is newer, or deletes it, ends it."""
    return before.dropped if before is not None and not seen.deleted and seen.revision <= before.dropped else -1


def newest_revision(row: Seen | None) -> int:
    """Return the revision that a null value deletes: the newest that was seen, that of a paused event included."""
    if row is None:
        return 0
    waiting = row.held.revision if row.held is not None and row.held.reason == "paused" else 0
    return max(row.revision, waiting, 0)


def dated(seen: Seen, before: Seen | None, effect: Effect | None, at: float, epoch: str) -> Seen:
    """Return a document's new row with the time of its last change: `at` (0: not to be counted), or that of the row `before`.

    `effect`: what the event took away from the document, or None.
    """
    if effect is not None:
        return replace(seen, at=at, changed=effect == "change", epoch=epoch)
    was_live = before is not None and before.live
    if not seen.deleted and not was_live:
        return replace(seen, at=at)
    return seen if before is None else replace(seen, at=before.at, changed=before.changed, epoch=before.epoch)


def passing(row: Seen, effect: Effect, offset: int, at: float, epoch: str) -> Seen:
    """Return a document's row with an event that was counted and is let pass, before it is out."""
    return replace(row, passing=offset, at=at, changed=effect == "change", epoch=epoch)


def effect_of(decision: ToParse | ToEnd | AlreadySettled, row: Seen | None) -> Effect | None:
    """Return what an event takes away from a document that is there; None: nothing."""
    if row is None or not row.live or isinstance(decision, AlreadySettled):
        return None
    if isinstance(decision, ToEnd):
        return "removal"
    return "change" if decision.seen.fingerprint != row.fingerprint else None
