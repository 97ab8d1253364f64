"""Letters: histories in which what was refused is mended, sent again or dropped, and what is old is forgotten, at any moment.

`dead-letters replay` and `drop`, `gc` and the workers' keeping of the letters' index run as they are (operators.py); each may die
at every call of the broker, whose answers may be lost, and is then run again. Some documents are refused only until their cause is
mended. Once all is drained it is, and everything that is open is replayed; then the points must equal the oracle, and:

  nothing lost       no letter is open whose event could go now; an event that never went has a letter that somebody dropped
  closed is closed   a letter is never open again
  nothing open goes  what `gc` removes has been closed, and by something else than `gc`
  nothing is made up what stands in [documents] was sent by somebody: a replay says what its event said, at its revision
  no orphan          of a retired batch nothing is left
"""

from __future__ import annotations

import random
from collections import Counter
from dataclasses import dataclass, field, replace

from schemas.codec import decode
from schemas.dead_letter import DeadLetter
from schemas.document_change import AGAIN, FORGET
from schemas.parsed_document import ParsedDocument
from schemas.record import document_key
from streams.ports import InRecord
from streams.repair.letters import Letter, LetterBook, Wanted
from streams.repair.newest import SENT_AGAIN
from tests.crash.simulation.histories import (
    UNEMBEDDABLE,
    UNEMBEDDABLE_YET,
    UNREADABLE,
    UNREADABLE_YET,
    Command,
    Event,
    History,
    history_of,
)
from tests.crash.simulation.operators import Operator
from tests.crash.simulation.oracle import Expected, as_they_came, complaints, event_of, judge
from tests.crash.simulation.scheduler import Simulation
from tests.crash.simulation.world import BATCHES, NAMES, World

ROUNDS = 2
"""What is open at the end is replayed so often: what can go has gone then."""
COMMANDS = ("replay", "replay", "drop", "forget", "keep", "mend")


def letter_history(seed: int) -> History:
    """Return a history with dead letters that operators see to, old deletes that are forgotten, now and then beside a rollout."""
    history, dice = history_of(seed), random.Random(seed * 41 + 13)
    faults = (history.faults - {"lose_seen"}) | ({"kill_command"} if dice.random() < 0.7 else set())
    commands = history.commands
    if commands and dice.random() < 0.5:
        commands = (*commands, Command("retire", dice.randint(0, len(history.events)), "rollout"))
    return replace(
        history,
        events=_with_causes(history.events, dice),
        faults=faults,
        fault_limit=(history.fault_limit or dice.randint(1, 6)) if faults else 0,
        commands=(*commands, *_letter_commands(dice, len(history.events))),
        compaction=history.compaction or dice.random() < 0.4,
        repaired=False,
    )


def _letter_commands(dice: random.Random, events: int) -> tuple[Command, ...]:
    names = [dice.choice(COMMANDS) for _ in range(dice.randint(1, 5))]
    which = {"replay": (-1, 0, 1), "drop": (-1, 0, 1)}
    return tuple(Command(name, dice.randint(0, events), which=dice.choice(which.get(name, (-1,)))) for name in names)


def _with_causes(events: tuple[Event, ...], dice: random.Random) -> tuple[Event, ...]:
    """Return events of which some can't be used until their cause is mended, equal content alike."""
    causes: dict[tuple[object, ...], str] = {}
    made = []
    for event in events:
        if event.kind == "upsert":
            words = tuple(each for each in event.paragraphs if not each.startswith("%"))
            hopeless = len(words) < len(event.paragraphs)
            odds = (0.75, 0.95) if hopeless else (0.12, 0.2)
            said = event.key, event.paragraphs, event.title
            if said not in causes:
                roll = dice.random()
                causes[said] = UNREADABLE_YET if roll < odds[0] else UNEMBEDDABLE_YET if roll < odds[1] else ""
            if causes[said]:
                event = replace(event, paragraphs=(*words, causes[said]))
        made.append(event)
    return tuple(made)


def book_of(world: World) -> LetterBook:
    """Return every letter and where it stands, by what is in the logs now."""
    book = LetterBook()
    for topic, take in (
        (NAMES.letter_index, book.take_index),
        (NAMES.dead_letters, book.take_letter),
        (NAMES.receipts, book.take_receipt),
    ):
        for record in world.records(topic):
            if (record.topic, record.partition, record.offset) not in world.gone:
                take(record)
    book.retire([batch.batch for batch in world.ledger.in_order() if batch.state == "retired"], world.now())
    return book


