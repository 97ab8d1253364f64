"""[changes] is trimmed behind the indexer; nobody needs what is gone: not after kill -9, nor with commits and manifests lost."""

from __future__ import annotations

import asyncio
import shutil
import time
from pathlib import Path

import pytest

from streams.kafka.admin import delete_groups, delete_topics, execute_topics, plan_topics
from streams.kafka.client import make_admin
from streams.kafka.offsets import group_lag
from streams.settings import KafkaSettings
from streams.topics import batch_topics
from tests.stack.rig import Rig, a_page, delete, rig, upsert
from tests.support.patience import PATIENCE

pytestmark = pytest.mark.kafka
KEPT = 2
TRIMMING = {"DOCDELTA_WORKER__TRIM_SECONDS": "0.3", "DOCDELTA_WORKER__CHANGES_KEPT": str(KEPT)}


async def test_what_was_trimmed_is_needed_by_nobody(apache_settings: KafkaSettings, tmp_path: Path, fresh: str) -> None:
    async with rig(apache_settings, tmp_path, fresh) as stack:
        stack.start(**TRIMMING)
        pages = {f"d{n}": upsert(f"d{n}", 1, a_page(f"d{n}")) for n in range(24)}
        await stack.put(*pages.values())
        await _until_trimmed(stack)

        edits = [upsert(f"d{n}", 2, a_page(f"d{n}", edit=" again")) for n in range(0, 24, 2)]
        await stack.send(*edits)
        stack.workers["one"].kill()
        stack.start(**TRIMMING)
        await stack.outcomes(change.event_id for change in edits)
        pages |= {change.document_id: change for change in edits}
        await stack.check(pages.values())
        await _until_trimmed(stack)
        assert await stack.stop() == 0, stack.log()

        await asyncio.to_thread(_forget_everything, stack)
        changes = [delete("d0", 3), upsert("d1", 3, a_page("d1", edit=" at last")), upsert("new", 1, a_page("new"))]
        stack.start(**TRIMMING)
        await stack.put(*changes)
        pages |= {change.document_id: change for change in changes}
        await stack.check(pages.values())
        assert await stack.dead_letters() == []
        assert await stack.stop() == 0, stack.log()


async def _until_trimmed(stack: Rig) -> None:
    """Return when every partition that the indexer has worked through holds little more than its margin."""
    topics, batch = stack.settings.topics, stack.collection
    deadline = time.monotonic() + PATIENCE
    while True:
        places = await asyncio.to_thread(group_lag, stack.kafka, topics.batch_group(batch), [topics.changes(batch)])
        if all(place.lag == 0 and place.end - place.begin <= KEPT + 1 for place in places):
            assert any(place.begin > 0 for place in places)
            return
        assert time.monotonic() < deadline, f"{places}\n{stack.log()[-3000:]}"
        await asyncio.sleep(0.2)


def _forget_everything(stack: Rig) -> None:
    """Lose the batch's commits, its changelog and its state folder. What is left: [parsed], the rest of [changes], the index."""
    admin, topics = make_admin(stack.kafka), stack.settings.topics
    group = topics.batch_group(stack.collection)
    changelog = topics.changelog(group, topics.manifests_table)
    delete_groups(admin, [group])
    delete_topics(admin, [changelog])
    wanted = [topic for topic in batch_topics(topics, stack.collection, stack.kafka.partitions) if topic.name == changelog]
    execute_topics(admin, plan_topics({}, wanted))
    shutil.rmtree(stack.folder / "state-one" / group)
