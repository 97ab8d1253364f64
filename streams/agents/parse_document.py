"""The parser agent's body: one DocumentChange record in, one ParsedDocument or one outcome out.

Order of effects, and what a crash in between leaves:
  ① publish the parsed document, or the receipt, or the dead letter; the broker has it
       crash here: the record comes again and ① is repeated with the same content
  ② remember what was seen
       crash here: the record comes again and is known as the same event
  ③ where the record is late, its document's newest event is said again behind it (order.py)
       crash here: the record comes again, is late again, and ③ is repeated
  ④ the caller lets the offset advance
What is held back takes another way (holding.py).
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass, replace
from datetime import datetime
from typing import Protocol

import structlog

from chunking.document import Document
from schemas.codec import decode, encode
from schemas.document_change import FORGET, DocumentChange
from schemas.parsed_document import PREVIOUS
from schemas.record import document_key, split_document_key
from streams.agents.attempts import attempt, understood
from streams.agents.holding import Drop, Event, Holding, Keep, Nothing, Pass, Settle
from streams.agents.order import Order, agrees, is_known, is_said_again, stood_last
from streams.agents.refusals import About, Outbox
from streams.controls.release import standing_of
from streams.crash_points import reached
from streams.errors import InvariantBroken, PoisonRecord
from streams.ports import InRecord, Table
from streams.steps.read_content import read_content
from streams.steps.settle_change import (
    AlreadySettled,
    Seen,
    ToEnd,
    ToParse,
    change_fingerprint,
    dated,
    dropped,
    failed,
    newest_revision,
    passed_before,
    passing,
    settle_change,
    still_dropped,
)
from streams.steps.wire_document import end_to_wire, to_wire
from streams.topics import MAX_PARSED_BYTES

log = structlog.get_logger(__name__)
WHAT = "keeping the order of [documents]"
"""What a worker that waits here says it is at."""


class Parse(Protocol):
    """Parses one document within limits (see `streams.sandbox`). Raises PoisonRecord."""

    async def __call__(
        self, data: bytes | str, media_type: str, *, title: str, language: str, kind: str, labels: tuple[str, ...], place: str
    ) -> Document:
        """Return the document. `place` (``tenant/document@revision``) names it in errors."""
        ...


@dataclass(frozen=True, slots=True)
class ParserAgent:
    """What the parser agent may touch, and its body `handle`."""

    outbox: Outbox
    seen: Table
    parse: Parse
    fetch: Callable[[str, int], Awaitable[bytes]]
    """(reference, largest size) to bytes. Raises PoisonRecord or Unavailable."""
    max_document_bytes: int
    poison_attempts: int = 3
    holding: Holding | None = None
    """The door. None: all may pass."""
    order: Order | None = None
    """How the newest event of a document is said again. None: it is not."""

    async def handle(self, record: InRecord) -> None:
        """Settle one record of [documents]. Raises only what stops the worker (see `attempt`)."""
        if record.value is None and FORGET in record.headers:
            # Nothing is said: compaction may drop the delete before it, and the row that remembers it stays.
            await self._keep_order(record, None, self._row_of(record))
            return
        about: About | None = None
        change: DocumentChange | None = None
        fingerprint = ""
        try:
            known = change = understood(lambda: self._change(record))
            about = _about(change)
            fingerprint = said = understood(lambda: change_fingerprint(known))
            row = await attempt(lambda: self._settle(record, known, said), self.outbox.patience, self.poison_attempts, "parsing")
        except PoisonRecord as error:
            await self.outbox.refuse(record, error, about)
            row = self._row_of(record)
        await self._keep_order(record, change, row, fingerprint)

    async def _keep_order(self, record: InRecord, change: DocumentChange | None, row: Seen | None, fingerprint: str = "") -> None:
        """Do ③: where a record stands behind the newest event of its document and says something else, say that one again.

        `row`: of its document, as it stands now. Not while an event of the document is held: that one comes back through
        [documents], or is dropped, and then it is done.
        """
        if self.order is None or row is None or row.known is None or row.held is not None or record.offset <= row.offset:
            return
        if change is None and record.value is None and row.deleted:
            return  # `docdelta gc` forgets an end
        try:
            await attempt(
                lambda: self._stand_last(record, change, row, fingerprint), self.outbox.patience, self.poison_attempts, WHAT
            )
        except PoisonRecord as error:
            log.warning("the newest event of a document could not be said again", reason=str(error), offset=record.offset)

    async def _stand_last(self, record: InRecord, change: DocumentChange | None, row: Seen, fingerprint: str) -> None:
        assert self.order is not None
        if change is not None and agrees(change, row, fingerprint):
            # It says the same and stands later: compaction keeps this one.
            await self.outbox.patience.hold(
                lambda: self.seen.put(record.key or b"", stood_last(row, record.offset).to_bytes()), "remembering what was seen"
            )
        else:
            await self.order.say_newest(record, row)

    def _change(self, record: InRecord) -> DocumentChange:
        """Return the change in a record; a null value means delete, at the newest revision seen."""
        if record.key is None:
            raise PoisonRecord("record has no key; produce it with key tenant/document, so that its order is kept")
        event_id = f"{record.topic}-{record.partition}-{standing_of(record).offset}"
        if record.value is None:
            try:
                tenant, document = split_document_key(record.key)
            except ValueError as error:
                raise PoisonRecord(f"key of a null value: {error}; use tenant/document") from error
            newest = newest_revision(self._row(record.key))
            return DocumentChange(tenant_id=tenant, document_id=document, revision=newest, op="delete", event_id=event_id)
        change = decode(record.value, DocumentChange)
        if record.key != document_key(change.tenant_id, change.document_id):
            raise PoisonRecord("key is not tenant/document of the value; its order against other events is not kept")
        return change if change.event_id else change.model_copy(update={"event_id": event_id})

    async def _settle(self, record: InRecord, change: DocumentChange, fingerprint: str) -> Seen | None:
        """Do ① and ② of one event, and return its document's row as it stands then."""
        assert record.key is not None
        row, standing = self._row(record.key), standing_of(record)
        seen, received_at = row.known if row is not None else None, self._received_at(record)
        decision: ToParse | ToEnd | AlreadySettled
        try:
            if record.value is None and seen is not None and standing.offset < seen.offset:
                # Delivered again, after newer revisions were remembered: it deleted what came before it, not them.
                decision = AlreadySettled(None, "the same event again")
            elif is_said_again(record) and seen is not None and is_known(change, seen, fingerprint):
                decision = AlreadySettled(None, "said again")
            else:
                decision = settle_change(change, seen, fingerprint)
        except PoisonRecord as error:
            if not standing.release:
                raise
            await self.outbox.refuse(record, error, _about(change))
            decision = AlreadySettled(None, "refused")
        at = received_at.timestamp()
        if self.holding is not None:
            at = self.holding.counts.time_of(record.partition, at, self.outbox.now().timestamp())
        event = Event(record, standing, change, row, decision, at)
        if event.outlived:
            event = replace(event, decision=settle_change(change, None, fingerprint))
        answer = await self.holding.look(event) if self.holding is not None else Pass()
        if isinstance(answer, Nothing):
            return row
        if isinstance(answer, Keep):
            assert self.holding is not None
            about = replace(_about(change), received_at=received_at)
            return await self._remember(event, await self.holding.keep(event, answer, about))
        if isinstance(answer, Settle):
            await self._tell(change, answer.outcome)
            return row
        if isinstance(answer, Drop):
            receipt = self.outbox.receipt(_about(change), "unchanged", answer.why)
            await self.outbox.settle(receipt.model_copy(update={"dropped": True}))
            return await self._let_go(event, dropped(event.row, change.revision))
        if answer.counting is not None and self.holding is not None:
            with self.holding.counts.in_hand(change.tenant_id, answer.counting):
                event = await self._mark_as_passing(event, self.holding.epoch(change.tenant_id))
        return await self._pass(event, received_at, answer)

    async def _mark_as_passing(self, event: Event, epoch: str) -> Event:
        """Remember that there was room for an event, before it is out, and return it with its new row."""
        assert event.row is not None
        assert event.effect is not None
        row = await self._remember(event, passing(event.row, event.effect, event.standing.offset, event.at, epoch))
        return replace(event, row=row)

    async def _pass(self, event: Event, received_at: datetime, answer: Pass) -> Seen | None:
        """Do ① and ② of an event that nothing holds back."""
        record, change, decision = event.record, event.change, event.decision
        assert record.key is not None
        remember: Seen | None = decision.seen
        passed = True
        if isinstance(decision, AlreadySettled):
            await self._tell(change, decision)
            remember = passed_before(decision.seen, event.row) if decision.seen is not None else None
        elif isinstance(decision, ToEnd):
            await self._pass_on(event, encode(end_to_wire(change, received_at)))
        else:
            try:
                await self._pass_on(event, await self._parsed(change, received_at))
            except PoisonRecord as error:
                await self.outbox.refuse(record, error, _about(change))
                remember, passed = passed_before(failed(decision.seen), event.row), False
        reached("parser.published")
        if event.outlived and event.row is not None:
            remember = replace(event.row, passing=-1, passed=change.revision if passed else event.row.passed)
        elif remember is not None:
            remember = self._counted(event, remember, answer)
        return await self._let_go(event, remember)

    def _counted(self, event: Event, remember: Seen, answer: Pass) -> Seen:
        """Return what is remembered of an event that has passed, with the time from which it counts."""
        epoch = self.holding.epoch(event.change.tenant_id) if self.holding is not None else ""
        at = 0.0 if answer.covered else event.at
        if event.is_passing and event.row is not None:
            at, epoch = event.row.at, event.row.epoch  # as of when there was room for it
        kept = still_dropped(remember, event.row)
        return replace(dated(remember, event.row, event.effect, at, epoch), offset=event.record.offset, dropped=kept)

    async def _let_go(self, event: Event, remember: Seen | None) -> Seen | None:
        if self.holding is not None:
            remember = await self.holding.let_go(event, remember)
        if remember is None:
            return event.row
        await self._remember(event, remember)
        reached("parser.remembered")
        return remember

    async def _remember(self, event: Event, row: Seen) -> Seen:
        key, value = event.record.key or b"", row.to_bytes()
        await self.outbox.patience.hold(lambda: self.seen.put(key, value), "remembering what was seen")
        if self.holding is not None:
            self.holding.counts.change(event.record.partition, key, event.row, row)
        return row

    async def _tell(self, change: DocumentChange, settled: AlreadySettled) -> None:
        if settled.outcome is not None:
            await self.outbox.settle(self.outbox.receipt(_about(change), settled.outcome, settled.reason))

    def _received_at(self, record: InRecord) -> datetime:
        """Return when the event reached [documents]: by the record's own time where it has one, so that the wait there counts."""
        now = self.outbox.now()
        # Compared as numbers first: a producer may write a time that no calendar has.
        return datetime.fromtimestamp(record.timestamp, now.tzinfo) if 0 < record.timestamp < now.timestamp() else now

    async def _parsed(self, change: DocumentChange, received_at: datetime) -> bytes:
        assert change.content is not None
        fetched = None
        if change.content.ref is not None:
            reference = change.content.ref
            fetched = await self.outbox.patience.hold(lambda: self.fetch(reference, self.max_document_bytes), "fetching content")
        body = read_content(change.content, self.max_document_bytes, fetched)
        document = await self.parse(
            body,
            change.media_type,
            title=change.title,
            language=change.language,
            kind=change.kind,
            labels=change.labels,
            place=f"{change.tenant_id}/{change.document_id}@{change.revision}",
        )
        value = encode(to_wire(change, document, received_at))
        if len(value) > MAX_PARSED_BYTES:
            raise PoisonRecord(f"parsed document takes {len(value)} bytes, above {MAX_PARSED_BYTES}; split the page")
        return value

    async def _pass_on(self, event: Event, value: bytes) -> None:
        previous = event.row.last_passed if event.row is not None else None
        headers = {PREVIOUS: str(previous).encode()} if previous is not None else {}
        await self.outbox.publish(self.outbox.topics.parsed, event.record.key or b"", value, headers)

    def _row_of(self, record: InRecord) -> Seen | None:
        return self._row(record.key) if record.key is not None else None

    def _row(self, key: bytes) -> Seen | None:
        value = self.seen.get(key)
        if value is None:
            return None
        try:
            return Seen.from_bytes(value)
        except ValueError as error:
            raise InvariantBroken(
                "table 'seen' holds an unreadable value; restore or rebuild the parser's state", key=key
            ) from error


def _about(change: DocumentChange) -> About:
    return About(change.tenant_id, change.document_id, change.revision, change.event_id, change.title, change.occurred_at)
