"""Histories: what happens to a few small documents, and what may go wrong meanwhile. One seed, one history."""

from __future__ import annotations

import json
import random
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace

from schemas.codec import encode
from schemas.document_change import Content, DocumentChange
from schemas.record import document_key, split_document_key

WORDS = ("ash", "birch", "cedar", "date", "elm", "fir", "gum", "hazel")
TITLES = ("Trees", "Woods")
UNREADABLE = "%unreadable%"
"""A document with this paragraph can't be parsed."""
UNEMBEDDABLE = "%unembeddable%"
"""A chunk with this text can't be embedded."""
UNREADABLE_YET = "%unreadable yet%"
UNEMBEDDABLE_YET = "%unembeddable yet%"
"""The same, until somebody has mended what stands in their way."""

LITTLE_FAULTS = ("refuse", "lose_answer", "prefix", "outage")
GREAT_FAULTS = ("crash", "graceful", "zombie", "lose_manifests", "lose_seen")
COMMAND_FAULTS = ("kill_command",)
FAULTS = LITTLE_FAULTS + GREAT_FAULTS + COMMAND_FAULTS


@dataclass(frozen=True, slots=True)
class Command:
    """An operator's command: rollout, rollback, switch, switch_back or retire; replay, drop, keep, forget or mend, for dead letters
    and old deletes; approve, reject, pause or resume, for a tenant (operators.py). It begins when `at` events are out and `after`
    has ended."""

    name: str
    at: int = 0
    after: str = ""
    which: int = -1
    """Which of the open letters, counted round; -1: all."""
    names: tuple[str, ...] = ()
    """Letters that were chosen by a run before."""
    tenant: str = ""

    def __str__(self) -> str:
        whose = f" of letter {self.which}" if self.which >= 0 else f" of tenant {self.tenant}" if self.tenant else ""
        return f"{self.name}{whose} after {self.at} events" + (f" and {self.after}" if self.after else "")


@dataclass(frozen=True, slots=True)
class Event:
    """One record for [documents]. kind: upsert, delete, null (a value of None) or garbage (no DocumentChange at all)."""

    kind: str
    tenant: str
    document: str
    revision: int = 0
    paragraphs: tuple[str, ...] = ()
    title: str = TITLES[0]
    event_id: str = ""
    reindex: bool = False
    bulk: bool = False
    """It is sent to [bulk], and comes to [documents] when the feeder lets it."""

    @property
    def key(self) -> bytes:
        return document_key(self.tenant, self.document)

    @property
    def is_curable(self) -> bool:
        """Whether it can't be used until somebody has mended what stands in its way."""
        return UNREADABLE_YET in self.paragraphs or UNEMBEDDABLE_YET in self.paragraphs

    @property
    def value(self) -> bytes | None:
        """Return the record's value as a producer would write it."""
        if self.kind == "null":
            return None
        if self.kind == "garbage":
            return json.dumps({"schema": "docdelta.document_change/1", "what": self.event_id}).encode()
        content = Content(text="\n\n".join(self.paragraphs)) if self.kind == "upsert" else None
        return encode(
            DocumentChange(
                tenant_id=self.tenant,
                document_id=self.document,
                revision=self.revision,
                op="upsert" if self.kind == "upsert" else "delete",
                media_type="text/plain",
                content=content,
                title=self.title if self.kind == "upsert" else "",
                event_id=self.event_id,
                reindex=self.reindex,
            )
        )

    def __str__(self) -> str:
        said = f" “{self.title}: {' | '.join(self.paragraphs)}”" if self.kind == "upsert" else ""
        again = " reindex" if self.reindex else ""
        lane = " through [bulk]" if self.bulk else ""
        return f"{self.kind} {self.tenant}/{self.document} r{self.revision} ({self.event_id}){again}{lane}{said}"


@dataclass(frozen=True, slots=True)
class History:
    """Events in the order of the log, what may go wrong (kinds, at most `fault_limit` times), and the seed of all dice."""

    events: tuple[Event, ...]
    faults: frozenset[str] = frozenset()
    fault_limit: int = 0
    fault_rate: float = 0.03
    partitions: int = 1
    eager_store: bool = False
    """The local table shows a value before its changelog record is confirmed (stock Faust); else after (streams/faustio)."""
    small_parts: bool = False
    """Changes travel in many parts."""
    commands: tuple[Command, ...] = ()
    """With a rollout a second batch is built beside the first; both must come to their oracle."""
    compaction: bool = False
    """[documents] and [parsed] are compacted now and then: a build sees no more than the newest of what stood before, and the
    newest event of a document is gone where an older one stood behind it."""
    compactions: int = 3
    """How often, where there is compaction."""
    repaired: bool = False
    """More is lost than anybody could mend alone. What is held against the oracle is the end of every document being sent again
    with `reindex`, after all that could go wrong has."""
    seed: int = 0

    def __str__(self) -> str:
        faults = (
            f"faults, {self.fault_limit} at most: {', '.join(sorted(self.faults))}"
            if self.fault_limit and self.faults
            else "no faults"
        )
        lines = [f"dice {self.seed}, {self.partitions} partition{'s' if self.partitions > 1 else ''}, {faults}"]
        options = [name for name in ("eager_store", "small_parts", "compaction", "repaired") if getattr(self, name)]
        lines += [f"options: {', '.join(options)}"] if options else []
        lines += [f"commands: {', '.join(map(str, self.commands))}"] if self.commands else []
        return "\n".join([*lines, *(f"  {number}. {event}" for number, event in enumerate(self.events))])


