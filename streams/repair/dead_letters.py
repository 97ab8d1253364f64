"""Dead letters: listed, shown, replayed through the front door, dropped. Functions on settings; `decide_replay` is pure.

Replay sends an event to [documents] and nothing else: all stages take it as any other. For a letter of the parser it is the
refused event itself, for one of a batch the newest event of its document: what was refused there was made of it, or is said again
by a newer revision, which the parser knew as nothing new and never passed on. It carries `reindex`, so that an equal revision
passes, and the trace of the record that was refused; its event id names the letter.

Order of effects, and what a crash in between leaves:
  ① the events; the broker has them          the letters are still open: running it again sends them again, which changes nothing
  ② the letters are closed as replayed
  ③ [documents] ends in the newest revision of each document again, should somebody have edited one meanwhile (`newest.mend_order`)
"""

from __future__ import annotations

import base64
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Literal

from schemas.batch import BatchRecord
from schemas.codec import UndecodableRecord, decode, encode
from schemas.dead_letter import DeadLetter
from schemas.document_change import DocumentChange
from schemas.letter_index import CLOSED, LetterClosing
from schemas.record import document_key
from streams.crash_points import reached
from streams.errors import NotPrepared, UsageError
from streams.kafka.produce import OutRecord
from streams.ports import InRecord
from streams.reading.batches import newest_batches
from streams.repair.broker import Broker, KafkaBroker
from streams.repair.letter_reader import LetterReader
from streams.repair.letters import Letter, LetterBook, Wanted, closings
from streams.repair.newest import Newest, mend_order, newest_events, readable, records_at, sent_again, trace_of
from streams.settings import Settings

GROUP = 50
"""Letters replayed between two confirmations of the broker."""
ReplayOutcome = Literal["sent", "closed", "stale", "refused"]


@dataclass(frozen=True, slots=True)
class LetterList:
    """What `list_letters` found: the newest `letters` of `matching`, and how many are open in all."""

    letters: tuple[Letter, ...]
    matching: int
    open: int


@dataclass(frozen=True, slots=True)
class FoundLetter:
    """A letter with what was refused. `newest`: the newest event of its document, where one is named and left."""

    letter: Letter
    record: DeadLetter
    newest: Newest | None

    @property
    def value(self) -> bytes | None:
        """The refused record's bytes; None where it was null, or too large to be kept in the letter."""
        return None if self.record.value is None else base64.b64decode(self.record.value)

    @property
    def key(self) -> bytes | None:
        """The refused record's key."""
        return None if self.record.key is None else base64.b64decode(self.record.key)


@dataclass(frozen=True, slots=True)
class Replayed:
    """What became of one letter. closed: replayed, healed or dropped before. stale: a newer revision has the last word."""

    letter: Letter
    outcome: ReplayOutcome
    reason: str


@dataclass(frozen=True, slots=True)
class Send:
    """The decision to send something. `change` None: what the newest event of the document says."""

    change: DocumentChange | None
    reason: str


def read_letters(settings: Settings, broker: Broker | None = None) -> LetterBook:
    """Return every letter and where it stands. NotPrepared (a topic is missing), NotReachable."""
    broker = broker or KafkaBroker(settings.kafka)
    book = LetterReader(settings, broker=broker).refresh()
    batches: list[BatchRecord] = []
    with suppress(NotPrepared):  # no batch was ever begun
        topic = settings.topics.batches
        batches = newest_batches(broker.read(topic, broker.ends(topic)))
    book.retire({batch.batch for batch in batches if batch.state == "retired"}, broker.now())
    return book


def list_letters(settings: Settings, wanted: Wanted, limit: int = 50) -> LetterList:
    """Return the newest letters that are asked for, at most `limit`."""
    book = read_letters(settings)
    matching = book.letters(wanted)
    return LetterList(tuple(matching[:limit]), len(matching), book.open_count)


def find_letter(settings: Settings, name: str) -> FoundLetter:
    """Return one letter with its bytes. UsageError where there is none of that name."""
    broker = KafkaBroker(settings.kafka)
    letter = named(read_letters(settings, broker), settings, [name])[0]
    record = read_records(settings, [letter], broker)[letter.id]
    document = letter.document
    newest = None
    if document is not None:
        key = document_key(*document)
        newest = newest_events(broker, settings.topics.documents, [key]).last_words.get(key)
    return FoundLetter(letter, record, newest)


