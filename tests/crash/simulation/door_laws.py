"""The laws of a door, held at every record: what a rejection spares, and how much may end before a person decides."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence

from schemas.codec import decode
from schemas.control import Control, Decision, Verdict
from schemas.held_change import HeldChange
from schemas.parsed_document import ParsedDocument
from schemas.receipt import Receipt
from streams.controls.counts import tenant_of
from streams.controls.state import fold
from streams.ports import InRecord
from streams.steps.limits import Limits
from streams.steps.settle_change import Seen
from tests.crash.simulation.histories import History
from tests.crash.simulation.oracle import event_of
from tests.crash.simulation.world import NAMES, World

LIMITS = Limits(share=0.5, minimum=1)


class Spared:
    """The law of a rejection: what stood in [documents] or waited in [bulk] when it was taken takes no document away any more."""

    def __init__(self, world: World, history: History, fail: Callable[[str], None]) -> None:
        ids = Counter(event.event_id for event in history.events)
        self._world, self._fail = world, fail
        self._deletes = {e.event_id: e for e in history.events if e.kind == "delete" and ids[e.event_id] == 1 and not e.reindex}
        self._spared: dict[str, set[str]] = {}
        self._alone = world.partitions == 1 and "zombie" not in history.faults
        self._tripped: set[str] = set()
        """Tenants whose breaker was tripped anew, by somebody who knew of the decision."""
        self.bulk_ends: dict[str, dict[int, int]] = {}
        """Where [bulk] ended when the command for a tenant began."""

    def look(self, record: InRecord) -> None:
        """Take note of a decision, and complain about a delete that passes against it."""
        if record.topic == NAMES.controls and record.value is not None:
            control = decode(record.value, Control)
            if control.decisions and control.tenant_id is not None:
                self._spared[control.tenant_id] = self._decided_on(control.tenant_id, control.decisions)
                self._tripped.discard(control.tenant_id)
            elif control.kind == "tripped" and control.decision and control.tenant_id is not None:
                self._tripped.add(control.tenant_id)
        elif record.topic == NAMES.held and record.value is not None and self._alone:
            held = decode(record.value, HeldChange)
            if held.tenant_id in self._tripped and held.event_id in self._spared.get(held.tenant_id, ()):
                self._fail(f"event {held.event_id} is held anew, though it was decided against before")
        elif record.topic == NAMES.receipts and record.value is not None:
            receipt = decode(record.value, Receipt)
            if (
                receipt.dropped
                and receipt.event_id in self._deletes
                and self._verdict(receipt.tenant_id, receipt.event_id) != "reject"
            ):
                self._fail(f"event {receipt.event_id} is dropped, and nobody decided against it, or not first")
        elif record.topic == NAMES.parsed and record.value is not None:
            passed = decode(record.value, ParsedDocument)
            row = self._row(record.key or b"")
            if passed.event_id in self._spared.get(passed.tenant_id, ()) and row is not None and row.live and row.passing < 0:
                self._fail(f"event {passed.event_id} takes {passed.document_id} away, though it was decided against before")

    def _decided_on(self, tenant: str, decisions: Sequence[Decision]) -> set[str]:
        *before, newest = decisions
        if newest.verdict != "reject":
            return set()
        # What a command had approved that was cut short stands.
        approved = (self._waiting(tenant, each.ends, each.bulk_ends) for each in before if each.verdict == "approve")
        return self._waiting(tenant, newest.ends, self.bulk_ends.get(tenant, {})).difference(*approved)

    def _waiting(self, tenant: str, documents: Mapping[int, int], bulk: Mapping[int, int]) -> set[str]:
        ends = {NAMES.documents: documents, NAMES.bulk: bulk}
        sent = [r for topic, end in ends.items() for r in self._world.records(topic) if r.offset < end.get(r.partition, 0)]
        passed = {decode(record.value, ParsedDocument).event_id for record in self._world.records(NAMES.parsed) if record.value}
        known = {event_of(record.key, record.value).event_id for record in sent} - passed
        return {name for name in known if name in self._deletes and self._deletes[name].tenant == tenant}

    def _verdict(self, tenant: str, event_id: str) -> Verdict | None:
        """Return what was first decided of an event: by where it first stood in [documents], or in [bulk]."""
        sent = [r for topic in (NAMES.documents, NAMES.bulk) for r in self._world.records(topic)]
        places = [(r.topic, r.partition, r.offset) for r in sent if event_of(r.key, r.value).event_id == event_id]
        for decision in fold(self._world.records(NAMES.controls)).decided.get(tenant, ()):
            ends = {NAMES.documents: decision.ends, NAMES.bulk: decision.bulk_ends}
            if any(offset < ends[topic].get(number, 0) for topic, number, offset in places):
                return decision.verdict
        return None

    def _row(self, key: bytes) -> Seen | None:
        return rows_of(self._world, self._world.partition_of(key)).get(key)


def rows_of(world: World, partition: int) -> dict[bytes, Seen]:
    """Return what the parser remembers of a partition's documents, as its changelog tells."""
    return {key: Seen.from_bytes(value) for key, value in world.recovered_table("parser", partition).items()}


class Share:
    """The law of a breaker: until a person decides, less of a tenant's documents end than the share, whoever died on the way."""

    def __init__(self, world: World, history: History, fail: Callable[[str], None]) -> None:
        self._world, self._fail = world, fail
        self._alone = "zombie" not in history.faults  # two owners who don't know of each other count apart
        self._decided: set[str] = set()

    def look(self, record: InRecord) -> None:
        """Complain about an end that is one too many."""
        if not self._alone or record.key is None or record.value is None:
            return
        if record.topic == NAMES.controls:
            control = decode(record.value, Control)
            if control.decisions and control.tenant_id is not None:
                self._decided.add(control.tenant_id)
        elif record.topic == NAMES.parsed and decode(record.value, ParsedDocument).op == "delete":
            tenant = tenant_of(record.key)
            rows = [row for key, row in rows_of(self._world, record.partition).items() if tenant_of(key) == tenant]
            ended = sum(bool(row.at) and (row.deleted or row.ending) for row in rows)
            there = ended + sum(row.live and not row.ending for row in rows)
            if ended and tenant not in self._decided and ended >= max(LIMITS.minimum, LIMITS.share * there):
                self._fail(f"{ended} of {there} documents of tenant {tenant} end, and nobody decided on it")