@dataclass
class LetterSimulation(Simulation):
    """One history with operators who see to dead letters."""

    rounds_left: int = ROUNDS
    closed: set[str] = field(default_factory=set)
    dropped: dict[str, Letter] = field(default_factory=dict)

    def __post_init__(self) -> None:
        super().__post_init__()
        self.world.before_trim = self._look_at_what_goes

    def _end(self, operator: Operator) -> None:
        super()._end(operator)
        if operator.command.name in ("replay", "drop", "keep", "forget"):
            self._look_at_letters()

    def _look_at_letters(self) -> LetterBook:
        """Complain about a letter that is open again."""
        book = book_of(self.world)
        again = sorted(self.closed & {entry.letter for entry in book.open()})
        self.failures += [f"letter {name} was closed, and is open again" for name in again]
        letters = book.letters(Wanted(frozenset()))
        self.closed |= {letter.id for letter in letters if letter.state != "open"}
        self.dropped |= {letter.id: letter for letter in letters if letter.state == "dropped"}
        return book

    def _look_at_what_goes(self, topic: str, partition: int, offset: int) -> None:
        """Complain about an open letter that is removed."""
        goes = {f"{entry.letter}" for entry in book_of(self.world).open() if _place(entry.letter) < (partition, offset)}
        here = sorted(name for name in goes if _place(name)[0] == partition)
        self.failures += [f"letter {name} is forgotten, and is open" for name in here]

    def _repair(self) -> bool:
        if not self.rounds_left:
            return False
        self._faults_left, self._outage, self.world.mended = 0, None, True
        self.rounds_left -= 1
        self._run(Command("replay"))
        return True

    def _complaints(self) -> list[str]:
        book = self._look_at_letters()
        self._events = as_they_came(self.world)
        refused = self._refused()
        expected = judge(self._events, refused).documents
        let_be = {
            (batch.name, document_key(*letter.document))
            for letter in self.dropped.values()
            for batch in self.world.live
            if letter.document is not None and letter.entry.batch in ("", batch.name)
            if (letter.entry.revision or 0) >= _wanted_since(letter, expected[document_key(*letter.document)])
        }
        # The newest revision can't be read at all: what was refused of an older one waits for a better page (its letter is open).
        let_be |= {
            (letter.entry.batch, document_key(*letter.document))
            for letter in book.letters(Wanted(frozenset()))
            if letter.document is not None and letter.entry.batch and _is_hopeless(expected[document_key(*letter.document)])
        }
        two_owners = "zombie" in self.history.faults
        found = complaints(self.world, self._events, self._is_ordered, two_owners, let_be, refused)
        for key, document in expected.items():
            if document.failed and not _is_hopeless(document) and not any(place[1] == key for place in let_be):
                found.append(f"{key.decode()}: revision {document.revision} could go, and was never sent again")
        found += self._made_up() + self._left_of_retired()
        return self.failures + found + [f"letter {each.id} stays open: {each.entry}" for each in self._could_go(book)]

    def _made_up(self) -> list[str]:
        """Return records of [documents] that nobody sent."""
        sent = Counter((record.key, record.value) for record in self.world.produced)
        said = {event.event_id: event for event in self.history.events}
        found, nulls = [], Counter[bytes | None]()
        for record in self.world.records(NAMES.documents):
            if record.headers.keys() & {AGAIN, FORGET} or sent[record.key, record.value]:
                nulls[record.key] += record.value is None and FORGET not in record.headers
                continue
            event = event_of(record.key, record.value)
            first = said.get(SENT_AGAIN.sub("", event.event_id))
            if first is not None and replace(event, event_id=first.event_id, reindex=first.reindex) == replace(first, bulk=False):
                continue
            if event.kind != "delete":  # an end is said anew, with an id of its own, where a null value ended the document
                found.append(f"{record.topic}@{record.offset}: nobody has sent {event}")
        return found + [f"{key!r} was ended {n} times" for key, n in nulls.items() if n > sent[key, None]]

    def _left_of_retired(self) -> list[str]:
        """Return what is left of batches that are retired and whose command has ended."""
        if "retire" not in self._ended:
            return []
        gone = [batch for batch in BATCHES.values() if self._is_retired(batch.name)]
        left = [batch for batch in gone if batch.name in self.world.indexes or any(self._changes(batch.changes))]
        return [f"{batch.name} is retired, and something of it is left" for batch in left]

    def _changes(self, topic: str) -> list[list[InRecord]]:
        return [self.world.logs[topic, number] for number in range(self.world.partitions)]

    def _is_retired(self, name: str) -> bool:
        batch = self.world.ledger.batches.get(name)
        return batch is not None and batch.state == "retired"

    def _refused(self) -> frozenset[str]:
        """Return the ids of events that could be mended and never passed the parser."""
        passed = {decode(r.value, ParsedDocument).event_id for r in self.world.records(NAMES.parsed) if r.value}
        letters = [decode(r.value, DeadLetter) for r in self.world.records(NAMES.dead_letters) if r.value]
        return frozenset(letter.event_id for letter in letters if letter.stage == "parser") - passed

    def _could_go(self, book: LetterBook) -> list[Letter]:
        """Return letters that are open though nothing stands in the way of their events."""
        verdicts = judge(self._events, self._refused())
        hopeless = {e.event_id for e in self._events if {UNREADABLE, UNEMBEDDABLE} & set(e.paragraphs)}
        hopeless |= verdicts.bad | {""}
        found = []
        for letter in book.letters(Wanted()):
            if letter.entry.error == "UndecodableRecord":
                continue
            key = document_key(*letter.document) if letter.document is not None else b""
            newest = verdicts.documents[key].revision if key in verdicts.documents else -1
            last = verdicts.documents[key].last if key in verdicts.documents else None
            names = {letter.entry.event_id, SENT_AGAIN.sub("", letter.entry.event_id), last.event_id if last is not None else ""}
            if not names & (hopeless - {""}) and (letter.entry.revision or 0) >= newest:
                found.append(letter)
        return found


def _wanted_since(letter: Letter, document: Expected) -> int:
    """Return the least revision whose dropped letter leaves a document behind. What a batch refused comes to it again in new words
    only: the parser, which let it pass, takes the same words under a newer revision for unchanged."""
    return document.since if letter.entry.batch else document.revision


def _is_hopeless(document: Expected) -> bool:
    """Return whether a document's newest revision can never be read."""
    return document.failed and isinstance(document.said, tuple) and UNREADABLE in document.said[0]


def _place(name: str) -> tuple[int, int]:
    partition, _, offset = name.partition("-")
    return int(partition), int(offset)