def named(book: LetterBook, settings: Settings, names: Iterable[str]) -> list[Letter]:
    """Return the letters of these names (``3-17``, also with the topic's name before it), each once. UsageError: unknown name."""
    found: dict[str, Letter] = {}
    for name in names:
        letter = book.letter(name.removeprefix(f"{settings.topics.dead_letters}-"))
        if letter is None:
            raise UsageError(f"no dead letter {name[:80]!r}: docdelta dead-letters list --state all shows their names")
        found[letter.id] = letter
    return list(found.values())


def replay(
    settings: Settings,
    letters: Sequence[Letter],
    dry_run: bool = False,
    on_progress: Callable[[int], None] = lambda done: None,
    broker: Broker | None = None,
) -> list[Replayed]:
    """Send the events of letters again, and return what became of each, in the order given. See the order of effects above.

    Safe to repeat: a letter that is closed is left alone. `dry_run`: only decide.
    """
    broker = broker or KafkaBroker(settings.kafka)
    topics = settings.topics
    open_ones = [letter for letter in letters if letter.state == "open"]
    keys = {document_key(*letter.document) for letter in open_ones if letter.document is not None}
    newest = newest_events(broker, topics.documents, keys).last_words if keys else {}
    begins = broker.ends(topics.documents)
    outcomes = {letter.id: _already(letter) for letter in letters if letter.state != "open"}
    done = len(outcomes)
    sent = False
    for start in range(0, len(open_ones), GROUP):
        group = open_ones[start : start + GROUP]
        decided = _decide(settings, broker, group, newest)
        going = {name: send for name, send in decided.items() if isinstance(send, Send)}
        if going and not dry_run:
            _send(settings, broker, [letter for letter in group if letter.id in going], going, newest)
            sent = True
        for letter in group:
            told = decided[letter.id]
            outcomes[letter.id] = told if isinstance(told, Replayed) else Replayed(letter, "sent", told.reason)
        done += len(group)
        on_progress(done)
    if sent:
        mend_order(broker, topics.documents, begins, _SUFFIX)
    return [outcomes[letter.id] for letter in letters]


def drop(
    settings: Settings, letters: Sequence[Letter], note: str = "", dry_run: bool = False, broker: Broker | None = None
) -> list[Letter]:
    """Close open letters for good, without sending anything; return those that were open. The records stay on the broker."""
    open_ones = [letter for letter in letters if letter.state == "open"]
    if open_ones and not dry_run:
        broker = broker or KafkaBroker(settings.kafka)
        _close(settings, broker, closings([each.id for each in open_ones], "dropped", broker.now(), note or "dropped by hand"))
    return open_ones


def decide_replay(letter: Letter, original: DocumentChange | None, newest: Newest | None, unreadable: str = "") -> Send | Replayed:
    """Return what to do with an open letter. `original`: the refused event, for a letter of the parser whose bytes can be read;
    `unreadable` says why it can't."""
    entry = letter.entry
    if entry.stage == "parser" and original is None:
        again = "send the document again (docdelta put, docdelta sync), then it heals"
        if letter.document is None:
            again = "have its sender send a readable event under key tenant/document, then docdelta dead-letters drop " + letter.id
        return Replayed(letter, "refused", f"what was refused can't be an event: {unreadable or entry.reason}; {again}")
    if entry.stage != "parser" and newest is None:
        return Replayed(
            letter, "refused", "no event of its document is left in [documents]; send it again (docdelta put, docdelta sync)"
        )
    revision = original.revision if original is not None else entry.revision
    overtaken = newest is not None and revision is not None and newest.revision > revision
    if newest is not None and overtaken and (original is not None or newest.op == "delete"):
        return Replayed(
            letter, "stale", f"revision {newest.revision} is the document's newest; revision {revision} stays behind it"
        )
    if newest is not None and newest.op == "delete" and original is not None and original.op == "upsert":
        return Replayed(letter, "stale", "the document was deleted since")
    if original is not None:
        return Send(original, f"revision {original.revision} sent again")
    assert newest is not None
    return Send(None, f"newest event, {newest.op} revision {newest.revision}, sent again")


_SUFFIX = "#replay"


def _already(letter: Letter) -> Replayed:
    assert letter.closing is not None
    closing = letter.closing
    return Replayed(letter, "closed", f"already {closing.state} at {closing.at:%Y-%m-%d %H:%M:%S}Z: {closing.note}")


