"""The index of dead letters: what is known of each without its bytes, how it was closed, and how far that knowledge reaches.

Three records on one compacted topic, told apart by their keys: ``open/<letter>``, ``closed/<letter>``, ``checkpoint``. A letter is
named ``<partition>-<offset>`` after its own record in [dead-letters]. What is closed stays closed, in whatever order records come.
"""

from __future__ import annotations

from typing import Annotated, ClassVar, Literal

from pydantic import AwareDatetime, Field

from schemas.record import Record

LetterId = Annotated[str, Field(pattern=r"^[0-9]{1,10}-[0-9]{1,19}$")]
Closing = Literal["healed", "replayed", "dropped"]
OPEN, CLOSED, CHECKPOINT = "open/", "closed/", "checkpoint"
"""Keys, or how they begin."""


class LetterEntry(Record):
    """One dead letter without its bytes. `topic`, `partition` and `offset` are those of the record that was refused.

    `key` is base64 of that record's key (None: it had none); `size` counts the bytes of its value as far as the letter holds them.
    """

    record_name: ClassVar[str] = "letter_entry"

    letter: LetterId
    topic: str
    partition: int
    offset: int
    key: str | None = None
    size: int = 0
    stage: Literal["parser", "chunker", "indexer"]
    batch: str = ""
    error: str
    reason: str
    tenant_id: str = ""
    document_id: str = ""
    revision: int | None = None
    event_id: str = ""
    failed_at: AwareDatetime


class LetterClosing(Record):
    """Why a letter needs nobody any more: a later event of its document went through (healed), it was sent again, or dropped."""

    record_name: ClassVar[str] = "letter_closing"

    letter: LetterId
    state: Closing
    at: AwareDatetime
    note: str = ""
    """What healed it, which event it was replayed as, or why it was dropped: one line."""


class LetterCheckpoint(Record):
    """Up to where entries and closings are complete: offsets by partition.

    Every letter below `letters` has its entry here, and every receipt below `receipts` that heals one of them has its closing.
    """

    record_name: ClassVar[str] = "letter_checkpoint"

    letters: dict[int, int]
    receipts: dict[int, int]
    at: AwareDatetime
