"""Two batches over one log, at random speeds, with outages, restarts, switches: each always comes to its own oracle."""

from __future__ import annotations

import random

import pytest

from streams.batches.evidence import Planned, agree
from streams.batches.ledger import Outrun
from streams.batches.switch import execute_switch, plan_rollback, plan_switch
from streams.index.memory import MemoryIndex
from tests.support.batches import ALIAS, BLUE, GREEN, FlakyIndex, Installation, edit, page


@pytest.mark.parametrize("seed", range(30))
async def test_whatever_happens_during_a_build_both_batches_equal_a_rebuild(seed: int) -> None:
    dice = random.Random(seed)
    site = Installation()
    assert isinstance(site.index, FlakyIndex)
    await site.host(BLUE, "active")
    for number in range(10):
        site.put(f"d{number}", page(f"d{number}"))
    await site.drain()
    green = await site.host(GREEN)
    for _ in range(60):
        await _one_thing(site, dice)
    await site.drain()
    for hosted in site.hosted.values():
        await site.check(hosted)
    plan = plan_switch(site.ledger, green.record.batch, await site.index.alias_target(ALIAS))
    await execute_switch(plan, site.ledger, site.clerk, site.index)
    for _ in range(20):
        await _one_thing(site, dice)
    before = site.ledger.served(ALIAS)
    assert before is not None
    back = plan_rollback(site.ledger, ALIAS, await site.index.alias_target(ALIAS))
    await execute_switch(back, site.ledger, site.clerk, site.index)
    assert await site.index.alias_target(ALIAS) == back.target.collection != before.collection
    await site.drain()
    for hosted in site.hosted.values():
        await site.check(hosted)


async def _one_thing(site: Installation, dice: random.Random) -> None:
    assert isinstance(site.index, FlakyIndex)
    what = dice.choice(["edit", "edit", "blue", "green", "green", "outage", "restart", "switch"])
    hosted = list(site.hosted.values())
    if what == "edit":
        edit(site, dice, 12)
    elif what == "blue":
        await site.step(hosted[0], dice.randrange(4), dice.randrange(3))
    elif what == "green":
        await site.step(hosted[1], dice.randrange(6), dice.randrange(3))
    elif what == "outage":
        site.index.away = dice.randrange(6)
    elif what == "restart":
        again = dice.choice(hosted)
        made = await site.host(again.record.policy_yaml, again.record.state)
        made.parsed_at = max(0, made.parsed_at - dice.randrange(4))  # what was not committed comes again
        made.changes_at = max(0, made.changes_at - dice.randrange(4))
    else:
        to = dice.choice(hosted).record.batch
        plan = plan_switch(site.ledger, to, await site.index.alias_target(ALIAS))
        await execute_switch(plan, site.ledger, site.clerk, site.index)
        served = site.ledger.served(ALIAS)
        assert served is not None
        assert await site.index.alias_target(ALIAS) == served.collection


async def test_a_new_batch_takes_equal_vectors_from_the_served_one_twins_included() -> None:
    """A change of payload rules embeds nothing; a change of boundaries embeds what has no equal text in the same document."""
    site = Installation()
    await site.host(BLUE, "active")
    twins = "# A\n\nsame words here\n\n# B\n\nsame words here\n\n# C\n\nsame words here"
    site.put("twins", twins, attributes={"owner": "me"})
    site.put("d", page("d"))
    await site.drain()
    same = BLUE.replace("version: 1", "version: 3") + "payload: {attributes: [owner]}\n"
    payload_only = await site.host(same)
    await site.drain(payload_only)
    await site.check(payload_only)
    receipts = payload_only.receipts()
    assert payload_only.embedded == 0
    assert sum(each.embedded for each in receipts) == 0
    assert sum(each.borrowed for each in receipts) == sum(each.added for each in receipts) > 3
    smaller = await site.host(GREEN)
    await site.drain(smaller)
    await site.check(smaller)
    assert 0 < smaller.embedded < sum(each.added for each in smaller.receipts())


