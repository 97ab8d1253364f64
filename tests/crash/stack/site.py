"""A living body of documents: waves of every kind of event, and what must have become of them when all is settled."""

from __future__ import annotations

import random
from dataclasses import dataclass, field

from schemas.codec import encode
from schemas.document_change import DocumentChange
from schemas.record import document_key
from tests.stack.rig import delete, upsert

TENANTS = ("acme", "other")
Pair = tuple[bytes | None, bytes | None]
Name = tuple[str, str]


@dataclass
class Site:
    """Some documents of two tenants with the same ids. `newest` is what a clean rebuild would start from.

    awaited: event ids that must get a receipt. refused: those among them that must be dead-lettered, all others must not.
    parked: values of all records that must be dead letters, byte for byte.
    """

    dice: random.Random
    documents: int = 5
    newest: dict[Name, DocumentChange] = field(default_factory=dict)
    awaited: set[str] = field(default_factory=set)
    refused: set[str] = field(default_factory=set)
    parked: set[bytes] = field(default_factory=set)
    _revisions: dict[Name, int] = field(default_factory=dict)
    _sections: dict[Name, list[int]] = field(default_factory=dict)
    _number: int = 0

    def first(self) -> list[Pair]:
        """Return the first revision of every document."""
        names = [(tenant, f"d{number}") for number in range(self.documents) for tenant in TENANTS]
        return [self._sent(self._written(name)) for name in names]

    def wave(self) -> list[Pair]:
        """Return events of every kind for about half of the documents, in an order that keeps what belongs together together."""
        names = self.dice.sample(sorted(self.newest), len(self.newest))
        edited, moved, restyled, emptied, erased, gone, *_ = names
        groups = [
            [self._sent(self._written(edited)), self._sent(self._written(edited))],
            [self._sent(self._written(moved, "move"))],
            [self._sent(self._written(restyled, "restyle"))],
            [self._sent(self._written(emptied, "empty"))],
            [(document_key(*erased), None), self._skip(erased), self._sent(self._written(erased))],
            [self._sent(self._deleted(gone))],
            [self._late(edited)],
            [self._poison()],
            [self._garbage()],
        ]
        back = [name for name, change in self.newest.items() if change.op == "delete" and name != gone]
        groups += [[self._sent(self._written(name))] for name in back[:2]]
        self.dice.shuffle(groups)
        sent = [pair for group in groups for pair in group if pair is not None]
        repeatable = [pair for pair in sent if pair[1] is not None]  # a null value deletes whatever is newest when it comes
        return [*sent, *self.dice.sample(repeatable, 2)]

    def refreshed(self) -> list[Pair]:
        """Return a newer revision of every document: what mends those whose delta the index refused."""
        return [
            self._sent(self._deleted(name) if change.op == "delete" else self._written(name))
            for name, change in sorted(self.newest.items())
        ]

    def _sent(self, change: DocumentChange) -> Pair:
        key = (change.tenant_id, change.document_id)
        self.newest[key] = change
        self.awaited.add(change.event_id)
        return document_key(*key), encode(change)

    def _next(self, name: Name) -> int:
        self._revisions[name] = self._revisions.get(name, 0) + self.dice.randint(1, 3)
        return self._revisions[name]

    def _skip(self, name: Name) -> None:
        self._revisions[name] = self._revisions.get(name, 0) + 1

    def _written(self, name: Name, how: str = "edit") -> DocumentChange:
        tenant, document = name
        sections = self._sections.setdefault(name, list(range(5)))
        attributes = dict(self.newest[name].attributes) if name in self.newest else {}
        if how == "move":
            self.dice.shuffle(sections)
        elif how == "restyle":
            attributes["owner"] = f"owner {self._unique()}"
        elif how == "edit":
            sections[self.dice.randrange(len(sections))] = self._unique()
        text = "" if how == "empty" else f"# Page {document}\n\n" + "\n\n".join(map(_section, sections))
        return upsert(document, self._next(name), text, tenant, attributes=attributes)

    def _deleted(self, name: Name) -> DocumentChange:
        return delete(name[1], self._next(name), name[0])

    def _late(self, name: Name) -> Pair:
        event = f"late-{self._unique()}"
        self.awaited.add(event)
        late = upsert(name[1], 0, "long overtaken", name[0], event_id=event)
        return document_key(*name), encode(late)

    def _poison(self) -> Pair:
        bad = upsert(f"bad{self._unique()}", 1, "x", media_type="application/pdf")
        self.awaited.add(bad.event_id)
        self.refused.add(bad.event_id)
        self.parked.add(encode(bad))
        return document_key("acme", bad.document_id), encode(bad)

    def _garbage(self) -> Pair:
        value = b"not a record %d" % self._unique()
        self.parked.add(value)
        return b"acme/garbage", value

    def _unique(self) -> int:
        self._number += 1
        return 100 + self._number


def _section(number: int) -> str:
    return (
        f"## Part {number}\n\n"
        + f"The depot does this on day {number}, whoever is on duty. " * 4
        + f"\n\n第{number}节：值班员每两小时巡查一次。"
    )
