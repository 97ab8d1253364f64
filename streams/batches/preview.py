"""What a policy would change, measured on real documents: strategies, boundaries, and which vectors could be borrowed. Pure."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field

from chunking.chunk import Chunk
from chunking.chunker import TooManyChunks, chunk
from chunking.passage import Role
from chunking.policy import ChunkPolicy
from chunking.tokens import TokenCounter
from schemas.codec import UndecodableRecord, decode
from schemas.parsed_document import ParsedDocument
from streams.ports import InRecord
from streams.steps.wire_document import from_wire
from streams.words import counted

SAMPLE_DOCUMENTS = 200
SAMPLE_CHARACTERS = 20_000_000
_PAYLOAD_BYTES_OF_A_FIELD = 40
_POINT_OVERHEAD = 1.5
"""What an index takes beside vectors and payloads (graph, indexes, log), at about."""


@dataclass(slots=True)
class Preview:
    """Counts over the sample. `before` and `after` are chunks by strategy; kept and moved are body boundaries."""

    documents: int = 0
    before: Counter[str] = field(default_factory=Counter)
    after: Counter[str] = field(default_factory=Counter)
    same: int = 0
    """Chunks of the new policy that stand exactly where one of the old policy stands."""
    borrowed: int = 0
    embedded: int = 0
    bytes: int = 0
    """Of the new policy's points: vectors and payloads."""
    refused: dict[str, str] = field(default_factory=dict)

    @property
    def chunks(self) -> int:
        """Chunks of the new policy."""
        return sum(self.after.values())

    def scaled(self, figure: int, documents: int) -> int:
        """Return a figure of the sample for so many documents."""
        return round(figure * documents / self.documents) if self.documents else 0

    def lines(self, documents: int, chunks_a_second: float | None) -> Iterator[str]:
        """Yield what an operator reads. documents: how many there are in all; chunks_a_second: what the embedder does here."""
        if not self.documents:
            yield "no document is there yet to look at"
            return
        yield f"sample: {self.documents:,} of {counted(documents, 'document')}"
        for name in sorted(self.before.keys() | self.after.keys()):
            yield f"  strategy {name}: {counted(self.before[name], 'chunk')} now, {self.after[name]:,} then"
        total = self.chunks
        yield f"  boundaries: {self.same:,} of {counted(total, 'chunk')} stand where one stands now ({_share(self.same, total)})"
        share = _share(self.embedded, total)
        yield f"  vectors: {self.borrowed:,} borrowed from the served batch, {self.embedded:,} embedded ({share})"
        for document, reason in sorted(self.refused.items())[:5]:
            yield f"  would be refused: {document}: {reason}"
        embedded = self.scaled(self.embedded, documents)
        time = f"about {embedded / chunks_a_second / 60:.1f} minutes of embedding" if chunks_a_second else "time unknown here"
        disk = self.scaled(self.bytes, documents) * _POINT_OVERHEAD / 1e6
        yield (
            f"expected: {counted(self.scaled(total, documents), 'chunk')}, {embedded:,} embedded, "
            f"{self.scaled(self.borrowed, documents):,} borrowed; {time}; about {disk:,.1f} MB in the index beside the served batch"
        )


def sample_of(records: Iterable[InRecord]) -> list[ParsedDocument]:
    """Return the newest revision of up to SAMPLE_DOCUMENTS live documents, as far as `records` are read for it."""
    newest: dict[bytes, ParsedDocument] = {}
    characters = 0
    for record in records:
        if record.key is None or record.value is None:
            continue
        try:
            parsed = decode(record.value, ParsedDocument)
        except UndecodableRecord:
            continue
        if parsed.op == "delete":
            newest.pop(record.key, None)
            continue
        newest[record.key] = parsed
        characters += len(parsed.text)
        if len(newest) >= SAMPLE_DOCUMENTS or characters >= SAMPLE_CHARACTERS:
            break
    return list(newest.values())


def preview(
    sample: Iterable[ParsedDocument],
    old: tuple[ChunkPolicy, TokenCounter],
    new: tuple[ChunkPolicy, TokenCounter],
) -> Preview:
    """Return what changes over a sample from the old policy to the new. A vector can be borrowed where the embed_hash is equal."""
    found = Preview()
    for parsed in sample:
        name = f"{parsed.tenant_id}/{parsed.document_id}"
        try:
            document, provenance = from_wire(parsed)
            before = chunk(document, provenance, *old)
        except (TooManyChunks, ValueError):
            before = ()
        try:
            document, provenance = from_wire(parsed)
            after = chunk(document, provenance, *new)
        except (TooManyChunks, ValueError) as error:
            found.refused[name] = str(error)
            continue
        found.documents += 1
        _count(found, before, after, new[0].embedding.dimensions)
    return found


def _count(found: Preview, before: tuple[Chunk, ...], after: tuple[Chunk, ...], dimensions: int) -> None:
    found.before.update(chunk.strategy for chunk in before)
    found.after.update(chunk.strategy for chunk in after)
    places = {(chunk.role, chunk.span.start, chunk.span.end) for chunk in before}
    found.same += sum((chunk.role, chunk.span.start, chunk.span.end) in places for chunk in after)
    hashes = {chunk.embed_hash for chunk in before if chunk.role is not Role.PARENT}
    for each in after:
        found.bytes += _payload_bytes(each.payload)
        if each.role is Role.PARENT:
            continue
        found.bytes += 4 * dimensions
        if each.embed_hash in hashes:
            found.borrowed += 1
        else:
            hashes.add(each.embed_hash)  # twins are embedded once
            found.embedded += 1


def _payload_bytes(payload: Mapping[str, object]) -> int:
    return sum(len(str(value).encode("utf-8")) + _PAYLOAD_BYTES_OF_A_FIELD for value in payload.values())


def _share(part: int, whole: int) -> str:
    return f"{100 * part / whole:.1f} %" if whole else "none"