async def test_a_strict_batch_lends_as_well_though_its_ids_can_not_be_computed() -> None:
    site = Installation()
    await site.host(BLUE + "identity: strict/1\n", "active")
    site.put("d", page("d"))
    await site.drain()
    green = await site.host(BLUE.replace("version: 1", "version: 2"))
    await site.drain(green)
    await site.check(green)
    assert green.embedded == 0


async def test_a_batch_of_another_embedding_borrows_nothing() -> None:
    site = Installation()
    await site.host(BLUE, "active")
    site.put("d", page("d"))
    await site.drain()
    other = BLUE.replace("version: 1", "version: 2").replace("dimensions: 32", "dimensions: 32, document_prefix: 'passage: '")
    green = await site.host(other)
    await site.drain(green)
    await site.check(green)
    assert green.embedded == sum(each.added for each in green.receipts()) > 0


async def test_a_lender_that_is_retired_meanwhile_stops_nobody() -> None:
    site = Installation()
    blue = await site.host(BLUE, "active")
    site.put("d", page("d"))
    await site.drain()
    green = await site.host(GREEN)
    assert isinstance(site.index, MemoryIndex)
    site.index._aliases.clear()
    await site.index.drop_collection(blue.record.collection)
    await site.drain(green)
    await site.check(green)


async def test_what_is_wrong_is_named_and_what_is_on_its_way_is_not() -> None:
    site = Installation()
    blue = await site.host(BLUE, "active")
    for number in range(4):
        site.put(f"d{number}", page(f"d{number}"))
    await site.drain()

    async def read() -> dict[bytes, Planned]:
        return blue.planned()

    async def indexer_goes_on(_: float) -> None:
        await site.step(blue, 0, 3)

    site.put("d1", page("d1", 2))
    await site.step(blue, documents=1, groups=0)
    found = await agree(read, site.index, blue.record.collection, indexer_goes_on)
    assert (found.wrong, found.in_flight, found.counts_agree) == ((), 1, True)

    assert isinstance(site.index, MemoryIndex)
    lost = next(chunk_id for chunk_id, p in (await site.points(blue.record.collection)).items() if p["document_id"] == "d2")
    del site.index._collections[blue.record.collection].points[lost]
    site.index._collections[blue.record.collection].documents["acme", "d2"].discard(lost)
    found = await agree(read, site.index, blue.record.collection, indexer_goes_on)
    assert (found.wrong, found.moved) == (("acme/d2",), False)
    assert not found.counts_agree


async def test_an_edit_that_the_index_has_no_time_for_is_told_as_moved() -> None:
    site = Installation()
    blue = await site.host(BLUE, "active")
    site.put("d1", page("d1"))
    await site.drain()

    async def read() -> dict[bytes, Planned]:
        return blue.planned()

    async def one_edit_and_no_indexing(_: float) -> None:
        await site.step(blue, documents=1, groups=0)

    site.put("d1", page("d1", 2))
    site.put("d1", page("d1", 3))
    await site.step(blue, documents=1, groups=0)
    found = await agree(read, site.index, blue.record.collection, one_edit_and_no_indexing, rounds=3)
    assert (found.wrong, found.moved) == (("acme/d1",), True)


async def test_two_operators_at_once_end_where_the_ledger_says() -> None:
    """PO-07: the one who was first is obeyed, the other is told; the alias is where [batches] says."""
    site = Installation()
    await site.host(BLUE, "active")
    green = await site.host(GREEN)
    other = await site.host(GREEN.replace("version: 2", "version: 3"))
    start = site.ledger
    target = await site.index.alias_target(ALIAS)
    anna, bert = site.topic.clerk("anna@a (process 1)"), site.topic.clerk("bert@b (process 2)")
    await execute_switch(plan_switch(start, green.record.batch, target), start, anna, site.index)
    with pytest.raises(Outrun, match="anna@a"):
        await execute_switch(plan_switch(start, other.record.batch, target), start, bert, site.index)
    assert await site.index.alias_target(ALIAS) == green.record.collection
    served = site.ledger.served(ALIAS)
    assert served is not None
    assert served.batch == green.record.batch
