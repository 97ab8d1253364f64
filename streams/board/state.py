"""BoardState: what the page shows, kept as records pass. Pure: no clock, no Kafka, no index.

Each record costs the same however many came before it, everything is bounded by the limits below, and nothing is scanned but what
is shown. [letter-index] and [dead-letters] must be taken up to now before [receipts]: a receipt heals the letters that are known
(the law is `streams.repair.letters.heals`, as for the command and the metric).
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Hashable, Iterable
from dataclasses import dataclass, field
from itertools import islice
from typing import Any

from schemas.batch import BatchRecord
from schemas.dead_letter import DeadLetter
from schemas.held_change import HeldChange
from schemas.letter_index import LetterEntry
from schemas.receipt import Receipt
from streams.board.figures import Hour
from streams.board.tally import Tally
from streams.repair.letters import entry_of, heals, named_document

KNOWN_RECEIPTS = 100_000
"""Receipts remembered to tell a repeat: repeats follow a crash or a handover, within minutes."""
OPEN_LETTERS = 20_000
"""Open dead letters, and held documents, that are known one by one. With more, the oldest are only counted."""
CLOSED_LETTERS = 20_000
KNOWN_TENANTS = 5_000
"""Tenants that have figures of their own; later ones are counted together."""
KNOWN_TITLES = 2_000
KNOWN_BATCHES = 32
SLOWEST = 60
"""Minutes whose slowest document is remembered."""
REASON_CHARACTERS = 400

Document = tuple[str, str]
"""Tenant and document."""


@dataclass(frozen=True, slots=True)
class Letter:
    """An open dead letter. `document` None: it names none. `at`: when it was written."""

    entry: LetterEntry
    document: Document | None

    @property
    def id(self) -> str:
        """``<partition>-<offset>`` of its record in [dead-letters]."""
        return self.entry.letter

    @property
    def at(self) -> float:
        """Seconds since 1970."""
        return self.entry.failed_at.timestamp()


@dataclass(frozen=True, slots=True)
class Held:
    """A change that waits for a person."""

    tenant: str
    document: str
    title: str
    op: str
    reason: str
    why: str
    since: float


@dataclass(frozen=True, slots=True)
class Slow:
    """An event that took long to become searchable."""

    minute: int
    tenant: str
    document: str
    title: str
    batch: str
    seconds: float


@dataclass(slots=True)
class TenantRow:
    """One tenant."""

    tally: Tally = field(default_factory=Tally)
    last: float = 0.0
    """When something of it was settled last."""


@dataclass(slots=True)
class BatchRow:
    """What the receipts of one batch say."""

    tally: Tally = field(default_factory=Tally)
    hour: Hour = field(default_factory=Hour)


class Newest(OrderedDict[Any, Any]):
    """A dictionary of the newest `limit` things."""

    def __init__(self, limit: int) -> None:
        super().__init__()
        self._limit = limit

    def keep(self, key: Hashable, value: object = None) -> bool:
        """Store a thing as the newest. Returns whether it is new."""
        new = key not in self
        self[key] = value
        self.move_to_end(key)
        if len(self) > self._limit:
            self.popitem(last=False)
        return new


class BoardState:
    """The aggregates. Fed by `take_…`, read by streams/board/view.py."""

    def __init__(self) -> None:
        self.total = Tally()
        self.hour = Hour()
        """Everything settled, all batches."""
        self.batches: dict[str, BatchRecord] = {}
        self.alias = ""
        self.rows = Newest(KNOWN_BATCHES)
        self.tenants: OrderedDict[str, TenantRow] = OrderedDict()
        """Last settled last."""
        self.other_tenants = Tally()
        self.letters: OrderedDict[str, Letter] = OrderedDict()
        """Open ones, newest last."""
        self.refused: OrderedDict[Document | str, dict[str, None]] = OrderedDict()
        """Open letters by document, one that names none under its own name; what was refused last is last."""
        self.letters_written = 0
        """All there ever were, repeats left out."""
        self.letters_forgotten = 0
        """Open letters beyond OPEN_LETTERS: counted, not known any more."""
        self.held: OrderedDict[Document, Held] = OrderedDict()
        """Newest last."""
        self.held_forgotten = 0
        self.held_by: dict[str, int] = {}
        """Held changes by tenant, those forgotten left out."""
        self.troubled: OrderedDict[str, int] = OrderedDict()
        """Open letters and held changes by tenant; the tenant that got into trouble last is last."""
        self.slowest: list[Slow | None] = [None] * SLOWEST
        self._titles = Newest(KNOWN_TITLES)
        self._closed = Newest(CLOSED_LETTERS)
        self._sources = Newest(CLOSED_LETTERS)
        self._receipts = Newest(KNOWN_RECEIPTS)

    # Records

    def take_receipt(self, receipt: Receipt, at: float, now: float) -> bool:
        """Count a receipt whose record was written `at` (seconds since 1970). Returns False for a repeat."""
        document = (receipt.tenant_id, receipt.document_id)
        for name in tuple(self.refused.get(document, ())):
            if heals(receipt, self.letters[name].entry):
                self.close_letter(name)
        if receipt.title and receipt.outcome in ("dead_lettered", "held"):
            self._titles.keep(document, receipt.title[:REASON_CHARACTERS])
        if not self._receipts.keep(hash((document, receipt.revision, receipt.event_id, receipt.batch, receipt.outcome))):
            return False
        moment = min(receipt.settled_at.timestamp() if receipt.settled_at else at, now)
        self.total.take(receipt)
        self._tenant(receipt.tenant_id, moment).take(receipt)
        self.hour.take(moment, None)
        if receipt.batch:
            row = self._row(receipt.batch)
            row.tally.take(receipt)
            seconds = self._searchable_after(receipt)
            row.hour.take(moment, seconds)
            if seconds is not None:
                self._keep_slow(receipt, int(moment // 60), seconds)
        return True

    def take_letter(self, letter: DeadLetter, partition: int, offset: int) -> None:
        """Take a dead letter whose own record stands at `partition`, `offset`. What repeats another one is left out."""
        name = f"{partition}-{offset}"
        if not self._sources.keep((letter.topic, letter.partition, letter.offset, letter.stage, letter.batch)):
            return
        self.letters_written += 1
        if name in self._closed or self._is_retired(letter.batch):
            return
        entry = entry_of(name, letter)
        document = named_document(entry)
        entry = entry.model_copy(update={"reason": entry.reason[:REASON_CHARACTERS], "key": None})
        self.letters[name] = Letter(entry, document)
        self._trouble(document[0] if document else "", 1)
        self.refused.setdefault(document or name, {})[name] = None
        self.refused.move_to_end(document or name)
        if len(self.letters) > OPEN_LETTERS:
            self._forget_letter(next(iter(self.letters)))
            self.letters_forgotten += 1

    def close_letter(self, name: str) -> None:
        """A letter was healed, replayed or dropped: it is nobody's trouble any more. May come before the letter itself."""
        self._closed.keep(name)
        self._forget_letter(name)

    def take_held(self, tenant: str, document: str, change: HeldChange | None) -> None:
        """Take a record of [held]; None: the change is held no more."""
        key = (tenant, document)
        if self.held.pop(key, None) is not None:
            self._hold(tenant, -1)
        if change is None:
            return
        why, title = change.why[:REASON_CHARACTERS], change.title[:REASON_CHARACTERS]
        self.held[key] = Held(tenant, document, title, change.op, change.reason, why, change.since.timestamp())
        self._hold(tenant, 1)
        if len(self.held) > OPEN_LETTERS:
            oldest, _ = self.held.popitem(last=False)
            self._hold(oldest[0], -1)
            self.held_forgotten += 1

    def take_batches(self, batches: Iterable[BatchRecord], alias: str) -> None:
        """Take the batches as the ledger has them now. Letters of a batch that is retired are nobody's trouble any more."""
        before, self.alias = self.batches, alias
        self.batches = {batch.batch: batch for batch in batches}
        gone = [name for name in self.batches if self._is_retired(name) and (name not in before or before[name].state != "retired")]
        if gone:
            for letter in [letter for letter in self.letters.values() if letter.entry.batch in gone]:
                self.close_letter(letter.id)

    # What is read

    @property
    def served(self) -> BatchRecord | None:
        """The batch that readers see, by the ledger."""
        return next((each for each in self.batches.values() if each.state == "active" and each.alias == self.alias), None)

    @property
    def open_letters(self) -> int:
        """Dead letters that are open."""
        return len(self.letters) + self.letters_forgotten

    @property
    def held_changes(self) -> int:
        """Changes that wait for a person."""
        return len(self.held) + self.held_forgotten

    @property
    def newest_reason(self) -> str:
        """Why the newest open letter was refused; nothing where none is known."""
        return next(reversed(self.letters.values())).entry.reason if self.letters else ""

    def newest_letters(self, count: int) -> list[Letter]:
        """Return the newest open letters."""
        return list(islice(reversed(self.letters.values()), count))

    def newest_refused(self, count: int) -> list[tuple[Letter, int]]:
        """Return the newest open letter of each of the documents that were refused last, and how many of its are open."""
        newest = islice(reversed(self.refused.values()), count)
        return [(self.letters[next(reversed(names))], len(names)) for names in newest]

    def newest_held(self, count: int) -> list[Held]:
        """Return the changes that were held last."""
        return list(islice(reversed(self.held.values()), count))

    def title(self, document: Document | None) -> str:
        """Return the title of a document in trouble, or nothing where it is not known."""
        found = self._titles.get(document) if document else None
        return str(found or "")

    def slow(self, now: float, count: int) -> list[Slow]:
        """Return the slowest documents of the last hour, one a minute at most, slowest first."""
        oldest = int(now // 60) - SLOWEST + 1
        recent = [found for found in self.slowest if found is not None and found.minute >= oldest]
        return sorted(recent, key=lambda found: -found.seconds)[:count]

    def shown_tenants(self, count: int) -> list[tuple[str, TenantRow, int]]:
        """Return up to `count` tenants with what is open of them: those in trouble first, then those settled last."""
        names = [name for name in islice(reversed(self.troubled), count) if name in self.tenants]
        recent = islice(reversed(self.tenants), count)
        names += [name for name in recent if name not in self.troubled]
        return [(name, self.tenants[name], self.troubled.get(name, 0)) for name in names[:count]]

    # Within

    def _is_retired(self, batch: str) -> bool:
        found = self.batches.get(batch)
        return found is not None and found.state == "retired"

    def _tenant(self, name: str, at: float) -> Tally:
        row = self.tenants.get(name)
        if row is None:
            if len(self.tenants) >= KNOWN_TENANTS:
                return self.other_tenants
            row = self.tenants[name] = TenantRow()
        self.tenants.move_to_end(name)
        row.last = max(row.last, at)
        return row.tally

    def _row(self, batch: str) -> BatchRow:
        row: BatchRow = self.rows.get(batch) or BatchRow()
        self.rows.keep(batch, row)
        return row

    def _searchable_after(self, receipt: Receipt) -> float | None:
        """Return how long an event took, where it changed something. What a build replays is old by nature and tells nothing."""
        if receipt.outcome != "indexed" or receipt.received_at is None or receipt.settled_at is None:
            return None
        batch = self.batches.get(receipt.batch)
        if batch is not None and batch.launch is not None and receipt.received_at < batch.launch.at:
            return None
        return max(0.0, (receipt.settled_at - receipt.received_at).total_seconds())

    def _keep_slow(self, receipt: Receipt, minute: int, seconds: float) -> None:
        there = self.slowest[minute % SLOWEST]
        if there is None or there.minute < minute or (there.minute == minute and there.seconds < seconds):
            title = receipt.title[:REASON_CHARACTERS]
            self.slowest[minute % SLOWEST] = Slow(
                minute, receipt.tenant_id, receipt.document_id, title, receipt.batch, seconds
            )

    def _forget_letter(self, name: str) -> None:
        letter = self.letters.pop(name, None)
        if letter is None:
            return
        self._trouble(letter.document[0] if letter.document else "", -1)
        names = self.refused[letter.document or name]
        del names[name]
        if not names:
            del self.refused[letter.document or name]

    def _hold(self, tenant: str, more: int) -> None:
        self.held_by[tenant] = self.held_by.get(tenant, 0) + more
        if not self.held_by[tenant]:
            del self.held_by[tenant]
        self._trouble(tenant, more)

    def _trouble(self, tenant: str, more: int) -> None:
        count = self.troubled.get(tenant, 0) + more
        if count <= 0:
            self.troubled.pop(tenant, None)
            return
        self.troubled[tenant] = count
        if more > 0:
            self.troubled.move_to_end(tenant)
