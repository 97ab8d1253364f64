"""LetterBook: which dead letters are open, told by their index, the letters themselves and the receipts that came after them.

Pure: fed with records in the order of their topics, it may be fed the same ones again. A letter is closed by

  healed     a receipt "indexed" or "unchanged" of its document, at its revision or a newer one, settled after the letter was
             written; for a letter of a batch in that batch, for one of the parser in any. Or its batch is retired. Not: an event
             that a person decided against, which leaves the document as it was.
  replayed   its event was sent again (should that one fail, it has a letter of its own)
  dropped    somebody said so

and never opened again. A letter that repeats another (same refused record, stage, batch: a crash between two effects) is that one.
"""

from __future__ import annotations

import base64
from collections.abc import Collection, Iterable, Iterator
from dataclasses import dataclass, field
from datetime import datetime
from typing import Literal

from schemas.codec import decode
from schemas.dead_letter import DeadLetter
from schemas.letter_index import CHECKPOINT, CLOSED, OPEN, LetterCheckpoint, LetterClosing, LetterEntry
from schemas.receipt import Receipt
from schemas.record import document_key, split_document_key
from streams.ports import InRecord

LetterState = Literal["open", "healed", "replayed", "dropped"]
REASON_CHARACTERS = 500
GOOD = ("indexed", "unchanged")

_Source = tuple[str, int, int, str, str]


@dataclass(frozen=True, slots=True)
class Letter:
    """One dead letter and where it stands."""

    entry: LetterEntry
    closing: LetterClosing | None = None

    @property
    def id(self) -> str:
        """``<partition>-<offset>`` of its record in [dead-letters]."""
        return self.entry.letter

    @property
    def place(self) -> tuple[int, int]:
        """Partition and offset of its record in [dead-letters]."""
        partition, _, offset = self.entry.letter.partition("-")
        return int(partition), int(offset)

    @property
    def state(self) -> LetterState:
        """Where it stands."""
        return "open" if self.closing is None else self.closing.state

    @property
    def document(self) -> tuple[str, str] | None:
        """Tenant and document, as far as the refused record or its key told them."""
        return named_document(self.entry)


@dataclass(frozen=True, slots=True)
class Wanted:
    """Which letters are asked for. Empty fields ask for all; of `states` one must fit."""

    states: frozenset[LetterState] = frozenset({"open"})
    tenant: str = ""
    document: str = ""
    stage: str = ""
    batch: str = ""
    error: str = ""
    since: datetime | None = None

    def takes(self, letter: Letter) -> bool:
        """Return whether a letter is one of them."""
        entry, (tenant, document) = letter.entry, letter.document or ("", "")
        return (
            (not self.states or letter.state in self.states)
            and self.tenant in ("", tenant)
            and self.document in ("", document)
            and self.stage in ("", entry.stage)
            and self.batch in ("", entry.batch)
            and self.error in ("", entry.error)
            and (self.since is None or entry.failed_at >= self.since)
        )


