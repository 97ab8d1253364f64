"""LetterReader: the LetterBook of an installation, read from the broker and kept up to date in small steps.

Bounded reads: the index tells all that was known at its checkpoint; letters and receipts are read from there on, receipts only of
partitions where a letter is open. Workers keep the index (`keep`), so a command reads some hundred bytes a letter and a short tail.
Where no index was ever kept, everything is read.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from datetime import datetime

from schemas.codec import encode
from schemas.letter_index import CHECKPOINT, LetterCheckpoint
from streams.kafka.partitioner import partition_of
from streams.kafka.produce import OutRecord
from streams.ports import InRecord
from streams.repair.broker import Broker, KafkaBroker
from streams.repair.letters import LetterBook
from streams.settings import Settings

KEEP_RECEIPTS = 20_000
"""A checkpoint is written once so many receipts lie behind the last one, or something was found that the index does not say."""

_Offsets = dict[int, int]


@dataclass(slots=True)
class LetterReader:
    """Reads on from where it was at the last call. Blocking; for one thread at a time."""

    settings: Settings
    book: LetterBook = field(default_factory=LetterBook)
    read: dict[str, int] = field(default_factory=dict)
    """Records read so far, by topic."""
    broker: Broker | None = None
    """None: that of the settings."""
    _index: _Offsets = field(default_factory=dict)
    _letters: _Offsets = field(default_factory=dict)
    _receipts: _Offsets = field(default_factory=dict)
    _began: bool = False

    def refresh(self) -> LetterBook:
        """Return the book as of now. NotPrepared (a topic is missing), NotReachable."""
        topics = self.settings.topics
        # Receipts' ends first: a letter that is not seen below was then written after them, and so is what heals it.
        receipts = self._ends(topics.receipts)
        index, letters = self._ends(topics.letter_index), self._ends(topics.dead_letters)
        for record in self._records(topics.letter_index, index, self._index):
            self.book.take_index(record)
        self._index = index
        checkpoint = self.book.checkpoint
        if not self._began and checkpoint is not None:
            self._letters, self._receipts = dict(checkpoint.letters), dict(checkpoint.receipts)
        self._began = True
        for record in self._records(topics.dead_letters, letters, self._letters):
            self.book.take_letter(record)
        self._letters = letters
        waited_for = {partition_of(key, len(receipts)) for key in self.book.open_keys}
        unread = {partition: end for partition, end in receipts.items() if partition in waited_for}
        for record in self._records(topics.receipts, unread, self._receipts):
            self.book.take_receipt(record)
        self._receipts = receipts
        return self.book

    def keep(self, now: datetime) -> bool:
        """Write what was found into the index, and a checkpoint behind it; return whether there was something to write.

        Any number of workers may do so: what they write is the same, and true in any order.
        """
        book, topic = self.book, self.settings.topics.letter_index
        if not book.unwritten and self._since_checkpoint() < KEEP_RECEIPTS:
            return False
        records = [OutRecord(topic, key.encode(), encode(value)) for key, value in book.unwritten.items()]
        checkpoint = LetterCheckpoint(letters=self._letters, receipts=self._receipts, at=now)
        # One partition and one producer: the checkpoint stands behind what it vouches for.
        self._broker.write([*records, OutRecord(topic, CHECKPOINT.encode(), encode(checkpoint))])
        book.unwritten.clear()
        book.checkpoint = checkpoint
        return True

    def _since_checkpoint(self) -> int:
        before = self.book.checkpoint.receipts if self.book.checkpoint is not None else {}
        return sum(end - before.get(partition, 0) for partition, end in self._receipts.items())

    def _records(self, topic: str, ends: _Offsets, begins: _Offsets) -> Iterator[InRecord]:
        for record in self._broker.read(topic, ends, begins):
            self.read[topic] = self.read.get(topic, 0) + 1
            yield record

    def _ends(self, topic: str) -> _Offsets:
        return self._broker.ends(topic)

    @property
    def _broker(self) -> Broker:
        return self.broker or KafkaBroker(self.settings.kafka)
