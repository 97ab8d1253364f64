"""The batches as [batches] tells them: what holds of each (streams/batches/ledger.py)."""

from __future__ import annotations

from collections.abc import Iterable

from schemas.batch import BatchRecord
from streams.batches.ledger import fold, read_ledger
from streams.ports import InRecord
from streams.settings import Settings


def read_batches(settings: Settings) -> list[BatchRecord]:
    """Return the batches, oldest first; none where the topic does not exist yet. Raises UndecodableRecord on a foreign record."""
    return read_ledger(settings).in_order()


def newest_batches(records: Iterable[InRecord]) -> list[BatchRecord]:
    """Return what holds of each batch, oldest batch first. A tombstone removes a batch."""
    return fold(records).in_order()
