"""Mutations of what operators do: replay, drop, `gc`, keeping the letters' index, `retire`. Each breaks one order of effects."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from functools import partial

from schemas.codec import decode, encode
from schemas.document_change import FORGET, DocumentChange
from schemas.letter_index import CHECKPOINT
from streams.agents.parse_document import ParserAgent
from streams.batches.ledger import Clerk, Ledger
from streams.batches.retire import Remover, RetirePlan
from streams.errors import NotReachable
from streams.kafka.offsets import PartitionLag
from streams.kafka.produce import OutRecord
from streams.ports import InRecord, VectorIndex
from streams.steps.settle_change import UNSEEN, Seen
from tests.crash.simulation.blocking import Blocking
from tests.crash.simulation.broker import SimulatedBroker
from tests.crash.simulation.histories import Command, History
from tests.crash.simulation.letters import LetterSimulation, letter_history
from tests.crash.simulation.member import Parts
from tests.crash.simulation.mutations import Mutation
from tests.crash.simulation.operators import Operator
from tests.crash.simulation.world import NAMES, World


def _is_replay(out: list[OutRecord]) -> bool:
    return bool(out) and out[0].sends == "replay"


class ClosesFirst(SimulatedBroker):
    """Closes letters before their events are out."""

    def __init__(self, world: World, thread: Blocking) -> None:
        super().__init__(world, thread)
        self._waiting: list[OutRecord] = []

    def write(self, records: Iterable[OutRecord], on_progress: Callable[[int], None] | None = None) -> int:
        out = list(records)
        if _is_replay(out):
            self._waiting = out
            return len(out)
        waiting, self._waiting = self._waiting, []
        return super().write(out) + super().write(waiting)


class TakesItForSent(SimulatedBroker):
    """Closes letters whether the broker has confirmed their events or not."""

    def write(self, records: Iterable[OutRecord], on_progress: Callable[[int], None] | None = None) -> int:
        out = list(records)
        try:
            return super().write(out)
        except NotReachable:
            if not _is_replay(out):
                raise
            return len(out)


class _Rewrites(SimulatedBroker):
    def write(self, records: Iterable[OutRecord], on_progress: Callable[[int], None] | None = None) -> int:
        return super().write([self.other(record) for record in records])

    def other(self, record: OutRecord) -> OutRecord:
        """Return what is written in place of a record."""
        raise NotImplementedError


class AsNewest(_Rewrites):
    """Replays an event under a revision of its own."""

    def other(self, record: OutRecord) -> OutRecord:
        if record.sends != "replay":
            return record
        change = decode(record.value or b"", DocumentChange)
        return replace(record, value=encode(change.model_copy(update={"revision": change.revision + 1})))


class AsAnyOther(_Rewrites):
    """Replays an event as its sender sent it."""

    def other(self, record: OutRecord) -> OutRecord:
        if record.sends != "replay":
            return record
        return replace(record, value=encode(decode(record.value or b"", DocumentChange).model_copy(update={"reindex": False})))


class EndsAnew(_Rewrites):
    """Forgets with a null value like any other."""

    def other(self, record: OutRecord) -> OutRecord:
        return replace(record, headers={}) if FORGET in record.headers else record


class LooksAtNobody(SimulatedBroker):
    """Forgets what the parser has not passed yet."""

    def places(self, group: str, topic: str) -> list[PartitionLag]:
        return [replace(each, committed=each.end) for each in super().places(group, topic)]


class ForgetsOpenOnes(SimulatedBroker):
    """Removes all dead letters."""

    def delete_before(self, topic: str, offsets: Mapping[int, int]) -> None:
        super().delete_before(topic, {number: len(self.world.logs[topic, number]) for number in offsets})


class ClosingsFirst(SimulatedBroker):
    """Takes closings out of the index before their entries."""

    def write(self, records: Iterable[OutRecord], on_progress: Callable[[int], None] | None = None) -> int:
        out = list(records)
        entries = [each for each in out if each.topic == NAMES.letter_index and each.value is None and each.key is not None]
        return super().write([replace(each, key=(each.key or b"").replace(b"open/", b"closed/")) for each in entries] + out)


class VouchesFirst(SimulatedBroker):
    """Writes the checkpoint before the letters that it vouches for."""

    def write(self, records: Iterable[OutRecord], on_progress: Callable[[int], None] | None = None) -> int:
        return super().write(sorted(records, key=lambda record: record.key != CHECKPOINT.encode()))


class ForgetsRows(ParserAgent):
    """Forgets an old delete altogether."""

    async def handle(self, record: InRecord) -> None:
        if FORGET in record.headers and record.key is not None:
            await self.outbox.patience.hold(lambda: self.seen.put(record.key or b"", Seen(UNSEEN, "").to_bytes()), "forgetting")
        else:
            await ParserAgent.handle(self, record)


class OverlooksForgetting(ParserAgent):
    """Says nothing again behind a forgetting."""

    async def handle(self, record: InRecord) -> None:
        if FORGET not in record.headers:
            await ParserAgent.handle(self, record)


class MendsNothing(SimulatedBroker):
    """Leaves a forgetting behind a document that somebody revived in the very moment."""

    def write(self, records: Iterable[OutRecord], on_progress: Callable[[int], None] | None = None) -> int:
        return super().write(
            [record for record in records if record.topic != NAMES.documents or record.sends or record.value is None]
        )


class RemovesFirst(Operator):
    """Drops a batch's collection before [batches] says that it is retired."""

    async def retire(self, plan: RetirePlan, ledger: Ledger, clerk: Clerk, index: VectorIndex, remover: Remover) -> None:
        await index.drop_collection(plan.batch.collection)
        await Operator.retire(self, plan, ledger, clerk, index, remover)


