"""A mass delete is held until a person decides, and pauses pause: production workers, commands and metrics together.

About 80 s on two cores.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from schemas.document_change import DocumentChange
from streams.settings import KafkaSettings
from tests.stack.rig import Rig, a_page, delete, rig, upsert
from tests.stack.scrape import Scrape, free_port, get, scrape_when
from tests.support.patience import PATIENCE

GUARDED = {"DOCDELTA_BREAKER__SHARE": "0.25", "DOCDELTA_BREAKER__MINIMUM": "20"}


async def _json(stack: Rig, *arguments: str, code: int = 0) -> Any:
    done = await stack.docdelta(*arguments, "--json")
    assert done.returncode == code, done.stderr
    return json.loads(done.stdout)


async def _done(stack: Rig, *arguments: str, **environment: str) -> str:
    done = await stack.docdelta(*arguments, **environment)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def _held(count: int, tenant_open: bool) -> Any:
    def enough(found: Scrape) -> bool:
        opened = bool(found.all("docdelta_breaker_open_since_timestamp_seconds", tenant="acme"))
        return found.all("docdelta_held_records", reason="breaker") == [count] and opened == tenant_open

    return enough


async def test_a_mass_delete_is_held_and_then_dropped_or_let_pass(
    tansu_settings: KafkaSettings, tmp_path: Path, fresh: str
) -> None:
    port = free_port()
    worker = {**GUARDED, "DOCDELTA_WORKER__METRICS_PORT": str(port)}
    async with rig(tansu_settings, tmp_path, fresh) as stack:
        stack.start(**worker)
        live: dict[str, DocumentChange] = {f"d{n}": upsert(f"d{n}", 1, a_page(f"d{n}", 1)) for n in range(200)}
        others = [upsert(f"d{n}", 1, a_page(f"d{n}", 1), tenant="other") for n in range(3)]
        await stack.put(*live.values(), *others)

        wave = [delete(f"d{n}", 2) for n in range(150)]
        outcome = await stack.put(*wave, delete("d0", 2, tenant="other"))
        passed = [change for change in wave if outcome[change.event_id].outcome == "indexed"]
        waits = [change for change in wave if outcome[change.event_id].outcome == "held"]
        # A quarter of 200 is too much: 49 may go, and whichever they are, no more.
        assert (len(passed), len(waits)) == (49, 101)
        assert outcome["other/d0@2"].outcome == "indexed"
        for change in passed:
            del live[change.document_id]
        await stack.check([*live.values(), *others[1:]])
        await scrape_when(port, _held(101, True), PATIENCE)

        (listed,) = await _json(stack, "breaker", "list")
        assert (listed["tenant_id"], listed["state"], listed["held"]) == ("acme", "open", 101)
        assert listed["share"] >= 0.25
        status = await _json(stack, "status")
        assert (status["held"], [each["tenant_id"] for each in status["breakers"]]) == (101, ["acme"])
        told = await _json(stack, "why", waits[0].document_id, "--tenant", "acme", code=1)
        assert (told["state"], "docdelta breaker approve acme" in told["explanation"]) == ("held", True)
        gate = await stack.docdelta("gate", stack.collection)
        assert (gate.returncode, "release or reject them" in gate.stdout + gate.stderr) == (1, True), gate.stdout + gate.stderr
        refused = await stack.docdelta("breaker", "approve", "acme")
        assert (refused.returncode, "say --yes" in refused.stderr) == (1, True)

        # An edit of a document whose delete is held goes on, and the delete is over.
        edited = live[waits[0].document_id] = upsert(waits[0].document_id, 3, a_page("anew", 1))
        assert (await stack.put(edited))[edited.event_id].outcome == "indexed"
        await scrape_when(port, _held(100, True), PATIENCE)

        # Another worker knows what this one knew.
        stack.workers["one"].kill()
        stack.workers["one"].wait()
        stack.start(**worker)
        again = delete(waits[1].document_id, 3)
        assert (await stack.put(again))[again.event_id].outcome == "held"
        await scrape_when(port, _held(100, True), PATIENCE)

        assert "dropped" in await _done(stack, "breaker", "reject", "acme", "--yes", "--reason", "not mounted")
        await scrape_when(port, _held(0, False), PATIENCE)
        assert await _json(stack, "breaker", "list") == []
        await stack.check([*live.values(), *others[1:]])
        told = await _json(stack, "why", waits[1].document_id, "--tenant", "acme")
        assert (told["state"], "was dropped" in told["explanation"]) == ("current", True)

        # It counts anew: one goes, another wave is held, and goes when it is approved.
        wave = [delete(name, 5) for name in sorted(live)[:120]]
        outcome = await stack.put(*wave)
        assert {receipt.outcome for receipt in outcome.values()} == {"indexed", "held"}
        assert sum(receipt.outcome == "held" for receipt in outcome.values()) == 120 - 37
        await _done(stack, "breaker", "approve", "acme", "--yes")
        await stack.receipts_when(
            lambda receipts: {c.event_id for c in wave} <= {r.event_id for r in receipts if r.batch and r.outcome == "indexed"}
        )
        for change in wave:
            del live[change.document_id]
        await stack.check([*live.values(), *others[1:]])
        await scrape_when(port, _held(0, False), PATIENCE)
        assert await stack.stop() == 0


async def test_a_folder_that_vanished_takes_nothing_with_it(tansu_settings: KafkaSettings, tmp_path: Path, fresh: str) -> None:
    async with rig(tansu_settings, tmp_path, fresh) as stack:
        stack.start(**GUARDED)
        folder = tmp_path / "docs"
        folder.mkdir()
        pages = {f"p{n}.md": a_page(f"p{n}", 1) for n in range(80)}
        for name, text in pages.items():
            (folder / name).write_text(text, encoding="utf-8")
        sync = ("sync", "docs", "--tenant", "acme", "--delete")
        await _done(stack, *sync)
        await stack.receipts_when(lambda receipts: len({r.document_id for r in receipts if r.outcome == "indexed"}) == 80)
        for name in pages:
            (folder / name).unlink()
        guarded = await stack.docdelta(*sync)
        assert (guarded.returncode, "more than half" in guarded.stderr) == (1, True)
        await _done(stack, *sync, "--force")
        await stack.receipts_when(lambda receipts: sum(r.outcome == "held" for r in receipts) == 61)  # 19 are below the minimum
        served = len({payload["document_id"] for payload in (await stack.points()).values()})
        assert served >= 61
        assert "sync --delete --all" in await _done(stack, "breaker", "reject", "acme", "--yes")
        for name, text in pages.items():
            (folder / name).write_text(text, encoding="utf-8")
        await _done(stack, *sync)
        await stack.receipts_when(lambda receipts: sum(r.outcome == "unchanged" and "sync" not in r.reason for r in receipts) >= 61)
        await stack.receipts_when(lambda receipts: sum(r.outcome == "indexed" and not r.deleted for r in receipts) >= 99)
        assert {payload["document_id"] for payload in (await stack.points()).values()} == set(pages)


async def test_paused_tenants_are_parked_and_paused_stages_take_nothing(
    tansu_settings: KafkaSettings, tmp_path: Path, fresh: str
) -> None:
    port = free_port()
    worker = {**GUARDED, "DOCDELTA_WORKER__METRICS_PORT": str(port), "DOCDELTA_WORKER__LAG_SECONDS": "1"}
    async with rig(tansu_settings, tmp_path, fresh) as stack:
        stack.start(**worker)
        live = {(t, f"d{n}"): upsert(f"d{n}", 1, a_page(f"d{n}", 1), tenant=t) for t in ("acme", "other") for n in range(4)}
        await stack.put(*live.values())

        await _done(stack, "pause", "--tenant", "acme", "--reason", "import runs wild")
        await scrape_when(
            port, lambda found: bool(found.all("docdelta_paused_since_timestamp_seconds", control="tenant/acme")), PATIENCE
        )
        edits = [upsert("d0", 2, a_page("two", 1), tenant=t) for t in ("acme", "other")]
        outcome = await stack.put(*edits)
        assert [outcome[edit.event_id].outcome for edit in edits] == ["held", "indexed"]
        assert "import runs wild" in await _done(stack, "status", "--fast")
        newer = upsert("d0", 3, a_page("three", 1))
        assert (await stack.put(newer))[newer.event_id].outcome == "held"
        await _done(stack, "resume", "--tenant", "acme")
        live["acme", "d0"], live["other", "d0"] = newer, edits[1]
        await stack.receipts_when(lambda receipts: any(r.event_id == newer.event_id and r.outcome == "indexed" for r in receipts))
        await stack.check(live.values())

        for stage, group in (
            ("parser", stack.settings.topics.parser_group),
            (f"batch:{stack.collection}", stack.settings.topics.batch_group(stack.collection)),
        ):
            await _done(stack, "pause", "--stage", stage)
            await scrape_when(
                port,
                lambda found, s=stage: bool(found.all("docdelta_paused_since_timestamp_seconds", control=f"stage/{s}")),
                PATIENCE,
            )
            edit = live["acme", "d1"] = upsert("d1", live["acme", "d1"].revision + 1, a_page(stage[:6], 1))
            await stack.send(edit)
            await scrape_when(port, lambda found, g=group: found.sum("docdelta_consumer_lag_records", group=g) >= 1, PATIENCE)
            assert (await get(port, "/livez"))[0] == 200
            assert (await get(port, "/readyz"))[0] == 200
            if stage == "parser":  # also a worker that starts now, and beside which partitions move, takes nothing
                other = free_port()
                stack.start("two", **GUARDED, DOCDELTA_WORKER__METRICS_PORT=str(other))
                await scrape_when(other, lambda found: found.all("docdelta_app_ready", app="parser") == [1], PATIENCE)
                await stack.stop("two")
            assert edit.event_id not in {receipt.event_id for receipt in await stack.receipts()}
            await _done(stack, "resume", "--stage", stage)
            assert (await stack.outcomes([edit.event_id]))[edit.event_id].outcome == "indexed"
        await stack.check(live.values())
        assert await stack.stop() == 0
