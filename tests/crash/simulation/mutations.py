"""Mutations: the agents and their ports with one order of effects broken. The simulator must find every one of them."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from typing import Any

from chunking.manifest import Manifest
from schemas.chunk_changes import ChunkRecord
from schemas.document_change import AGAIN, DocumentChange
from schemas.parsed_document import ParsedDocument
from streams.agents.chunk_document import ChunkerAgent, about_parsed
from streams.agents.holding import Event as AtTheDoor
from streams.agents.holding import Pass
from streams.agents.index_changes import IndexerAgent, Lender
from streams.agents.order import Order
from streams.agents.parse_document import ParserAgent
from streams.batches.ledger import Clerk, Ledger
from streams.batches.switch import SwitchPlan
from streams.errors import Stopping, Unavailable
from streams.faustio.batch_runner import BatchRunner
from streams.faustio.keyed_runner import Handler, KeyedRunner
from streams.lanes.feeder import Feeder
from streams.ports import NO_HEADERS, IndexPlan, InRecord, VectorIndex
from streams.steps.plan_changes import Planned
from streams.steps.plan_index import still_wanted
from streams.steps.settle_change import Seen
from tests.crash.simulation.histories import History, history_of, only
from tests.crash.simulation.member import Member, Parts
from tests.crash.simulation.operators import Operator
from tests.crash.simulation.ports import Log, Table, order_of
from tests.crash.simulation.scheduler import Simulation
from tests.crash.simulation.world import Index


class TableFirst(ChunkerAgent):
    """Saves the manifest before its changes are out."""

    async def _publish(self, key: bytes, parsed: ParsedDocument, planned: Planned) -> None:
        await self.outbox.patience.hold(lambda: self.manifests.put(key, planned.manifest), "saving the manifest")
        await ChunkerAgent._publish(self, key, parsed, planned)


class RemembersFirst(ParserAgent):
    """Remembers an event before what comes of it is out."""

    async def _pass(self, event: AtTheDoor, received_at: datetime, answer: Pass) -> None:
        if event.decision.seen is not None:
            await self._remember(event, replace(event.decision.seen, offset=event.record.offset))
        await ParserAgent._pass(self, event, received_at, answer)


class BelievesWhatItSaid(ParserAgent):
    """Takes what was said again for the last word, though a newer event may have come between."""

    async def _keep_order(self, record: InRecord, change: DocumentChange | None, row: Seen | None, fingerprint: str = "") -> None:
        if AGAIN not in record.headers:
            await ParserAgent._keep_order(self, record, change, row, fingerprint)


class EndsStayLost(Order):
    """Says upserts again, and no deletes."""

    async def say_newest(self, late: InRecord, row: Seen) -> None:
        if not row.deleted:
            await Order.say_newest(self, late, row)


def _ends_stay_lost(member: Member) -> Order:
    order = order_of(member)
    return EndsStayLost(order.recall, order.say)


class ForgetsEnds(ChunkerAgent):
    """Keeps no mark of a deleted document."""

    async def _plan(self, parsed: ParsedDocument, before: Manifest | None, complete: bool) -> Planned:
        planned = await ChunkerAgent._plan(self, parsed, before, complete)
        revision = 0 if planned.manifest.deleted else parsed.revision
        return replace(planned, manifest=replace(planned.manifest, deleted=False, revision=revision))


class NeverComplete(ChunkerAgent):
    """Believes a lost manifest to mean a new document."""

    async def _manifest_from_index(self, parsed: ParsedDocument) -> Manifest | None:
        return None

    async def _plan(self, parsed: ParsedDocument, before: Manifest | None, complete: bool) -> Planned:
        return await ChunkerAgent._plan(self, parsed, before, False)


class TellsFirst(IndexerAgent):
    """Says that a document is indexed before its points are written."""

    async def _finish(self, item: Any, vectors: Mapping[str, Any]) -> None:
        if item.changes.part == item.changes.parts and not item.wanted.superseded:
            await self.outbox.settle(self.outbox.receipt(about_parsed(item.changes), "indexed"))
        await IndexerAgent._finish(self, item, vectors)


class PassesWithoutWaiting(Feeder):
    """Lets a record of [bulk] be passed before [documents] has it."""

    async def handle(self, record: InRecord) -> None:
        task = asyncio.get_running_loop().create_task(Feeder.handle(self, record))
        task.add_done_callback(lambda done: done.cancelled() or done.exception())
        await asyncio.sleep(0)


class Overtakes(BatchRunner):
    """Has what goes first pass all that waits, records of its own key among them."""

    async def _admit(self, stream: Any, event: Any) -> None:
        await BatchRunner._admit(self, stream, event)
        self._waiting.sort(key=lambda waiting: not waiting.first)


class SideBySide(KeyedRunner):
    """Handles records of one key at once."""

    async def _in_turn(self, slot: Any, before: Any) -> None:
        await KeyedRunner._in_turn(self, slot, None)


class Ungated(IndexerAgent):
    """Carries out every delta, whatever is planned since."""

    async def _open(self, record: InRecord, again: bool) -> Any:
        item = await IndexerAgent._open(self, record, again)
        if item is not None:
            item.newest, item.wanted = None, still_wanted(item.changes, None)
        return item


class UnawaitedLog(Log):
    """Returns before the broker has the record, as one await of Faust's `topic.send()` does; a lost send is only logged."""

    async def publish(self, topic: str, key: bytes, value: bytes, more: Mapping[str, bytes] = NO_HEADERS) -> None:
        async def send() -> None:
            try:
                await Log.publish(self, topic, key, value, more)
            except Unavailable:
                return

        self._member.start(send())