def history_of(seed: int, longest: int = 14) -> History:
    """Return the history of a seed."""
    dice = random.Random(seed)
    faults = _faults(dice)
    events = _events(dice, dice.randint(3, longest))
    history = History(
        events=events,
        faults=faults,
        fault_limit=dice.randint(1, 8) if faults else 0,
        fault_rate=dice.choice((0.01, 0.03, 0.1)),
        partitions=dice.choice((1, 1, 2)),
        eager_store=dice.random() < 0.3,
        small_parts=dice.random() < 0.25,
        seed=seed,
    )
    history = _unusual(history, random.Random(seed * 31 + 7))
    return _in_lanes(replace(history, events=_allowed(history)), random.Random(seed * 37 + 11))


def _unusual(history: History, dice: random.Random) -> History:
    """Return one history of five with a rollout, one of twelve with losses that only a repair mends, three with compaction."""
    roll = dice.random()
    if roll < 0.2:
        faults = history.faults | ({"kill_command"} if dice.random() < 0.6 else set())
        limit = history.fault_limit or (dice.randint(1, 4) if faults else 0)
        commands = _commands(dice, len(history.events))
        history = replace(history, faults=faults, fault_limit=limit, commands=commands, compaction=dice.random() < 0.4)
    if 0.17 < roll < 0.25:
        losses = dice.choice((("lose_manifests", "zombie"), ("lose_manifests", "lose_seen"), ("lose_seen", "zombie")))
        faults = history.faults | set(losses)
        history = replace(history, faults=faults, fault_limit=max(history.fault_limit, 3), repaired=True)
    return replace(history, compaction=True) if roll > 0.7 else history


def _in_lanes(history: History, dice: random.Random) -> History:
    """Return one history of four with part of its events through [bulk]: what is not settled by the order of sending alone.

    Not null values, which [bulk] refuses; and not where the events' order is what the rest of a history is held against.
    """
    if dice.random() > 0.3 or history.commands or history.repaired or "lose_seen" in history.faults:
        return history
    events = (replace(e, bulk=True) if e.kind != "null" and dice.random() < 0.6 else e for e in history.events)
    return replace(history, events=tuple(events))


def _commands(dice: random.Random, events: int) -> tuple[Command, ...]:
    begin = dice.randint(0, events)
    commands = [Command("rollout", begin)]
    if dice.random() < 0.6:
        after = dice.choice(("rollout", "rollout", ""))
        commands.append(Command("rollback", dice.randint(begin, events), after))
    if dice.random() < 0.4:
        name = dice.choice(("switch", "switch_back"))  # the first goes by no gate: not before the build is through
        commands.append(Command(name, dice.randint(begin, events), "rollout" if name == "switch" else dice.choice(("rollout", ""))))
    return tuple(commands)


def only(*faults: str) -> Callable[[History], History]:
    """Return a bend that leaves just these faults, at least three times in a history."""
    kept = frozenset(faults)
    return lambda history: replace(history, faults=kept, fault_limit=max(3, history.fault_limit) if kept else 0)


def repairs(events: tuple[Event, ...], ends: Mapping[bytes, tuple[tuple[str, ...], str] | None]) -> tuple[Event, ...]:
    """Return what sends every document's end again. ends: key to paragraphs and title, or None where it is deleted."""
    revision = max((event.revision for event in events), default=0) + 100
    made = []
    for number, (key, content) in enumerate(sorted(ends.items())):
        tenant, document = split_document_key(key)
        kind, (paragraphs, title) = ("upsert", content) if content is not None else ("delete", ((), TITLES[0]))
        paragraphs = tuple(words for words in paragraphs if words != UNEMBEDDABLE)
        made.append(Event(kind, tenant, document, revision, paragraphs, title, f"repair{number}", reindex=True))
    return tuple(made)


