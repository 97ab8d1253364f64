"""Tally: outcomes, chunks and embeddings of the receipts that were counted."""

from __future__ import annotations

from dataclasses import dataclass

from schemas.receipt import Receipt


@dataclass(slots=True)
class Tally:
    """Sums over receipts. Outcomes are events; chunks by what changed; embeddings by where the vector came from."""

    indexed: int = 0
    unchanged: int = 0
    stale: int = 0
    held: int = 0
    dead_lettered: int = 0
    kept: int = 0
    added: int = 0
    updated: int = 0
    removed: int = 0
    computed: int = 0
    borrowed: int = 0
    avoided: int = 0

    def take(self, receipt: Receipt) -> None:
        """Count a receipt, as `streams.metrics.settled` counts it."""
        setattr(self, receipt.outcome, getattr(self, receipt.outcome) + 1)
        if receipt.stage == "parser":
            return
        self.kept += receipt.kept
        self.added += receipt.added
        self.updated += receipt.updated
        self.removed += receipt.removed
        self.computed += receipt.embedded
        self.borrowed += receipt.borrowed
        self.avoided += max(0, receipt.kept + receipt.updated + receipt.added - receipt.embedded - receipt.borrowed)

    @property
    def settled(self) -> int:
        """Events with an outcome."""
        return self.indexed + self.unchanged + self.stale + self.held + self.dead_lettered

    def less(self, other: Tally) -> Tally:
        """Return what is left without `other`."""
        return Tally(*(getattr(self, name) - getattr(other, name) for name in Tally.__slots__))

    def plus(self, other: Tally) -> Tally:
        """Return both together."""
        return Tally(*(getattr(self, name) + getattr(other, name) for name in Tally.__slots__))

    def as_json(self) -> dict[str, int]:
        """Return name to sum."""
        return {name: getattr(self, name) for name in Tally.__slots__}