def _decide(
    settings: Settings, broker: Broker, letters: Sequence[Letter], newest: Mapping[bytes, Newest]
) -> dict[str, Send | Replayed]:
    """Return the decision on each letter, by name."""
    records = read_records(settings, [letter for letter in letters if letter.entry.stage == "parser"], broker)
    decided: dict[str, Send | Replayed] = {}
    for letter in letters:
        document = letter.document
        known = newest.get(document_key(*document)) if document is not None else None
        original, unreadable = None, ""
        if letter.entry.stage == "parser":
            original, unreadable = _original(broker, records[letter.id])
        decided[letter.id] = decide_replay(letter, original, known, unreadable)
    return decided


def _original(broker: Broker, letter: DeadLetter) -> tuple[DocumentChange | None, str]:
    """Return the refused event, or why there is none."""
    value = None if letter.value is None else base64.b64decode(letter.value)
    key = None if letter.key is None else base64.b64decode(letter.key)
    place = letter.facts.get("bytes", "")
    if value is None and place:
        kept = list(records_at(broker, letter.topic, [(letter.partition, letter.offset)]))
        if not kept or kept[0].value is None:
            return None, f"its bytes were too large for the letter, and {place} is no longer kept"
        value = kept[0].value
    if value is None:
        return None, "a null value under a key that names no document"
    try:
        change = decode(value, DocumentChange)
    except UndecodableRecord as error:
        return None, str(error)
    if key != document_key(change.tenant_id, change.document_id):
        return None, "its key is not tenant/document of its value"
    return change, ""


def _send(
    settings: Settings, broker: Broker, letters: Sequence[Letter], going: Mapping[str, Send], newest: Mapping[bytes, Newest]
) -> None:
    """① events ② closings. One event a document: letters of several batches, or of repeats, are about the same one."""
    topic = settings.topics.documents
    asked: dict[bytes, Letter] = {}
    for letter in letters:
        assert letter.document is not None or going[letter.id].change is not None
        change = going[letter.id].change
        key = document_key(change.tenant_id, change.document_id) if change else document_key(*(letter.document or ("", "")))
        before = asked.get(key)
        if before is None or (letter.entry.revision or 0) >= (before.entry.revision or 0):
            asked[key] = letter
    traces = {name: trace_of(record.headers) for name, record in read_records(settings, list(asked.values()), broker).items()}
    from_log = {key: newest[key] for key, letter in asked.items() if going[letter.id].change is None}
    logged = {
        record.key or b"": record for record in records_at(broker, topic, [(n.partition, n.offset) for n in from_log.values()])
    }
    events: list[OutRecord] = []
    for key, letter in asked.items():
        change = going[letter.id].change or _said(logged.get(key), newest[key], letter)
        again = sent_again(change, f"{letter.id}{_SUFFIX}")
        events.append(OutRecord(topic, key, encode(again), traces[letter.id], "replay"))
    broker.write(events)
    reached("replay.sent")
    _close(settings, broker, closings([each.id for each in letters], "replayed", broker.now(), "sent again through [documents]"))


def _said(record: InRecord | None, newest: Newest, letter: Letter) -> DocumentChange:
    """Return the newest event of a letter's document, from its record; a null value is a delete at the revision that it ended."""
    tenant, document = letter.document or ("", "")
    if newest.null:
        revision = max(newest.revision, letter.entry.revision or 0)
        return DocumentChange(tenant_id=tenant, document_id=document, revision=revision, op="delete")
    change = readable(record) if record is not None else None
    if change is None:
        raise NotPrepared(f"the newest event of {tenant}/{document} was compacted away just now; run the same command again")
    return change


def read_records(settings: Settings, letters: Collection[Letter], broker: Broker) -> dict[str, DeadLetter]:
    """Return the whole letters, by name. NotPrepared where one is gone from the broker."""
    places = {letter.place: letter.id for letter in letters}
    found = {
        places[record.partition, record.offset]: decode(record.value, DeadLetter)
        for record in records_at(broker, settings.topics.dead_letters, places)
        if record.value is not None
    }
    missing = sorted(letter.id for letter in letters if letter.id not in found)
    if missing:
        raise NotPrepared(f"dead letter {', '.join(missing[:5])} is no longer on the broker; docdelta dead-letters drop it")
    return found


def _close(settings: Settings, broker: Broker, made: Iterable[LetterClosing]) -> None:
    topic = settings.topics.letter_index
    broker.write([OutRecord(topic, (CLOSED + each.letter).encode(), encode(each)) for each in made])