class UnawaitedTable(Table):
    """Returns before the changelog has the value."""

    async def put(self, key: bytes, value: bytes) -> None:
        async def send() -> None:
            try:
                await Table.put(self, key, value)
            except Unavailable:
                return

        self._member.table[key] = value
        self._member.start(send())


class DirtyTable(Table):
    """A local store on disk, written before its changelog and believed after a crash."""

    def __init__(self, member: Member) -> None:
        super().__init__(member)
        disk: dict[tuple[str, int], dict[bytes, bytes]] = member.world.__dict__.setdefault("disk", {})
        self._disk = disk.setdefault((member.group, member.partition), {})
        if member.generation % 2:  # the same machine again
            member.table.update(self._disk)

    async def put(self, key: bytes, value: bytes) -> None:
        self._disk[key] = self._member.table[key] = value
        await Table.put(self, key, value)


class NewestAcks(KeyedRunner):
    """Acknowledges up to the newest record that is done."""

    async def _acknowledge(self, partition: Any) -> None:
        done = [slot for slot in self._queues[partition] if slot.done]
        if done:
            await done[-1].stream.ack(done[-1].event)
        await KeyedRunner._acknowledge(self, partition)


class AcksStopped(KeyedRunner):
    """Acknowledges a record whose handler gave up, as Faust does with a raised error."""

    def __init__(self, app: Any, name: str, handle: Handler, in_flight: int) -> None:
        async def swallow(record: InRecord) -> None:
            try:
                await handle(record)
            except Stopping:
                return

        super().__init__(app, name, swallow, in_flight)


class Unfenced(Index):
    """Writes over newer points."""

    def _newer(self, chunk_id: str, revision: int) -> bool:
        return False

    def _as_seen(self, chunk_id: str, seen: Mapping[str, Any]) -> bool:
        return chunk_id in self.points


class DeletesFirst(Index):
    """Removes before it writes."""

    def steps(self, plan: IndexPlan) -> list[Callable[[], None]]:
        steps = super().steps(plan)
        count = len(plan.deletes)
        return steps[len(steps) - count :] + steps[: len(steps) - count]


class ForgetsDeletes(Index):
    """Ends a batch of operations before its removals and calls it done."""

    def steps(self, plan: IndexPlan) -> list[Callable[[], None]]:
        return super().steps(replace(plan, deletes=plan.deletes[:-1])) or [lambda: None]


class BorrowsByPlace(IndexerAgent):
    """Takes the vectors of the served batch as they stand in the document, whatever their text."""

    async def _lent(self, item: Any, lender: Lender, lacking: Sequence[ChunkRecord]) -> dict[str, Any]:
        changes = item.changes
        listed = await self.index.document_points(lender.collection, changes.tenant_id, changes.document_id)
        ids = [point.chunk_id for point in listed]
        points = await self.index.retrieve(lender.collection, ids, with_vectors=True) if ids else {}
        found = [points[chunk_id].vector for chunk_id in ids if chunk_id in points]
        return {record.embed_hash: vector for record, vector in zip(lacking, found, strict=False)}


class TrustsManifests(ChunkerAgent):
    """Compares nothing with the index, though `reindex` asks."""

    async def _plan(self, parsed: ParsedDocument, before: Manifest | None, complete: bool) -> Planned:
        return await ChunkerAgent._plan(self, parsed, before, complete and before is None)


class PointsFirst(Operator):
    """Moves readers before [batches] has the claim."""

    async def execute(self, plan: SwitchPlan, ledger: Ledger, clerk: Clerk, index: VectorIndex) -> None:
        await index.set_alias(plan.alias, plan.target.collection)
        await Operator.execute(self, plan, ledger, clerk, index)


