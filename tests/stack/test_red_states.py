"""The red states that only a worker knows, made on one: a model that does not answer, a broker that confirms no commit, a recovery
that takes long. Each is shown with its cause and goes with it.

One worker at a time; about a minute on two cores. The page's thresholds are lowered, so that a test need not sit them out; that
they and the pauses between looks are short enough is a law of its own (tests/unit/board/test_seen_in_time.py).
"""

from __future__ import annotations

from pathlib import Path

import pytest

from schemas.document_change import DocumentChange
from streams.board import feeds as pauses
from streams.board import troubles as thresholds
from streams.board.feeds import Feeds
from streams.settings import KafkaSettings
from tests.stack.rig import Rig, a_page, rig, upsert
from tests.stack.scrape import free_port, scrape
from tests.stack.test_dashboard_states import the_page, until
from tests.support import faulty_worker
from tests.support.faulty_worker import COMMITS_FAIL, MODEL_HANGS, TABLES_STAND

pytestmark = pytest.mark.kafka
SECTIONS = 2
DOCUMENTS = 12


@pytest.fixture
def impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    """Have the page look every half second and call red what lasts for two."""
    monkeypatch.setattr(pauses, "WORKERS_SECONDS", 0.5)
    for name in ("CALL_SECONDS", "STALL_SECONDS", "RECOVERY_SECONDS"):
        monkeypatch.setattr(thresholds, name, 2.0)


@pytest.mark.usefixtures("impatient")
async def test_what_only_a_worker_knows_is_shown_and_goes_with_its_cause(
    apache_settings: KafkaSettings, tmp_path: Path, fresh: str
) -> None:
    async with rig(apache_settings, tmp_path, fresh) as stack:
        stack.program = (faulty_worker.__file__,)
        port = free_port()
        probes = {"DOCDELTA_WORKER__METRICS_PORT": str(port), "DOCDELTA_WORKER__HANDOVER_GRACE_SECONDS": "1"}
        stack.start(**probes)
        newest = {f"d{n}": upsert(f"d{n}", 1, a_page(f"d{n}", SECTIONS)) for n in range(DOCUMENTS)}
        await stack.put(*newest.values())
        async with the_page(stack, port) as page:
            await until(page)
            newest["d0"] = await _model_that_does_not_answer(stack, page, port)
            newest["d1"] = await _broker_that_confirms_no_commit(stack, page)
            await _recovery_that_takes_long(stack, page, probes)
        await stack.check(newest.values())


async def _model_that_does_not_answer(stack: Rig, page: Feeds, port: int) -> DocumentChange:
    fault = stack.folder / MODEL_HANGS
    fault.touch()
    edit = upsert("d0", 2, a_page("d0", SECTIONS, edit=" for a model that hangs"))
    await stack.send(edit)
    found = await until(page, "embedder_slow")
    assert float(found["embedder_slow"]["facts"]["seconds"]) >= thresholds.CALL_SECONDS  # told rounded
    assert "commits_stall" not in found, "the cause is named, not its consequence"
    assert (await scrape(port)).sum("docdelta_commit_stall_seconds") > 0
    fault.unlink()
    await stack.outcomes([edit.event_id])
    await until(page)
    return edit


async def _broker_that_confirms_no_commit(stack: Rig, page: Feeds) -> DocumentChange:
    fault = stack.folder / COMMITS_FAIL
    fault.touch()
    edit = upsert("d1", 2, a_page("d1", SECTIONS, edit=" without a commit"))
    receipts = await stack.put(edit)
    assert receipts[edit.event_id].outcome == "indexed", "work goes on"
    await until(page, "commits_refused")
    fault.unlink()
    await until(page)
    return edit


async def _recovery_that_takes_long(stack: Rig, page: Feeds, probes: dict[str, str]) -> None:
    assert await stack.stop() == 0, stack.log()
    fault = stack.folder / TABLES_STAND
    fault.touch()
    stack.start("two", **probes)
    found = await until(page, "recovering")
    assert 0 < int(found["recovering"]["facts"]["left"]) <= 2 * DOCUMENTS + 2
    fault.unlink()
    await until(page)
