"""diff: manifest and chunks to Delta(added, updated, removed, kept). Order keys are given here, and only to new or moved chunks.

An order key is a sparse integer. Chunks whose relative order did not change keep theirs (a longest increasing run); a new or moved
chunk gets one between its neighbours. Only where no room is left are the keys of a neighbourhood spread anew.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Sequence
from dataclasses import dataclass

from chunking.chunk import Chunk
from chunking.manifest import Manifest, ManifestEntry

SPACING = 1 << 20
"""Distance between fresh order keys: room for 20 insertions at one place before keys are spread anew."""
WELL_APART = 1 << 12
"""Distance that a neighbourhood gets at least when its keys are spread anew."""
LIMIT = 1 << 53
"""Order keys stay below this (float64 is exact up to here)."""


@dataclass(frozen=True, slots=True)
class Placed:
    """A chunk and its order key."""

    chunk: Chunk
    order_key: int


@dataclass(frozen=True, slots=True)
class Delta:
    """What takes an index from one manifest to the next.

    added: chunks whose point is not there yet. updated: point is there, payload or order key changed; no embedding.
    removed: ids that are in the old manifest only. kept: ids whose point needs nothing.
    """

    added: tuple[Placed, ...] = ()
    updated: tuple[Placed, ...] = ()
    removed: tuple[str, ...] = ()
    kept: tuple[str, ...] = ()

    @property
    def empty(self) -> bool:
        """True when nothing has to be written."""
        return not (self.added or self.updated or self.removed)


def diff(old: Manifest | None, chunks: Sequence[Chunk], revision: int, deleted: bool = False) -> tuple[Delta, Manifest]:
    """Return the delta from `old` (None: nothing is stored) to `chunks`, and the manifest that stands after it."""
    before = {entry.chunk_id: entry for entry in old.entries} if old else {}
    keys = _order_keys([before[chunk.chunk_id].order_key if chunk.chunk_id in before else None for chunk in chunks])
    added, updated, kept = [], [], []
    for chunk, key in zip(chunks, keys, strict=True):
        entry = before.get(chunk.chunk_id)
        if entry is None:
            added.append(Placed(chunk, key))
        elif entry.payload_hash != chunk.payload_hash or entry.order_key != key:
            updated.append(Placed(chunk, key))
        else:
            kept.append(chunk.chunk_id)
    wanted = {chunk.chunk_id for chunk in chunks}
    removed = tuple(chunk_id for chunk_id in before if chunk_id not in wanted)
    entries = tuple(ManifestEntry(c.chunk_id, c.payload_hash, key) for c, key in zip(chunks, keys, strict=True))
    return Delta(tuple(added), tuple(updated), removed, tuple(kept)), Manifest(revision, entries, deleted)


def apply(delta: Delta, manifest: Manifest | None) -> dict[str, ManifestEntry]:
    """Return what an index that held `manifest` holds after `delta`, by chunk id."""
    held = {entry.chunk_id: entry for entry in manifest.entries} if manifest else {}
    for placed in (*delta.added, *delta.updated):
        held[placed.chunk.chunk_id] = ManifestEntry(placed.chunk.chunk_id, placed.chunk.payload_hash, placed.order_key)
    for chunk_id in delta.removed:
        held.pop(chunk_id, None)
    return held


def _order_keys(known: list[int | None]) -> list[int]:
    """Return strictly ascending keys; known keys on a longest increasing run stay as they are where room allows."""
    stay = _longest_increasing(known)
    keys: list[int | None] = [key if index in stay else None for index, key in enumerate(known)]
    index = 0
    while index < len(keys):
        if keys[index] is not None:
            index += 1
            continue
        end = index
        while end < len(keys) and keys[end] is None:
            end += 1
        index = _fill(keys, index, end)
    return [key for key in keys if key is not None]


def _fill(keys: list[int | None], start: int, end: int) -> int:
    """Give keys to positions start..end-1 between their neighbours, taking in neighbours until there is room.

    Returns the position to go on from.
    """
    grow, room = 1, 1
    while True:
        low = keys[start - 1] if start else 0
        high = keys[end] if end < len(keys) else None
        assert low is not None
        count = end - start
        step = min(SPACING, (LIMIT - 1 - low) // (count + 1)) if high is None else (high - low) // (count + 1)
        if step >= room:
            for offset in range(count):
                keys[start + offset] = low + step * (offset + 1)
            return end
        # No room: spread a neighbourhood anew, doubled until its keys are well apart again, so that this stays rare.
        room = WELL_APART
        start = max(0, start - grow)
        end = min(len(keys), end + grow)
        while end < len(keys) and keys[end] is None:
            end += 1
        grow *= 2


def _longest_increasing(known: list[int | None]) -> frozenset[int]:
    """Return positions of a longest strictly increasing run of the known keys, O(n log n)."""
    tails: list[int] = []
    tail_positions: list[int] = []
    previous: dict[int, int | None] = {}
    for position, key in enumerate(known):
        if key is None:
            continue
        place = bisect_left(tails, key)
        previous[position] = tail_positions[place - 1] if place else None
        if place == len(tails):
            tails.append(key)
            tail_positions.append(position)
        else:
            tails[place] = key
            tail_positions[place] = position
    run = set()
    at: int | None = tail_positions[-1] if tail_positions else None
    while at is not None:
        run.add(at)
        at = previous[at]
    return frozenset(run)
