"""Manifest: what the index should hold for one document under one policy. One per document and batch, in a Faust table."""

from __future__ import annotations

import base64
import json
import struct
from dataclasses import dataclass

_ENTRY = struct.Struct(">32s16sq")
_FORMAT = 1


@dataclass(frozen=True, slots=True)
class ManifestEntry:
    """One chunk: its id, the fingerprint of its payload, and its place among the document's chunks."""

    chunk_id: str
    payload_hash: str
    order_key: int


@dataclass(frozen=True, slots=True)
class Manifest:
    """The ordered chunks of the newest revision. `deleted` outlives the document and refuses late events.

    Entries are in document order, so their order keys ascend. `changed` is the newest revision that changed anything (revisions
    with nothing new raise `revision` alone). `event_id` is the event that made it: the same event delivered
    again is known by it. `suspect` says that the index may hold less than this (a delta was refused): the next event compares
    with the index itself.
    """

    revision: int
    entries: tuple[ManifestEntry, ...] = ()
    deleted: bool = False
    event_id: str = ""
    suspect: bool = False
    changed: int = 0

    @property
    def chunk_ids(self) -> tuple[str, ...]:
        """Chunk ids in document order."""
        return tuple(entry.chunk_id for entry in self.entries)

    def to_bytes(self) -> bytes:
        """Return a compact, truthy form: JSON head, entries packed as 56 bytes each in base64."""
        packed = b"".join(
            _ENTRY.pack(bytes.fromhex(entry.chunk_id[4:]), bytes.fromhex(entry.payload_hash), entry.order_key)
            for entry in self.entries
        )
        head = {
            "v": _FORMAT,
            "rev": self.revision,
            "del": self.deleted,
            "sus": self.suspect,
            "ev": self.event_id,
            "chg": self.changed,
            "e": base64.b64encode(packed).decode("ascii"),
        }
        return json.dumps(head, separators=(",", ":")).encode("ascii")

    @classmethod
    def from_bytes(cls, value: bytes) -> Manifest:
        """Return the manifest in `value`. Raises ValueError on bytes that `to_bytes` of a known format did not write."""
        head = json.loads(value)
        if head.get("v") != _FORMAT:
            raise ValueError(f"manifest format {head.get('v')!r} is unknown; this release reads {_FORMAT}")
        packed = base64.b64decode(head["e"], validate=True)
        entries = tuple(
            ManifestEntry("chk_" + chunk.hex(), payload.hex(), order) for chunk, payload, order in _ENTRY.iter_unpack(packed)
        )
        return cls(head["rev"], entries, head["del"], head["ev"], head["sus"], head["chg"])
