"""The main job on real brokers: changes become the right points, each event has one outcome, an edit costs what it is worth."""

from __future__ import annotations

import base64
from pathlib import Path

import pytest

from schemas.codec import encode
from schemas.record import document_key
from streams.errors import DocdeltaError
from streams.settings import KafkaSettings
from tests.stack.rig import a_page, delete, rig, upsert


async def test_a_history_of_edits_ends_as_a_clean_rebuild_would(any_broker: KafkaSettings, tmp_path: Path, fresh: str) -> None:
    async with rig(any_broker, tmp_path, fresh) as stack:
        stack.start()
        first = [upsert(f"d{n}", 1, a_page(f"d{n}")) for n in range(12)]
        built = await stack.put(*first)
        assert {receipt.outcome for receipt in built.values()} == {"indexed"}
        assert all(receipt.embedded == receipt.added > 3 for receipt in built.values())
        await stack.check(first)

        edited = upsert("d0", 2, a_page("d0", edit=" today"))
        moved = upsert("d1", 2, _last_section_third(a_page("d1")))
        retitled = upsert("d2", 2, a_page("d2"), title="Another title", attributes={"owner": "me", "views": 7})
        gone, emptied = delete("d3", 2), upsert("d4", 2, "")
        again, late = upsert("d5", 5, a_page("d5")), upsert("d0", 1, "late", event_id="late")
        outcome = await stack.put(edited, moved, retitled, gone, emptied, again, late)
        embedded = {receipt.document_id: receipt.embedded for name, receipt in outcome.items() if name != "late"}
        assert embedded == {"d0": 1, "d1": 0, "d2": 0, "d3": 0, "d4": 0, "d5": 0}
        assert outcome["acme/d5@5"].outcome == "unchanged"
        assert outcome["late"].outcome == "stale"
        assert outcome["acme/d4@2"].removed == built["acme/d4@1"].added, "IN-05: an emptied page gives up its chunks"
        await stack.check([edited, moved, retitled, gone, emptied, *first[5:]])

        back, too_late = upsert("d3", 3, a_page("d3")), upsert("d3", 1, a_page("d3"), event_id="too-late")
        outcome = await stack.put(back, too_late)
        assert outcome["acme/d3@3"].outcome == "indexed"
        assert outcome["too-late"].outcome == "stale"
        await stack.check([edited, moved, retitled, back, emptied, *first[5:]])
        code = await stack.stop()
        assert code == 0, stack.log()


async def test_sending_everything_again_writes_nothing(any_broker: KafkaSettings, tmp_path: Path, fresh: str) -> None:
    async with rig(any_broker, tmp_path, fresh) as stack:
        stack.start()
        pages = [upsert(f"d{n}", 1, a_page(f"d{n}")) for n in range(6)]
        await stack.put(*pages)
        writes = len(stack.shim.writes)
        outcome = await stack.put(*(page.model_copy(update={"event_id": f"again-{page.document_id}"}) for page in pages))
        assert {receipt.outcome for receipt in outcome.values()} == {"unchanged"}
        assert len(stack.shim.writes) == writes


async def test_poison_stops_nobody_and_keeps_its_bytes(any_broker: KafkaSettings, tmp_path: Path, fresh: str) -> None:
    """KA-01, KA-03, UN-04, IN-16."""
    async with rig(any_broker, tmp_path, fresh) as stack:
        stack.start()
        good = [upsert("good", 1, a_page("good")), upsert("good-too", 1, a_page("good-too"))]
        surrogate = encode(good[0]).replace(b"Page good", b"Page \\ud83d end")
        bad: list[tuple[bytes | None, bytes | None]] = [
            (b"acme/x", b"not JSON"),
            (b"acme/x", b'{"id":null}'),
            (b"acme/x", encode(good[0])),
            (b"acme/good", surrogate),
            (b"acme/pdf", encode(upsert("pdf", 1, "x", media_type="application/pdf"))),
            (b"acme/b", encode(upsert("b", 1, "x")).replace(b'{"text":"x"}', b'{"base64":"!!"}')),
            (b"acme/t", encode(upsert("t", 1, "x")).replace(b'"tenant_id":"acme",', b"")),
        ]
        keyless = (None, encode(good[0]))
        if any_broker.single_record_batches:
            bad += [keyless, (None, None)]
        else:  # Apache Kafka takes no record without a key for a compacted topic: the sender is told at once
            with pytest.raises(DocdeltaError):
                await stack.send_raw(keyless)
        await stack.send(good[0])
        await stack.send_raw(*bad)
        await stack.put(good[1])
        await stack.outcomes(["acme/good@1", "acme/pdf@1", "acme/b@1"])
        letters = await stack.dead_letters()
        kept = [(_bytes(each.key), _bytes(each.value)) for each in letters]
        assert sorted(kept, key=repr) == sorted(bad, key=repr), "exactly once, byte for byte"
        assert all(each.reason and each.topic == stack.settings.topics.documents for each in letters)
        await stack.check(good)


async def test_a_null_value_deletes_and_a_repeat_is_nothing(any_broker: KafkaSettings, tmp_path: Path, fresh: str) -> None:
    """KA-03."""
    async with rig(any_broker, tmp_path, fresh) as stack:
        stack.start()
        page = upsert("d1", 4, a_page("d1"))
        await stack.put(page)
        key = document_key("acme", "d1")
        await stack.send_raw((key, None), (key, None))
        receipts = await stack.receipts_when(lambda receipts: len(receipts) == 3)
        assert sorted(receipt.outcome for receipt in receipts) == ["indexed", "indexed", "unchanged"]
        await stack.check([])
        again = upsert("d1", 5, a_page("d1"))
        await stack.put(again)
        await stack.check([again])


async def test_two_tenants_with_the_same_ids_never_meet(any_broker: KafkaSettings, tmp_path: Path, fresh: str) -> None:
    """IN-03, IN-16."""
    async with rig(any_broker, tmp_path, fresh) as stack:
        stack.start()
        ours = upsert("d", 1, a_page("same"), attributes={"tenant_id": "other", "owner": "us"})
        theirs = upsert("d", 1, a_page("same"), tenant="other")
        await stack.put(ours, theirs)
        await stack.check([ours, theirs])
        outcome = await stack.put(delete("d", 2))
        assert outcome["acme/d@2"].deleted
        await stack.check([theirs])
        found = await stack.docdelta("search", "what the depot does", "--tenant", "acme", "--json")
        assert found.returncode == 0, found.stderr
        assert '"hits": []' in found.stdout or found.stdout.strip() == "[]", found.stdout


async def test_nothing_is_written_for_a_document_whose_newer_revision_failed(
    any_broker: KafkaSettings, tmp_path: Path, fresh: str
) -> None:
    async with rig(any_broker, tmp_path, fresh) as stack:
        stack.start()
        good = upsert("d", 1, a_page("d"))
        await stack.put(good)
        bad = upsert("d", 7, "x", media_type="application/pdf")
        late = upsert("d", 6, "late text")
        outcome = await stack.put(bad, late)
        assert outcome["acme/d@7"].outcome == "dead_lettered"
        assert outcome["acme/d@6"].outcome == "stale"
        await stack.check([good])
        mended = upsert("d", 8, a_page("d", edit=" mended"))
        await stack.put(mended)
        await stack.check([mended])


def _last_section_third(page: str) -> str:
    head, first, *rest, last = page.split("## ")
    return "## ".join([head, first, last + "\n", *rest])


def _bytes(encoded: str | None) -> bytes | None:
    return base64.b64decode(encoded) if encoded else None
