"""Expected: how many points the manifests of a partition name, by block of buckets. Kept as manifests are written, never read anew.

So a whole partition can be held against one count of the index, whatever its size. What differs is narrowed down by counts of
blocks, sixteen at a time. A manifest is written before the points that it names, so a count alone says nothing: it chooses what
is looked at.

Loaded from the rows once; a row that is written meanwhile counts as it was last written.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field

from schemas.record import split_document_key
from streams.audit.compare import chunks_in
from streams.index.marks import BUCKETS, bucket_of

BLOCKS = 256
"""Blocks of a partition: with 100,000 points one holds about 400, as many as one facet tells about."""
FAN = 16
_WIDTH = BUCKETS // BLOCKS


@dataclass(slots=True)
class Expected:
    """One partition."""

    partition: int
    counts: list[int] = field(default_factory=lambda: [0] * BLOCKS)
    loaded: bool = False
    _scanned: set[bytes] = field(default_factory=set)
    _written: dict[bytes, bytes] = field(default_factory=dict)
    """Rows written while the rows are read, before they were met."""

    def load(self, rows: Iterable[tuple[bytes, bytes]]) -> Iterator[None]:
        """Take in all rows, one a step: whoever steps may do something else between two."""
        for key, value in rows:
            if key not in self._written:
                self._scanned.add(key)
                self._add(key, chunks_in(value))
            yield
        for key, value in self._written.items():
            self._add(key, chunks_in(value))
        self._scanned, self._written, self.loaded = set(), {}, True

    def change(self, key: bytes, before: bytes | None, after: bytes) -> None:
        """Follow a row that was written."""
        if not self.loaded and key not in self._scanned:
            self._written[key] = after
            return
        self._add(key, chunks_in(after) - (chunks_in(before) if before else 0))

    @property
    def total(self) -> int:
        """Points that the partition should hold."""
        return sum(self.counts)

    def within(self, first: int, end: int) -> int:
        """Return how many points should stand in blocks first..end-1."""
        return sum(self.counts[first:end])

    def buckets(self, first: int, end: int) -> tuple[int, int]:
        """Return the buckets of blocks first..end-1, as a range."""
        begin = self.partition * BUCKETS
        return begin + first * _WIDTH, begin + end * _WIDTH

    def block_of(self, key: bytes) -> int:
        """Return the block that a document's points stand in."""
        return (bucket_of(self.partition, *split_document_key(key)) - self.partition * BUCKETS) // _WIDTH

    def _add(self, key: bytes, chunks: int) -> None:
        self.counts[self.block_of(key)] += chunks


OnRow = Callable[[int, bytes, bytes | None, bytes], None]
"""Called with partition, key, the row before and the row after."""
