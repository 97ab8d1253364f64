"""The chunker agent's body: one ParsedDocument record in, changes of this batch or one outcome out.

Order of effects, and what a crash in between leaves:
  ① publish the changes (or the receipt); the broker has them
       crash here: the record comes again and ① is repeated with the same ids
  ② save the manifest
       crash here: the record comes again and is known as the same event
  ③ the caller lets the offset advance
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass, field

from chunking.manifest import Manifest
from chunking.policy import ChunkPolicy
from chunking.tokens import TokenCounter
from schemas.chunk_changes import ChunkChanges
from schemas.codec import decode, encode
from schemas.parsed_document import PREVIOUS, ParsedDocument
from schemas.record import document_key
from streams.agents.attempts import attempt, understood
from streams.agents.manifests import Manifests
from streams.agents.refusals import About, Outbox
from streams.crash_points import reached
from streams.errors import PoisonRecord
from streams.ports import Embedder, InRecord, VectorIndex
from streams.steps.plan_changes import Planned, manifest_of_points, plan_changes, skip_reason

INLINE_CHARACTERS = 20_000
"""Documents up to this size are chunked on the loop (a few milliseconds); larger ones in a thread."""


@dataclass(frozen=True, slots=True)
class ChunkerAgent:
    """What the chunker agent of one batch may touch, and its body `handle`."""

    outbox: Outbox
    manifests: Manifests
    index: VectorIndex
    """Only read, and only where a manifest is unknown and may be lost."""
    collection: str
    policy: ChunkPolicy
    counter: TokenCounter
    embedder: Embedder
    """Asked for its limit: text that it would cut is refused here, before anything is planned. A policy with `semantic` by the
    model's vectors also asks it for the vectors of sentences."""
    poison_attempts: int = 3
    compare_until: dict[int, int] = field(default_factory=dict)
    """Partition to offset of [parsed]. Records below it are compared with the index itself, whatever their manifest says. Set it to
    the end offset where the table turns out empty at assignment but [changes] is not (state lost): changes that a predecessor
    planned with other order keys may still be on their way, and no manifest made meanwhile can know them."""
    begun_empty: set[int] = field(default_factory=set)
    """Partitions that this worker has worked on since there was nothing: no manifest, no changes, no point. What it does not
    remember of one was never there, so a new document is planned without asking the index (`LostState.look_for_nothing`)."""

    async def handle(self, record: InRecord) -> None:
        """Settle one record of [parsed]. Raises only what stops the worker (see `attempt`)."""
        if record.value is None:
            return  # a tombstone of `docdelta gc`: every live batch has settled this document's end
        about: About | None = None
        try:
            value = record.value
            parsed = understood(lambda: decode(value, ParsedDocument))
            about = about_parsed(parsed)
            lost = record.offset < self.compare_until.get(record.partition, 0)
            known = record.partition in self.begun_empty
            before = previous_of(record)
            await attempt(lambda: self._settle(parsed, lost, known, before), self.outbox.patience, self.poison_attempts, "chunking")
        except PoisonRecord as error:
            await self.outbox.refuse(record, error, about)

    async def _settle(self, parsed: ParsedDocument, lost: bool, all_known: bool, previous: int) -> None:
        key = document_key(parsed.tenant_id, parsed.document_id)
        async with self.manifests.lock(key):
            before = self.manifests.get(key)
            skipped = skip_reason(parsed, before)
            if skipped is not None:
                if skipped.outcome is not None:
                    await self.outbox.settle(self.outbox.receipt(about_parsed(parsed), skipped.outcome, skipped.reason))
                return
            unknown = before is None and not all_known
            # A revision in between was never settled here: its changes may be under way, planned by an owner that is gone.
            missed = before is not None and before.revision < previous
            complete = unknown or parsed.reindex or lost or missed or (before is not None and before.suspect)
            if unknown:
                before = await self._manifest_from_index(parsed)
                if before is not None and parsed.revision < before.revision:
                    reason = f"revision {before.revision} is already in the index"
                    await self.outbox.settle(self.outbox.receipt(about_parsed(parsed), "stale", reason))
                    return
            planned = await self._plan(parsed, before, complete)
            await self._publish(key, parsed, planned)
            reached("chunker.published")
            await self.outbox.patience.hold(lambda: self.manifests.put(key, planned.manifest), "saving the manifest")
            reached("chunker.saved")

    async def _manifest_from_index(self, parsed: ParsedDocument) -> Manifest | None:
        """Return what the index holds of a document, under the newest revision it knows."""
        points = await self.outbox.patience.hold(
            lambda: self.index.document_points(self.collection, parsed.tenant_id, parsed.document_id), "reading the index"
        )
        return manifest_of_points([point.payload for point in points])

    async def _plan(self, parsed: ParsedDocument, before: Manifest | None, complete: bool) -> Planned:
        loop = asyncio.get_running_loop()

        def vectors(texts: Sequence[str]) -> list[list[float]]:
            """Ask the model from the thread that chunks. An outage leaves as Unavailable, and all of it is tried again."""
            answer = asyncio.run_coroutine_threadsafe(self.embedder.embed(texts), loop).result()
            return [vector.tolist() for vector in answer]

        def work() -> Planned:
            asked = vectors if self.policy.asks_model else None
            planned = plan_changes(parsed, before, self.outbox.batch, self.policy, self.counter, complete, asked)
            self._check_model_limit(planned)
            return planned

        if len(parsed.text) <= INLINE_CHARACTERS and not self.policy.asks_model:
            return work()
        return await asyncio.to_thread(work)

    def _check_model_limit(self, planned: Planned) -> None:
        limit = self.embedder.max_tokens
        if limit is None:
            return
        for placed in planned.delta.added:
            text = placed.chunk.embed_text
            # No tokenizer of these models makes more tokens than UTF-8 bytes and two marks, so short text needs no count.
            if len(text.encode("utf-8")) + 2 > limit and (tokens := self.embedder.count_tokens(text)) > limit:
                raise PoisonRecord(
                    f"chunk {placed.chunk.ordinal} has {tokens} tokens for model {self.embedder.model}, above its {limit}: "
                    "it would be cut silently; lower limits.max_tokens",
                    chunk_id=placed.chunk.chunk_id,
                )

    async def _publish(self, key: bytes, parsed: ParsedDocument, planned: Planned) -> None:
        for changes in planned.changes:
            await self.outbox.publish(self.outbox.topics.changes(self.outbox.batch), key, encode(changes))
            reached("chunker.part")
        if not planned.changes:
            kept = len(planned.manifest.entries)
            receipt = self.outbox.receipt(about_parsed(parsed), "unchanged", "no chunk changed")
            await self.outbox.settle(receipt.model_copy(update={"kept": kept, "deleted": parsed.op == "delete"}))


def previous_of(record: InRecord) -> int:
    """Return the revision that the parser passed on before this one, as its header says; -1: none, or not known."""
    said = record.headers.get(PREVIOUS, b"")
    return int(said) if said.isdigit() else -1


def about_parsed(parsed: ParsedDocument | ChunkChanges) -> About:
    """Return whose record it is."""
    return About(
        parsed.tenant_id,
        parsed.document_id,
        parsed.revision,
        parsed.event_id,
        parsed.title,
        parsed.occurred_at,
        parsed.received_at,
    )
