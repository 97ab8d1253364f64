"""Workers and commands killed at every step of holding and deciding: nothing is lost, nothing passes that was not to.

One installation, a tenant a death, each worker taking up what the last one left. About 120 s on two cores.
"""

from __future__ import annotations

import asyncio
import subprocess
from pathlib import Path

import pytest

from schemas.document_change import DocumentChange
from streams.controls.standing import read_standing
from streams.crash_points import VARIABLE
from streams.settings import KafkaSettings
from tests.crash.stack.lives import HOLDING
from tests.stack.rig import Rig, a_page, delete, rig, upsert

pytestmark = pytest.mark.kafka
GUARDED = {"DOCDELTA_BREAKER__SHARE": "0.5", "DOCDELTA_BREAKER__MINIMUM": "4"}
DEATHS = (
    ("breaker.tripped", 1),
    ("parser.held", 1),
    ("parser.held", 3),
    ("parser.told", 2),
    ("parser.released", 1),
    ("parser.released", 3),
)
COMMANDS = ("breaker.decided", "release.sent", "pause.lifted")
DOCUMENTS, DELETED, PASS = 12, 10, 5
"""Of twelve documents ten are deleted; the sixth would make it half."""
KILLED = -9


async def _held(stack: Rig, tenant: str, count: int) -> None:
    for _ in range(600):
        held = await asyncio.to_thread(lambda: len(read_standing(stack.settings).held_of(tenant)))
        if held == count:
            return
        await asyncio.sleep(0.2)
    raise AssertionError(f"{held} of tenant {tenant} are held, not {count}\n{stack.log()[-3000:]}")


async def _done(stack: Rig, *arguments: str, **environment: str) -> None:
    done = await stack.docdelta(*arguments, **environment)
    assert done.returncode == 0, done.stdout + done.stderr


def _pages(tenant: str) -> list[DocumentChange]:
    return [upsert(f"d{n}", 1, a_page(f"d{n}", 1), tenant=tenant) for n in range(DOCUMENTS)]


def _ends(tenant: str) -> list[DocumentChange]:
    return [delete(f"d{n}", 2, tenant) for n in range(DELETED)]


async def _settled_or_dead(stack: Rig, worker: subprocess.Popen[bytes], tenant: str) -> bool:
    """Return whether all deletes of a tenant have an outcome; False when the worker died first."""
    wanted = {change.event_id for change in _ends(tenant)}
    for _ in range(600):
        if wanted <= {receipt.event_id for receipt in await stack.receipts()}:
            return True
        if worker.poll() is not None:
            return False
        await asyncio.sleep(0.2)
    raise AssertionError(f"deletes of tenant {tenant} have no outcome\n{stack.log()[-3000:]}")


async def _outcome(stack: Rig, tenant: str, verdict: str) -> list[DocumentChange]:
    """Decide, wait, and return what is to be there of a tenant."""
    outcome = await stack.outcomes(change.event_id for change in _ends(tenant))
    held = {event for event, receipt in outcome.items() if receipt.outcome == "held"}
    assert len(held) >= DELETED - PASS, tenant
    await _done(stack, "breaker", verdict, tenant, "--yes", "--wait", "100")
    gone = {change.document_id for change in _ends(tenant) if verdict == "approve" or change.event_id not in held}
    passed = {change.event_id for change in _ends(tenant) if change.document_id in gone}
    await stack.receipts_when(lambda receipts: passed <= {r.event_id for r in receipts if r.batch})
    return [page for page in _pages(tenant) if page.document_id not in gone]


def test_every_step_of_holding_kills() -> None:
    assert {step for step, _ in DEATHS} == set(HOLDING)


async def test_a_death_at_any_step_of_holding_loses_nothing(apache_settings: KafkaSettings, tmp_path: Path, fresh: str) -> None:
    async with rig(apache_settings, tmp_path, fresh) as stack:
        approved = set()
        for number, (step, time) in enumerate(DEATHS):
            tenant = f"t{number}"
            worker = stack.start(**GUARDED, **{VARIABLE: f"{step}:{time}"})
            await stack.send(*_pages(tenant), *_ends(tenant))
            if step == "parser.released" and await _settled_or_dead(stack, worker, tenant):
                await stack.docdelta("breaker", "approve", tenant, "--yes", "--wait", "0")
                approved.add(tenant)
            # It may die of what the last one left, before it comes to its own.
            assert await asyncio.wait_for(asyncio.to_thread(worker.wait), 120) == KILLED, stack.log()[-3000:]
        assert approved
        stack.start(**GUARDED)
        there: list[DocumentChange] = []
        for number in range(len(DEATHS)):
            if f"t{number}" in approved:
                await _held(stack, f"t{number}", 0)
                there += _pages(f"t{number}")[DELETED:]
            else:
                there += await _outcome(stack, f"t{number}", "approve" if number % 2 else "reject")
        assert await asyncio.to_thread(lambda: read_standing(stack.settings).held) == {}
        await stack.check(there)

        # The commands, killed and run again.
        for number, step in enumerate(COMMANDS[:2]):
            for verdict in ("approve", "reject"):
                tenant = f"c{number}-{verdict}"
                await stack.put(*_pages(tenant))
                await stack.put(*_ends(tenant))
                died = await stack.docdelta("breaker", verdict, tenant, "--yes", **{VARIABLE: f"{step}:1"})
                assert died.returncode == KILLED, died.stderr
                if step == "breaker.decided":
                    there += await _outcome(stack, tenant, verdict)
                else:  # it would only have waited
                    await _held(stack, tenant, 0)
                    outcome = await stack.outcomes(change.event_id for change in _ends(tenant))
                    held = {each.document_id for each in outcome.values() if each.outcome == "held"}
                    ended = {c.document_id for c in _ends(tenant) if verdict == "approve" or c.document_id not in held}
                    there += [page for page in _pages(tenant) if page.document_id not in ended]
        await _done(stack, "pause", "--tenant", "p")
        await stack.put(*_pages("p"))
        died = await stack.docdelta("resume", "--tenant", "p", **{VARIABLE: f"{COMMANDS[2]}:1"})
        assert died.returncode == KILLED, died.stderr
        await _held(stack, "p", DOCUMENTS)
        await _done(stack, "resume", "--tenant", "p", "--wait", "100")
        there += _pages("p")
        pages = {page.event_id for page in there}
        await stack.receipts_when(lambda receipts: pages <= {r.event_id for r in receipts if r.batch and r.outcome == "indexed"})
        await stack.check(there)
        assert await stack.stop() == 0
