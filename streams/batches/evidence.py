"""What manifests say a collection should hold against what it holds: per document, a digest of ids, payload hashes and order.

Both sides move while editors work. Documents that differ at the first look are looked at again, alone: one that comes to agree was
on its way, one whose manifest keeps changing is being edited, and one that stays different is wrong.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable, Mapping
from dataclasses import dataclass, field
from hashlib import blake2b

from chunking.manifest import Manifest
from schemas.record import document_key, split_document_key
from streams.ports import InRecord, StoredPoint, VectorIndex

_MODULUS = 1 << 128
ROUNDS = 8
"""How often documents that differ are looked at again."""
PAUSE_SECONDS = 1.0


@dataclass(frozen=True, slots=True)
class Digest:
    """A set of chunks in 40 bytes: its size, and the sum of what each of them is. Order of adding does not matter."""

    chunks: int = 0
    total: int = 0

    def plus(self, chunk_id: str, payload_hash: str, order_key: int) -> Digest:
        """Return the digest with one chunk more."""
        value = blake2b(f"{chunk_id} {payload_hash} {order_key}".encode(), digest_size=16).digest()
        return Digest(self.chunks + 1, (self.total + int.from_bytes(value, "big")) % _MODULUS)


@dataclass(frozen=True, slots=True)
class Planned:
    """A document as its newest manifest says. `suspect`: a delta of it was refused."""

    revision: int
    digest: Digest
    deleted: bool
    suspect: bool


def planned_of(records: Iterable[InRecord]) -> dict[bytes, Planned]:
    """Return every document of a manifests changelog, by key."""
    newest: dict[bytes, bytes] = {}
    for record in records:
        if record.key is not None and record.value:
            newest[record.key] = record.value
    return {key: _planned(Manifest.from_bytes(value)) for key, value in newest.items()}


def _planned(manifest: Manifest) -> Planned:
    digest = Digest()
    for entry in manifest.entries:
        digest = digest.plus(entry.chunk_id, entry.payload_hash, entry.order_key)
    return Planned(manifest.revision, digest, manifest.deleted, manifest.suspect)


def held_of(points: Iterable[StoredPoint], into: dict[bytes, Digest] | None = None) -> dict[bytes, Digest]:
    """Return what points amount to, by document key. `into` goes on where an earlier page ended."""
    held = into if into is not None else {}
    for point in points:
        payload = point.payload
        key = document_key(str(payload["tenant_id"]), str(payload["document_id"]))
        held[key] = held.get(key, Digest()).plus(point.chunk_id, str(payload["payload_hash"]), int(payload["order_key"]))
    return held


def differing(planned: Mapping[bytes, Planned], held: Mapping[bytes, Digest]) -> set[bytes]:
    """Return the documents whose points are not what their manifest says, points without a manifest included."""
    nothing = Digest()
    return {
        key
        for key in planned.keys() | held.keys()
        if (planned[key].digest if key in planned else nothing) != held.get(key, nothing)
    }


@dataclass(frozen=True, slots=True)
class Agreement:
    """How manifests and index stand to each other. Keys are tenant/document."""

    documents: int = 0
    chunks: int = 0
    """Of all manifests."""
    points: int = 0
    """Exact count of the collection."""
    wrong: tuple[str, ...] = ()
    in_flight: int = 0
    """Documents that differed at first and came to agree."""
    edited: int = 0
    """Documents that differ and whose manifest changed at the last look."""
    moved: bool = False
    """Whether the manifest of a document that differs changed at any look: the index may have had no time since."""
    suspect: tuple[str, ...] = ()
    planned: Mapping[bytes, Planned] = field(default_factory=dict, repr=False)

    @property
    def counts_agree(self) -> bool:
        """True when counts are equal, or edits on their way explain that they can't be."""
        return self.points == self.chunks or (not self.wrong and bool(self.in_flight or self.edited))


Pause = Callable[[float], Awaitable[None]]


async def agree(
    read: Callable[[], Awaitable[dict[bytes, Planned]]], index: VectorIndex, collection: str, pause: Pause, rounds: int = ROUNDS
) -> Agreement:
    """Return how a collection stands to its manifests. `read` returns the manifests of the present. Errors are theirs."""
    planned = await read()
    held: dict[bytes, Digest] = {}
    async for page in index.scan(collection):
        held_of(page, held)
    open_, settled, edited = differing(planned, held), 0, set[bytes]()
    moved = set[bytes]()
    points = await index.count(collection)
    for _ in range(rounds):
        chunks = sum(document.digest.chunks for document in planned.values())
        if not open_ and points == chunks:
            break
        await pause(PAUSE_SECONDS)
        before, planned = planned, await read()
        edited = {key for key in open_ if before.get(key) != planned.get(key)}
        moved |= edited
        for key in sorted(open_):
            tenant, document = split_document_key(key)
            found = held_of(await index.document_points(collection, tenant, document)).get(key, Digest())
            if found == (planned[key].digest if key in planned else Digest()):
                open_.discard(key)
                settled += 1
        points = await index.count(collection)
    return Agreement(
        documents=sum(not document.deleted for document in planned.values()),
        chunks=sum(document.digest.chunks for document in planned.values()),
        points=points,
        wrong=_named(open_ - edited),
        in_flight=settled,
        edited=len(open_ & edited),
        moved=bool(open_ & moved),
        suspect=_named(key for key, document in planned.items() if document.suspect),
        planned=planned,
    )


def _named(keys: Iterable[bytes]) -> tuple[str, ...]:
    return tuple(sorted(key.decode("utf-8", "replace") for key in keys))
