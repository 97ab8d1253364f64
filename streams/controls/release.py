"""How a held event comes back: through [documents] as it was, with a header that says where it first stood and by which release."""

from __future__ import annotations

from dataclasses import dataclass

from schemas.document_change import AGAIN
from schemas.held_change import HeldChange
from streams.ports import InRecord

HEADER = "docdelta-released"
"""``<offset>/<release>``. What has it is looked at as if it stood at that offset of its partition; it opens nothing by itself."""
WAITED = "docdelta-waited"
"""``<partition>/<offset>``: where a record stood in [bulk] before its feeder passed it on. A decision covers what waits there."""


@dataclass(frozen=True, slots=True)
class Standing:
    """Where an event first stood in [documents]. `release`: names the release by which it is here again; empty: it comes first.
    `waited`: the partition and offset of [bulk] where it stood before."""

    partition: int
    offset: int
    release: str = ""
    waited: tuple[int, int] | None = None

    @property
    def place(self) -> tuple[int, int]:
        """Partition and offset."""
        return self.partition, self.offset


def standing_of(record: InRecord) -> Standing:
    """Return where a record of [documents] stands. A header that is not ours, or names a place to come, is ignored."""
    offset, slash, release = record.headers.get(HEADER, b"").decode("utf-8", "replace").partition("/")
    if slash and release and len(release) <= 64 and offset.isdecimal() and len(offset) < 19 and int(offset) < record.offset:
        return Standing(record.partition, int(offset), release, _waited(record))
    return Standing(record.partition, record.offset, waited=_waited(record))


def waited_of(held: HeldChange) -> tuple[int, int] | None:
    """Return the partition and offset of [bulk] where a held event stood before it came to [documents]."""
    return _place(held.headers.get(WAITED, ""))


def _waited(record: InRecord) -> tuple[int, int] | None:
    return _place(record.headers.get(WAITED, b"").decode("utf-8", "replace"))


def _place(text: str) -> tuple[int, int] | None:
    partition, slash, offset = text.partition("/")
    if slash and partition.isdecimal() and offset.isdecimal() and max(len(partition), len(offset)) < 19:
        return int(partition), int(offset)
    return None


def waited_in(record: InRecord) -> bytes:
    """Return the header that says where a record of [bulk] stood there."""
    return f"{record.partition}/{record.offset}".encode()


def release_headers(held: HeldChange, release: str) -> dict[str, bytes]:
    """Return the headers with which a held event is sent again."""
    kept = {name: value.encode("utf-8") for name, value in held.headers.items() if name not in (HEADER, AGAIN)}
    return {**kept, HEADER: f"{held.offset}/{release}".encode()}
