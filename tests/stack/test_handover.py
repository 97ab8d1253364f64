"""A partition changes hands: memory that is lost, and a last owner that wakes up late. The index ends as a clean rebuild would."""

from __future__ import annotations

import asyncio
import shutil
import signal
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from streams.kafka.admin import apply_topics
from streams.kafka.client import make_admin
from streams.kafka.offsets import end_offsets, group_lag
from streams.settings import KafkaSettings
from streams.topics import Topic, batch_topics
from tests.contracts.qdrant_shim import Fault
from tests.stack.rig import Rig, a_page, delete, rig, upsert
from tests.support.patience import PATIENCE

pytestmark = pytest.mark.kafka
GRACE = "DOCDELTA_WORKER__HANDOVER_GRACE_SECONDS"


async def until(true: Callable[[], bool], what: str) -> None:
    """Wait until something holds; asks in a thread."""
    deadline = time.monotonic() + PATIENCE
    while not await asyncio.to_thread(true):
        assert time.monotonic() < deadline, f"never came true: {what}"
        await asyncio.sleep(0.1)


def records_in(stack: Rig, topic: str) -> int:
    return sum(end_offsets(stack.kafka, [topic]).values())


def changes_topic(stack: Rig) -> str:
    return stack.settings.topics.changes(stack.policy.batch_id)


def manifests_topic(stack: Rig) -> Topic:
    return batch_topics(stack.settings.topics, stack.policy.batch_id, stack.kafka.partitions)[-1]


def lose_manifests(stack: Rig) -> None:
    """Delete the changelog of the manifests, and the tables of its worker."""
    shutil.rmtree(stack.folder / "state-one" / stack.settings.topics.batch_group(stack.policy.batch_id))
    topic = manifests_topic(stack)
    admin = make_admin(stack.kafka)
    for done in admin.delete_topics([topic.name]).values():
        done.result(30)
    while topic.name in admin.list_topics(timeout=30).topics:
        pass
    apply_topics(stack.kafka, [topic])


def an_insertion(name: str, *added: int) -> str:
    """Return a page of four sections, with others between its first and its second."""
    parts = a_page(name).split("## Part 1\n")
    middle = "".join(f"## Added {number}\n\n{f'Notice {number} about {name}. ' * 12}\n\n" for number in added)
    return f"{parts[0]}{middle}## Part 1\n{parts[1]}"


async def test_memory_lost_while_changes_are_pending_is_made_good_by_the_index(
    apache_settings: KafkaSettings, tmp_path: Path, fresh: str
) -> None:
    """The index is down while a second revision is planned; then state folder and changelog are gone, and a third one comes."""
    async with rig(apache_settings, tmp_path, fresh) as stack:
        names = [f"d{number}" for number in range(8)]
        stack.start()
        await stack.put(*(upsert(name, 1, a_page(name)) for name in names))
        before = records_in(stack, changes_topic(stack))
        stack.shim.faults += [Fault(status=503) for _ in range(10_000)]
        second = [upsert(name, 2, an_insertion(name, 1, 2)) for name in names[:6]]
        await stack.send(*second, delete("d6", 2))
        await until(lambda: records_in(stack, changes_topic(stack)) == before + 7, "changes of the second revisions")
        await until(lambda: records_in(stack, manifests_topic(stack).name) >= len(names) + 7, "their manifests")
        stack.workers["one"].kill()
        await asyncio.to_thread(lose_manifests, stack)
        third = [
            upsert("d0", 3, a_page("d0")),  # the insertion is taken back before it was ever made
            upsert("d1", 3, an_insertion("d1", 2, 1)),
            upsert("d2", 3, an_insertion("d2", 3, 1)),
            delete("d3", 3),
            upsert("d6", 3, a_page("d6", edit=" back")),
        ]
        await stack.send(*third)
        stack.shim.faults.clear()
        stack.start()
        await stack.outcomes(change.event_id for change in (*second, *third))
        newest = {change.document_id: change for change in (upsert("d7", 1, a_page("d7")), *second, *third)}
        await stack.check(newest.values())
        assert "manifests are lost" in stack.log()
        assert await stack.dead_letters() == []
        again = [upsert(name, 9, an_insertion(name, 1)) for name in names]
        await stack.put(*again)
        await stack.check(again)


def lag(stack: Rig) -> int:
    """Records that the batch's group has not committed."""
    topics = stack.settings.topics
    group = topics.batch_group(stack.policy.batch_id)
    return sum(place.lag for place in group_lag(stack.kafka, group, [topics.parsed, changes_topic(stack)]))


async def test_a_worker_that_wakes_up_after_it_was_replaced_does_no_lasting_harm(
    apache_settings: KafkaSettings, tmp_path: Path, fresh: str
) -> None:
    """It is stopped for longer than its session while its writes hang in the index; they land after those of its successor."""
    async with rig(apache_settings, tmp_path, fresh) as stack:
        names = [f"d{number}" for number in range(6)]
        common = {GRACE: "10", "DOCDELTA_QDRANT__TIMEOUT_SECONDS": "100"}
        zombie = stack.start("one", DOCDELTA_WORKER__BATCH_SECONDS="2", **common)
        await stack.put(*(upsert(name, 1, a_page(name)) for name in names))
        landing = asyncio.Event()
        stack.shim.faults += [Fault(until=landing) for _ in names]
        await stack.send(*(upsert(name, 2, an_insertion(name, 1, 2)) for name in names))
        await until(lambda: not stack.shim.faults, "a write of every document that hangs")
        zombie.send_signal(signal.SIGSTOP)
        stack.start("two", **common)
        newest = [upsert(name, 3, a_page(name, edit=" third")) for name in names]
        await stack.put(*newest)
        await stack.check(newest)
        right = (await stack.points()).keys()
        assert await asyncio.to_thread(lag, stack) > 0, "committed before the grace is over"
        landing.set()
        harm = await came_back(stack, set(right))
        assert harm, "the late writes brought nothing back: this test shows nothing"
        assert "re-checked" not in stack.log("two"), "grace was over before the late writes: this test shows nothing"
        zombie.send_signal(signal.SIGCONT)
        await until(lambda: lag(stack) == 0, "all is committed")
        await stack.check(newest)
        assert await stack.dead_letters() == []


async def came_back(stack: Rig, right: set[str]) -> set[str]:
    """Return the points that late writes brought, as soon as there are some."""
    for _ in range(100):
        if extra := (await stack.points()).keys() - right:
            return set(extra)
        await asyncio.sleep(0.05)
    return set()
