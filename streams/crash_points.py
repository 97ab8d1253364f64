"""Crash points: named steps of the order of effects (DESIGN §4) at which a worker can be told to die, for tests/crash/stack.

``DOCDELTA_CRASH_AT=chunker.published:3`` makes `docdelta worker` SIGKILL itself the third time that step is reached: what is
left is what a power cut at that moment leaves. Only a worker reads the variable, and says so in its log; elsewhere it is ignored.
Unarmed, a step costs one look-up in an empty dictionary.
"""

from __future__ import annotations

import os
import signal
from collections.abc import Mapping

from streams.errors import UsageError

VARIABLE = "DOCDELTA_CRASH_AT"
STEPS = {
    "feeder.forwarded": "feeder ①: a record of [bulk] is on [documents]; its offset stands",
    "parser.published": "parser ①: parsed document, receipt or dead letter is out; what was seen is not remembered",
    "parser.repeated": "parser ③: the newest event stands behind a late one; the offset of the late one stands",
    "parser.remembered": "parser ②: what was seen is remembered; the offset stands",
    "breaker.tripped": "holding ①: [controls] says that the breaker is open; the event is not held",
    "parser.held": "holding ②: [held] has the event; its receipt is not out",
    "parser.told": "holding ③: the receipt is out; the row of `seen` has no mark",
    "parser.released": "letting go ②: [held] has the tombstone; the row still has its mark",
    "chunker.part": "chunker ①: one record of the changes is out; the next part, or the manifest, is not",
    "chunker.published": "chunker ①: changes or receipt are out; the manifest is not saved",
    "chunker.saved": "chunker ②: the manifest is saved; the offset stands",
    "table.confirmed": "table ①: the changelog has the record; the local store has not",
    "table.stored": "table ②: the local store has it; nothing that follows is done",
    "indexer.vectors": "indexer ①: vectors are found; nothing is written",
    "index.sending": "indexer ②-④: a request of the plan is about to be sent; earlier ones are confirmed",
    "index.confirmed": "indexer ②-④: a request of the plan is confirmed; the next, or the receipt, is not sent",
    "indexer.written": "indexer ④: a document's plan is in the index; its receipt is not out",
    "indexer.suspect": "indexer, refusal ①: the manifest is marked suspect; the dead letter is not out",
    "indexer.settled": "indexer ⑤: receipt or dead letter is out; the offset stands",
    "refusal.parked": "refusal ①: the dead letter is out; its receipt is not",
    "offset.passed": "⑥ the offset may advance; it is not committed",
}
"""Every step, and what is done and not done when it is reached."""
COMMAND_STEPS = {
    "rollout.proposed": "rollout ①: the batch is proposed; its topics are not made",
    "rollout.topics": "rollout ②: its topics are made; nobody builds it",
    "rollout.building": "rollout ③: workers build it; nobody watches",
    "rollout.ready": "rollout ④: it passed the gate; it is not served",
    "switch.claimed": "switch ①: [batches] says that it is served; the alias does not",
    "switch.pointed": "switch ②: the alias does; it is not read back",
    "breaker.decided": "approve or reject ①: [controls] says what was decided; no held event is sent again",
    "release.sent": "approve, reject or resume ②: the held events are sent again; nobody waits for them",
    "pause.lifted": "resume ①: [controls] says that the tenant is not paused; no held event is sent again",
    "retire.claimed": "retire ①: [batches] says that it is retired; all of it is there",
    "retire.left": "retire ②: workers have left it; all of it is there",
    "retire.dropped": "retire ③: its collection is gone; group and topics are there",
    "retire.group": "retire ④: its group is gone; its topics are there",
    "replay.sent": "replay ①: events of a group of dead letters are out; the letters are open",
    "reindex.sent": "re-index: one more event is out; the rest is not",
    "repair.spoiled": "audit --repair ①: the hashes of one more document's wrong points are taken away; no event is out",
    "repair.sent": "audit --repair ②: documents are sent again; deletes of those that nobody knows are not",
    "gc.letters": "gc ①: old letters are off the broker; their index still names them",
    "gc.deletes": "gc ③: the old deletes of one more partition are followed by a null value",
}
"""Steps of commands, each killed there in tests/stack (rollout, repair, audit) or tests/crash/stack (what holds)."""

_left: dict[str, int] = {}


def arm(order: str, steps: Mapping[str, str] = STEPS) -> None:
    """Have this process die as `order` says: ``step:n``; an empty one disarms. UsageError for an unknown step or number."""
    _left.clear()
    if not order:
        return
    step, _, times = order.partition(":")
    if step not in steps:
        raise UsageError(f"environment variable {VARIABLE}: {step[:60]!r} is no step; one of {', '.join(steps)}")
    if not times.isdecimal() or int(times) < 1:
        raise UsageError(f"environment variable {VARIABLE}: write {step}:n, n from 1, for the n-th time it is reached")
    _left[step] = int(times)
    import structlog  # settings look here for a name only, and must not wait for it

    structlog.get_logger(__name__).warning("armed to kill itself", step=step, time=int(times))


def reached(step: str) -> None:
    """Say that a step is reached. Does not return when the process is to die here."""
    if step not in _left:
        return
    _left[step] -= 1
    if not _left[step]:
        os.kill(os.getpid(), signal.SIGKILL)