class TakesClaimsForDone(Operator):
    """Leaves the alias alone where [batches] says already that the batch is served."""

    async def execute(self, plan: SwitchPlan, ledger: Ledger, clerk: Clerk, index: VectorIndex) -> None:
        if plan.claim is not None:
            await Operator.execute(self, plan, ledger, clerk, index)


@dataclass(frozen=True, slots=True)
class Mutation:
    """What is broken, and within how many histories it must be found. `faults`: tried with these alone, where it takes them."""

    parts: Parts
    budget: int = 600
    faults: tuple[str, ...] = ()
    only_with: Callable[[History], bool] = lambda history: True
    """Tried with these histories alone; the others count to the budget as well."""
    first: int = 0
    """The first seed, for what is rare."""
    histories: Callable[[int], History] = history_of
    simulation: type[Simulation] = Simulation

    @property
    def seeds(self) -> range:
        """Seeds that are tried."""
        return range(self.first, self.first + self.budget)

    def bend(self, history: History) -> History | None:
        """Return the history as it is tried, or None."""
        if not self.only_with(history):
            return None
        return only(*self.faults)(history) if self.faults else history


def _rollouts(history: History) -> bool:
    return bool(history.commands)


def _in_two_lanes(history: History) -> bool:
    return any(event.bulk for event in history.events)


def _repaired(history: History) -> bool:
    return history.repaired


MUTATIONS: Mapping[str, Mutation] = {
    "late-events-stay-last": Mutation(Parts(order=lambda member: None)),
    "what-was-said-again-is-taken-for-the-last-word": Mutation(Parts(parser=BelievesWhatItSaid)),
    "an-end-is-not-said-again": Mutation(Parts(order=_ends_stay_lost)),
    "table-before-outputs": Mutation(Parts(chunker=TableFirst)),
    "outputs-not-awaited": Mutation(Parts(log=UnawaitedLog)),
    "table-not-awaited": Mutation(Parts(table=UnawaitedTable)),
    "local-store-before-changelog-and-believed": Mutation(Parts(table=DirtyTable), 1500, ("crash", "outage")),
    "memory-before-outputs": Mutation(Parts(parser=RemembersFirst)),
    "receipt-before-points": Mutation(Parts(indexer=TellsFirst)),
    "bulk-passed-before-documents-has-it": Mutation(Parts(feeder=PassesWithoutWaiting), only_with=_in_two_lanes),
    "live-passes-its-own-document": Mutation(Parts(grouped=Overtakes), 3000, only_with=_in_two_lanes),
    "one-document-side-by-side": Mutation(Parts(keyed=SideBySide)),
    "alias-before-the-claim": Mutation(Parts(operator=PointsFirst), only_with=_rollouts),
    "acks-out-of-order": Mutation(Parts(keyed=NewestAcks)),
    "unfinished-records-acknowledged": Mutation(Parts(keyed=AcksStopped)),
    "no-deleted-mark": Mutation(Parts(chunker=ForgetsEnds), faults=("lose_seen",)),
    "lost-manifest-taken-for-a-new-document": Mutation(Parts(chunker=NeverComplete, knows_lost_state=False)),
    "lost-state-forgotten-after-one-record": Mutation(Parts(knows_lost_state=False), 1500, ("lose_manifests",)),
    "indexer-not-gated-by-manifests": Mutation(Parts(indexer=Ungated), 1500, ("zombie",)),
    "no-recheck-after-a-partition-moved": Mutation(Parts(rechecks=False), faults=("zombie",)),
    "no-fence": Mutation(Parts(index=Unfenced), 1500, ("zombie",)),
    "an-empty-table-taken-for-a-new-batch": Mutation(Parts(begins_empty=lambda member: not member.table)),
    "deletes-before-upserts": Mutation(Parts(index=DeletesFirst)),
    "a-delete-is-missing": Mutation(Parts(index=ForgetsDeletes)),
    "a-build-begins-at-now": Mutation(Parts(builds_from_the_beginning=False), only_with=_rollouts),
    "readers-moved-before-the-build-is-through": Mutation(Parts(waits_for_the_build=False), only_with=_rollouts),
    "a-claim-taken-for-a-switch": Mutation(Parts(operator=TakesClaimsForDone), 3000, only_with=_rollouts),
    "vectors-borrowed-whatever-their-text": Mutation(Parts(indexer=BorrowsByPlace), only_with=_rollouts),
    "reindex-that-compares-with-nothing": Mutation(Parts(chunker=TrustsManifests), 3000, only_with=_repaired),
}
"""Name to what is broken. Three that re-check mends nearly always are shown elsewhere: a patch over what another owner wrote
(tests/contracts/test_index_laws.py), a first owner without a trace and commits within a grace (tests/agents/test_handover.py)."""
