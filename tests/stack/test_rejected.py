"""What a person kept stays: through audit, repair, re-index by either lane, a kill, the loss of all state. About 60 s."""

from __future__ import annotations

import asyncio
import json
import shutil
import time
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from schemas.codec import decode
from schemas.document_change import DocumentChange
from schemas.record import document_key
from streams.kafka.admin import delete_topics
from streams.kafka.client import make_admin
from streams.kafka.read import read_topic
from streams.settings import KafkaSettings
from tests.stack.rig import Rig, a_page, delete, rig, upsert
from tests.stack.test_audit import audit_when_clean
from tests.support.patience import PATIENCE

GUARDED = {"DOCDELTA_BREAKER__SHARE": "0.25", "DOCDELTA_BREAKER__MINIMUM": "10"}


async def _done(stack: Rig, *arguments: str) -> str:
    done = await stack.docdelta(*arguments)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


async def _reindex(stack: Rig, lane: str, documents: int) -> None:
    told: dict[str, Any] = json.loads(await _done(stack, "reindex", "--all", "--yes", "--lane", lane, "--json"))
    await stack.receipts_when(
        lambda receipts: len({r.document_id for r in receipts if r.event_id.endswith(f"#reindex-{told['run']}")}) == documents
    )


async def _lose_all_state(stack: Rig) -> None:
    topics = stack.settings.topics
    changelogs = [topics.changelog(topics.parser_group, topics.seen_table)]
    changelogs.append(topics.changelog(topics.batch_group(stack.policy.batch_id), topics.manifests_table))
    await asyncio.to_thread(delete_topics, make_admin(stack.kafka), changelogs)
    shutil.rmtree(stack.folder / "state-one")
    await _done(stack, "topics", "apply")


async def _ends_in(stack: Rig, changes: Iterable[DocumentChange]) -> None:
    """Wait until the last record of each document is an upsert of this revision."""
    wanted = {document_key(each.tenant_id, each.document_id): each.revision for each in changes}
    deadline = time.monotonic() + PATIENCE
    while True:
        records = await asyncio.to_thread(lambda: list(read_topic(stack.kafka, stack.settings.topics.documents)))
        last = {record.key: decode(record.value, DocumentChange) if record.value else None for record in records}
        there = {key: change.revision for key, change in last.items() if change is not None and change.op == "upsert"}
        if wanted.items() <= there.items():
            return
        assert time.monotonic() < deadline, wanted.items() - there.items()
        await asyncio.sleep(0.5)


async def test_what_was_rejected_stays_rejected(apache_settings: KafkaSettings, tmp_path: Path, fresh: str) -> None:
    async with rig(apache_settings, tmp_path, fresh) as stack:
        stack.start(**GUARDED)
        live = {f"d{n}": upsert(f"d{n}", 1, a_page(f"d{n}", 1)) for n in range(60)}
        await stack.put(*live.values())
        wave = [delete(f"d{n}", 2) for n in range(50)]
        outcome = await stack.put(*wave)
        for change in wave:
            if outcome[change.event_id].outcome == "indexed":
                del live[change.document_id]
        assert len(live) > 40
        kept = len(live) - 10

        # All state is lost while they are held. They are still held, and an older revision does not take their place.
        await stack.stop()
        await _lose_all_state(stack)
        stack.start(**GUARDED)
        name = next(iter(live))
        late = upsert(name, 0, a_page("late"), event_id="late")
        assert (await stack.put(late))["late"].outcome == "stale"
        held = json.loads(await _done(stack, "breaker", "list", "--json"))
        assert [each["held"] for each in held] == [kept]

        stack.workers["one"].kill()
        stack.workers["one"].wait()
        stack.start(**GUARDED)
        await _done(stack, "breaker", "reject", "acme", "--yes", "--reason", "not mounted")
        assert json.loads(await _done(stack, "breaker", "list", "--json")) == []
        await stack.check(live.values())
        report = await audit_when_clean(stack, "--repair")
        assert (report["documents"], report["rejected"]) == (len(live), kept)
        for lane in ("bulk", "live"):
            await _reindex(stack, lane, 60)
            await stack.check(live.values())

        await stack.stop()
        await _lose_all_state(stack)
        stack.start(**GUARDED)
        await _reindex(stack, "live", 60)
        await stack.check(live.values())
        report = await audit_when_clean(stack, "--repair")  # what was kept has no manifest where the parser still read the log
        assert (report["documents"], report["rejected"]) == (len(live), kept)

        # Neither does `gc`, nor compaction, whatever stood before the deletes: each kept page is what its log ends in.
        await _done(stack, "gc", "--older-than", "0s", "--yes")
        await _ends_in(stack, live.values())

        # What its source deletes later goes.
        later = delete(name, 9)
        assert (await stack.put(later))[later.event_id].outcome == "indexed"
        del live[name]
        await stack.check(live.values())