class WaitsForNobody(Operator):
    """Drops a batch's collection while workers still write to it."""

    async def retire(self, plan: RetirePlan, ledger: Ledger, clerk: Clerk, index: VectorIndex, remover: Remover) -> None:
        await Operator.retire(self, plan, ledger, clerk, index, replace(remover, wait_until_left=lambda group: None))


def often(seed: int, name: str, faults: tuple[str, ...]) -> History:
    """Return a history of dead letters in which a command is given again and again, and is often killed."""
    history = letter_history(seed)
    count, others = len(history.events), (each for each in history.commands if each.name != "mend")
    more = tuple(Command(name, at) for at in (*range(2, count, 3), count, count))
    kept = frozenset((*faults, "kill_command", "refuse", "prefix"))
    return replace(history, commands=(*others, *more), faults=kept, fault_limit=8, fault_rate=0.1, compaction=True)


def _broken(parts: Parts, name: str, *faults: str, first: int = 0) -> Mutation:
    return Mutation(parts, 600, first=first, histories=partial(often, name=name, faults=faults), simulation=LetterSimulation)


def _retires(history: History) -> bool:
    return any(command.name == "retire" for command in history.commands)


def _retiring(parts: Parts) -> Mutation:
    return Mutation(parts, 3000, only_with=_retires, histories=letter_history, simulation=LetterSimulation)


LETTER_MUTATIONS: Mapping[str, Mutation] = {
    "letters-closed-before-their-events-are-out": _broken(Parts(broker=ClosesFirst), "replay", first=300),
    "letters-closed-unconfirmed": _broken(Parts(broker=TakesItForSent), "replay", "outage", first=450),
    "a-replay-that-overtakes": _broken(Parts(broker=AsNewest), "replay"),
    "a-replay-like-any-other-event": _broken(Parts(broker=AsAnyOther), "replay"),
    "forgotten-by-a-plain-null-value": _broken(Parts(broker=EndsAnew), "forget"),
    "forgotten-before-the-parser-has-passed-it": _broken(Parts(broker=LooksAtNobody), "forget"),
    "a-forgetting-stays-last": _broken(Parts(parser=OverlooksForgetting, broker=MendsNothing), "forget", first=700),
    "forgotten-by-the-parser-too": _broken(Parts(parser=ForgetsRows), "forget", first=400),
    "open-letters-forgotten": _broken(Parts(broker=ForgetsOpenOnes), "forget"),
    "closings-before-their-entries": _broken(Parts(broker=ClosingsFirst), "forget"),
    "a-checkpoint-before-what-it-vouches-for": _broken(Parts(broker=VouchesFirst), "keep"),
    "a-collection-dropped-before-the-claim": _retiring(Parts(operator=RemovesFirst)),
    "a-collection-dropped-under-its-workers": _retiring(Parts(operator=WaitsForNobody)),
}
"""Name to what is broken. Not there: a replay that leaves [documents] in another order (`newest.mend_order`), and one that sends
what a newer revision has overtaken; the parser puts both right (agents/order.py, steps/settle_change.py)."""