def _faults(dice: random.Random) -> frozenset[str]:
    """Return the kinds of faults of a history: mostly a few together.

    Only where a repair follows (`_unusual`): both tables lost (nobody knows the past), and two owners while the manifests are lost:
    each may plan the same revision with other order keys, and a chunk neither names again keeps the loser's.
    """
    kinds = {kind for kind in LITTLE_FAULTS if dice.random() < 0.5}
    kinds |= {kind for kind in ("crash", "graceful", "zombie") if dice.random() < 0.4}
    if dice.random() < 0.3:
        kinds.add(dice.choice(("lose_manifests", "lose_seen")))
    if "lose_manifests" in kinds:
        kinds.discard("zombie")
    return frozenset(kinds)


def _allowed(history: History) -> tuple[Event, ...]:
    """Leave out what nobody could get right once the parser's memory is lost: it alone knows failed and deleted revisions, and
    takes a late event for the first; a newer one with the late one's words would then seem to say nothing new."""
    if "lose_seen" not in history.faults or history.repaired:
        return history.events
    known = [event for event in history.events if event.kind != "null" and UNREADABLE not in event.paragraphs]
    return tuple(event for number, event in enumerate(known) if not _misleads(event, known[:number], known[number + 1 :]))


def _misleads(event: Event, before: Sequence[Event], after: Sequence[Event]) -> bool:
    """Return whether an event is late, and a newer one says the same later on."""

    def same_document(other: Event) -> bool:
        return other.key == event.key and other.kind in ("upsert", "delete")

    late = any(same_document(other) and other.revision > event.revision for other in before)
    said = (event.kind, event.paragraphs, event.title)
    return late and any(
        same_document(other) and other.revision > event.revision and (other.kind, other.paragraphs, other.title) == said
        for other in after
    )


def _events(dice: random.Random, count: int) -> tuple[Event, ...]:
    names = [("a", "x"), ("b", "x"), ("a", "y")][: dice.randint(1, 3)]
    now: dict[tuple[str, str], Event] = {}
    past: list[Event] = []
    for number in range(count):
        name = dice.choice(names)
        event = _next_event(dice, name, now.get(name), past, f"e{number}")
        if event.kind in ("upsert", "delete") and event.revision >= (now[name].revision if name in now else 0):
            now[event.tenant, event.document] = event
        past.append(event)
    return tuple(past)


def _next_event(dice: random.Random, name: tuple[str, str], last: Event | None, past: list[Event], event_id: str) -> Event:
    tenant, document = name
    revision = last.revision if last else 0
    roll = dice.random()
    of_this = [event for event in past if (event.tenant, event.document) == name and event.kind in ("upsert", "delete")]
    if roll < 0.05:
        return Event("garbage", tenant, document, event_id=event_id)
    if roll < 0.10 and last:
        return Event("null", tenant, document, event_id=event_id)
    if roll < 0.20 and last:
        return Event("delete", tenant, document, revision + dice.choice((0, 1, 2)), event_id=event_id)
    if roll < 0.30 and of_this:
        return dice.choice(of_this)  # the very same record again
    if roll < 0.36 and of_this:
        return replace(dice.choice(of_this), event_id=event_id)  # an old or equal revision under a new event
    if roll < 0.40 and last and last.kind == "upsert":
        return replace(last, revision=revision + 1, event_id=event_id)  # nothing new
    if roll < 0.45 and last:
        return replace(last, event_id=event_id, reindex=True)
    before = last.paragraphs if last and last.kind == "upsert" else ()
    paragraphs = _edited(dice, before)
    title = dice.choice(TITLES) if dice.random() < 0.3 else (last.title if last and last.kind == "upsert" else TITLES[0])
    return Event("upsert", tenant, document, revision + dice.choice((1, 1, 1, 2, 5)), paragraphs, title, event_id)


def _edited(dice: random.Random, before: tuple[str, ...]) -> tuple[str, ...]:
    """Return paragraphs after one or two edits: inserted, replaced, removed, moved; now and then emptied or unusable."""
    if not before:
        return tuple(dice.choice(WORDS) for _ in range(dice.randint(1, 4)))
    roll = dice.random()
    if roll < 0.05:
        return ()
    text = [words for words in before if not words.startswith("%")]
    if roll < 0.09:
        return (*text, UNREADABLE)
    if roll < 0.13:
        return (*text, UNEMBEDDABLE)
    for _ in range(dice.randint(1, 2)):
        edit = dice.choice(("insert", "replace", "remove", "move"))
        place = dice.randrange(len(text) + 1)
        if edit == "insert" or not text:
            text.insert(place, dice.choice(WORDS))
        elif edit == "replace":
            text[place % len(text)] = dice.choice(WORDS)
        elif edit == "remove":
            del text[place % len(text)]
        else:
            text.insert(place, text.pop(dice.randrange(len(text))))
    return tuple(text)