@dataclass(slots=True)
class LetterBook:
    """Every letter that is known, and what of that knowledge is not in the index yet."""

    entries: dict[str, LetterEntry] = field(default_factory=dict)
    closings: dict[str, LetterClosing] = field(default_factory=dict)
    repeats: dict[str, str] = field(default_factory=dict)
    """Letters that repeat another, and which."""
    checkpoint: LetterCheckpoint | None = None
    unwritten: dict[str, LetterEntry | LetterClosing] = field(default_factory=dict)
    """Key in the index to what should stand there."""
    _sources: dict[_Source, str] = field(default_factory=dict)
    _open: dict[bytes, set[str]] = field(default_factory=dict)
    """Open letters by the key of their document, those that can heal."""

    def take_index(self, record: InRecord) -> None:
        """Take a record of [letter-index]. UndecodableRecord for what is none."""
        key = (record.key or b"").decode("utf-8", "replace")
        self.unwritten.pop(key, None)
        if record.value is None:
            self._forget(key)
            return
        if key == CHECKPOINT:
            self.checkpoint = decode(record.value, LetterCheckpoint)
        elif key.startswith(OPEN):
            self._add(decode(record.value, LetterEntry))
        elif key.startswith(CLOSED):
            self._close(decode(record.value, LetterClosing))

    def take_letter(self, record: InRecord) -> None:
        """Take a record of [dead-letters]."""
        name = f"{record.partition}-{record.offset}"
        if record.value is None or name in self.entries or name in self.repeats:
            return
        entry = entry_of(name, decode(record.value, DeadLetter))
        if self._add(entry):
            self.unwritten[OPEN + name] = entry

    def take_receipt(self, record: InRecord) -> None:
        """Take a record of [receipts]: closes the letters that it heals. Costs one look-up where its document has none."""
        for name in tuple(self._open.get(record.key or b"", ())):
            if record.value is None:
                return
            receipt = decode(record.value, Receipt)
            if heals(receipt, self.entries[name]) and receipt.settled_at is not None:
                where = f" in {receipt.batch}" if receipt.batch else ""
                self._found(LetterClosing(
                    letter=name, state="healed", at=receipt.settled_at, note=f"revision {receipt.revision} {receipt.outcome}{where}"
                ))  # fmt: skip

    def retire(self, batches: Collection[str], at: datetime) -> None:
        """Close what was open for batches that are retired: nobody will ever need it."""
        for entry in [entry for entry in self.open() if entry.batch in batches and entry.batch]:
            self._found(LetterClosing(letter=entry.letter, state="healed", at=at, note=f"batch {entry.batch} is retired"))

    def open(self) -> Iterator[LetterEntry]:
        """Yield the letters that are open, oldest known first."""
        return (entry for name, entry in self.entries.items() if name not in self.closings)

    @property
    def open_count(self) -> int:
        """How many letters are open."""
        return len(self.entries) - len(self.closings.keys() & self.entries.keys())

    @property
    def newest_reason(self) -> str:
        """Why the newest open letter was refused; nothing where none is open."""
        newest = max(self.open(), key=lambda entry: entry.failed_at, default=None)
        return newest.reason if newest is not None else ""

    @property
    def open_keys(self) -> Collection[bytes]:
        """Keys of documents with open letters that a receipt can heal."""
        return self._open.keys()

    def letter(self, name: str) -> Letter | None:
        """Return the letter of that name (of the one it repeats), or None."""
        name = self.repeats.get(name, name)
        entry = self.entries.get(name)
        return None if entry is None else Letter(entry, self.closings.get(name))

    def letters(self, wanted: Wanted) -> list[Letter]:
        """Return the letters asked for, newest first."""
        found = (Letter(entry, self.closings.get(name)) for name, entry in self.entries.items())
        return sorted((letter for letter in found if wanted.takes(letter)), key=_age, reverse=True)

    def of_document(self, key: bytes) -> list[Letter]:
        """Return all letters of one document, oldest first."""
        found = (Letter(entry, self.closings.get(name)) for name, entry in self.entries.items() if _key_of(entry) == key)
        return sorted(found, key=_age)

    def _add(self, entry: LetterEntry) -> bool:
        """Take an entry; return whether it was new and is no repeat."""
        if entry.letter in self.entries:
            return False
        source = (entry.topic, entry.partition, entry.offset, entry.stage, entry.batch)
        first = self._sources.setdefault(source, entry.letter)
        if first != entry.letter:
            self.repeats[entry.letter] = first
            return False
        self.entries[entry.letter] = entry
        key = _key_of(entry)
        if key is not None and entry.letter not in self.closings:
            self._open.setdefault(key, set()).add(entry.letter)
        return True

    def _forget(self, key: str) -> None:
        """Take back an entry or a closing (`docdelta gc`)."""
        name = key.partition("/")[2]
        if key.startswith(OPEN) and name in self.entries:
            entry = self.entries.pop(name)
            self._sources.pop((entry.topic, entry.partition, entry.offset, entry.stage, entry.batch), None)
            self.repeats = {repeat: first for repeat, first in self.repeats.items() if first != name}
            document = _key_of(entry)
            if document in self._open:
                self._open[document].discard(name)
                if not self._open[document]:
                    del self._open[document]
        elif key.startswith(CLOSED):
            self.closings.pop(name, None)

    def _found(self, closing: LetterClosing) -> None:
        self._close(closing)
        self.unwritten[CLOSED + closing.letter] = closing

    def _close(self, closing: LetterClosing) -> None:
        self.closings[closing.letter] = closing
        entry = self.entries.get(closing.letter)
        key = _key_of(entry) if entry is not None else None
        if key is not None and key in self._open:
            self._open[key].discard(closing.letter)
            if not self._open[key]:
                del self._open[key]


def heals(receipt: Receipt, entry: LetterEntry) -> bool:
    """Return whether a receipt of the letter's document says that the matter is settled."""
    return (
        receipt.outcome in GOOD
        and not receipt.dropped
        and (entry.revision is None or receipt.revision >= entry.revision)
        and (not entry.batch or receipt.batch == entry.batch)
        and receipt.settled_at is not None
        and receipt.settled_at >= entry.failed_at
    )


def entry_of(name: str, letter: DeadLetter) -> LetterEntry:
    """Return what the index keeps of a letter."""
    return LetterEntry(
        letter=name,
        topic=letter.topic,
        partition=letter.partition,
        offset=letter.offset,
        key=letter.key if letter.key is None or len(letter.key) <= 1400 else None,
        size=len(letter.value or "") * 3 // 4,
        stage=letter.stage,
        batch=letter.batch,
        error=letter.error,
        reason=letter.reason[:REASON_CHARACTERS],
        tenant_id=letter.tenant_id,
        document_id=letter.document_id,
        revision=letter.revision,
        event_id=letter.event_id,
        failed_at=letter.failed_at,
    )


def named_document(entry: LetterEntry) -> tuple[str, str] | None:
    """Return tenant and document: as the refused record named them, or else by its key where that is tenant/document."""
    if entry.document_id:
        return entry.tenant_id, entry.document_id
    try:
        return split_document_key(base64.b64decode(entry.key or ""))
    except ValueError:
        return None


def closings(letters: Iterable[str], state: Literal["replayed", "dropped"], at: datetime, note: str) -> list[LetterClosing]:
    """Return the closings of letters by a person's word."""
    return [LetterClosing(letter=name, state=state, at=at, note=note) for name in letters]


def _key_of(entry: LetterEntry) -> bytes | None:
    document = named_document(entry)
    return None if document is None else document_key(*document)


def _age(letter: Letter) -> tuple[datetime, int, int]:
    return letter.entry.failed_at, *letter.place
