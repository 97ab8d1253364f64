"""An upgrade of a parser is seen in every batch that was parsed before, until all documents went through it."""

from __future__ import annotations

from datetime import UTC, datetime

from chunking.policy import load_policy
from streams.batches.ledger import with_state
from streams.batches.parser_versions import advice, note_reindexed, parser_changes, running_parsers
from streams.batches.record import batch_record
from streams.batches.rollout import plan_rollout
from tests.support.batches import ALIAS, BLUE, GREEN, Installation

NOW = datetime(2031, 1, 1, tzinfo=UTC)
RUNNING = ("html/1", "markdown/2", "plain/1")


def _batch(parsers: tuple[str, ...]):  # type: ignore[no-untyped-def]
    return with_state(batch_record(load_policy(BLUE), BLUE, "active", ALIAS, NOW), parsers=parsers)


def test_a_batch_knows_the_parsers_of_the_release_that_made_it() -> None:
    made = batch_record(load_policy(BLUE), BLUE, "active", ALIAS, NOW)
    assert made.parsers == running_parsers() != ()
    assert advice(made) == ""


def test_only_a_parser_that_was_there_with_another_version_has_changed() -> None:
    assert parser_changes(_batch(("html/1", "markdown/1")), RUNNING) == ("markdown/1 → markdown/2",)
    assert parser_changes(_batch(("gone/3",)), RUNNING) == ()
    assert parser_changes(_batch(()), RUNNING) == ()
    assert "docdelta reindex --all" in advice(_batch(("markdown/1",)), RUNNING)


async def test_a_new_batch_is_built_from_what_the_served_one_was_parsed_with() -> None:
    site = Installation()
    blue = await site.host(BLUE, "active")
    older = with_state(site.ledger.batches[blue.record.batch], parsers=("markdown/0",))
    ledger = site.topic.clerk("anna").claim(site.ledger, older)
    plan = plan_rollout(load_policy(GREEN), GREEN, ledger, ALIAS, NOW)
    assert plan.record.parsers == ("markdown/0",)


async def test_re_indexing_everything_is_noted_in_every_live_batch_once() -> None:
    site = Installation()
    await site.host(BLUE, "active")
    await site.host(GREEN)
    clerk = site.topic.clerk("anna")
    assert len(note_reindexed(clerk, RUNNING)) == 2
    found = clerk.read()
    assert {batch.parsers for batch in found.batches.values()} == {RUNNING}
    assert [batch.state for batch in found.in_order()] == [batch.state for batch in site.ledger.in_order()]
    assert note_reindexed(clerk, RUNNING) == []
