"""Plans of rollout, switch, rollback and retire: what they would do, and what they refuse, with the reason."""

from __future__ import annotations

from datetime import timedelta

import pytest

from chunking.policy import load_policy
from schemas.batch import BatchRecord, BatchState, LaunchRecord
from streams.batches.ledger import Ledger, with_state
from streams.batches.record import batch_record, plan_init
from streams.batches.retire import Remover, RetirePlan, execute_retire, plan_retire
from streams.batches.rollout import Launcher, RolloutPlan, execute_rollout, plan_rollout
from streams.batches.switch import plan_rollback, plan_switch
from streams.errors import NotPrepared
from streams.index.memory import MemoryIndex
from tests.support.batches import ALIAS, BLUE, GREEN, NOW, Topic

NEVER = Launcher(lambda batch: None, lambda served: LaunchRecord(at=NOW, documents=3))


def record(text: str, state: BatchState) -> BatchRecord:
    return batch_record(load_policy(text), text, state, ALIAS, NOW)


def site(*batches: BatchRecord) -> tuple[Topic, Ledger]:
    topic, ledger = Topic(), Ledger()
    for batch in batches:
        ledger = topic.clerk().claim(ledger, batch)
    return topic, ledger


def rolled(text: str, ledger: Ledger) -> RolloutPlan:
    return plan_rollout(load_policy(text), text, ledger, ALIAS, NOW)


def test_a_rollout_proposes_then_builds_with_what_stood_at_launch() -> None:
    topic, ledger = site(record(BLUE, "active"))
    plan = rolled(GREEN, ledger)
    assert plan.new
    after = execute_rollout(plan, topic.clerk(), NEVER, ledger)
    green = after.batches[plan.record.batch]
    assert (green.state, green.replaces) == ("building", record(BLUE, "active").batch)
    assert green.launch is not None
    assert green.launch.documents == 3


@pytest.mark.parametrize("state", ["proposed", "building", "ready", "warm"])
def test_run_again_it_goes_on_where_the_batch_stands(state: BatchState) -> None:
    topic, ledger = site(record(BLUE, "active"), record(GREEN, state))
    plan = rolled(GREEN, ledger)
    assert not plan.new
    after = execute_rollout(plan, topic.clerk(), NEVER, ledger)
    assert after.batches[plan.record.batch].state == ("building" if state == "proposed" else state)


def test_same_name_and_version_with_other_content_is_refused_with_the_difference() -> None:
    _, ledger = site(record(BLUE, "active"))
    with pytest.raises(NotPrepared, match=r"p-v1 already stands for other content[\s\S]*-limits: {max_tokens: 60}"):
        rolled(BLUE.replace("60", "50"), ledger)
    _, ledger = site(record(BLUE, "retired"), record(GREEN, "active"))
    with pytest.raises(NotPrepared, match="p-v1 already stands"):
        rolled(BLUE.replace("60", "50"), ledger)


def test_a_comment_is_no_other_content() -> None:
    """PO-01: equal settings have one fingerprint, whatever the text."""
    _, ledger = site(record(BLUE, "active"))
    assert rolled("# the policy\n" + BLUE, ledger).done


def test_one_build_at_a_time_and_it_is_said_whose() -> None:
    _, ledger = site(record(BLUE, "active"), record(GREEN, "building"))
    with pytest.raises(NotPrepared, match=r"building since .* by anna@a \(process 1\)"):
        rolled(GREEN.replace("version: 2", "version: 3"), ledger)


def test_names_of_a_retired_batch_are_never_reused() -> None:
    _, ledger = site(record(GREEN, "active"), record(BLUE, "retired"))
    plan = rolled(BLUE, ledger)
    assert plan.record.batch == plan.record.collection == f"{record(BLUE, 'active').batch}.2"
    assert "names are never reused" in str(plan)
    _, ledger = site(record(BLUE, "retired"))
    assert plan_init(record(BLUE, "active"), ledger.in_order()).record == record(BLUE, "active").model_copy(
        update={"batch": plan.record.batch, "collection": plan.record.batch}
    )


def test_a_first_policy_is_initialised_not_rolled_out() -> None:
    with pytest.raises(NotPrepared, match="docdelta init"):
        rolled(BLUE, Ledger())


@pytest.mark.parametrize("state", ["proposed", "retired"])
def test_a_batch_that_holds_nothing_is_not_switched_to(state: BatchState) -> None:
    _, ledger = site(record(BLUE, "active"), record(GREEN, state))
    with pytest.raises(NotPrepared, match=f"is {state} since"):
        plan_switch(ledger, record(GREEN, state).batch, record(BLUE, "active").collection)


def test_a_switch_that_was_stopped_after_its_claim_only_moves_the_alias() -> None:
    """PO-03, PO-07."""
    _, ledger = site(record(BLUE, "active"), record(GREEN, "active"))
    plan = plan_switch(ledger, record(GREEN, "active").batch, record(BLUE, "active").collection)
    assert (plan.claim, plan.done) == (None, False)
    assert plan_switch(ledger, record(GREEN, "active").batch, record(GREEN, "active").collection).done


def test_there_is_no_way_back_without_a_warm_batch() -> None:
    _, ledger = site(record(BLUE, "active"))
    with pytest.raises(NotPrepared, match="none was served before it"):
        plan_rollback(ledger, ALIAS, None)
    green = with_state(record(GREEN, "active"), replaces=record(BLUE, "active").batch)
    _, ledger = site(record(BLUE, "active"), green, record(BLUE, "retired"))
    with pytest.raises(NotPrepared, match="is retired; roll the earlier policy out again"):
        plan_rollback(ledger, ALIAS, None)


def retired(ledger: Ledger, name: str, aliases: dict[str, str], seconds: float = 0, force: bool = False) -> RetirePlan:
    now = NOW + timedelta(seconds=seconds)
    return plan_retire(ledger, name, aliases, 40, now, 60, ("group", ("changes", "changelog")), force)


def test_nothing_goes_that_is_served_whatever_is_forced() -> None:
    """PO-03."""
    blue, green = record(BLUE, "active"), record(GREEN, "ready")
    _, ledger = site(blue, green)
    with pytest.raises(NotPrepared, match="is being served"):
        retired(ledger, blue.batch, {ALIAS: blue.collection}, force=True)
    with pytest.raises(NotPrepared, match="alias other points at its collection"):
        retired(ledger, green.batch, {"other": green.collection}, force=True)


def test_a_warm_batch_goes_after_its_grace_or_by_force_which_says_what_is_lost() -> None:
    blue = record(BLUE, "active")
    _, ledger = site(blue, with_state(record(GREEN, "active"), replaces=blue.batch))
    with pytest.raises(NotPrepared, match=r"kept warm until 2031-01-01 00:01:00 UTC; with --force .* the way back from"):
        retired(ledger, blue.batch, {}, seconds=59)
    assert "the way back" in retired(ledger, blue.batch, {}, seconds=59, force=True).lost
    plan = retired(ledger, blue.batch, {}, seconds=60)
    assert plan.claim is not None
    assert plan.claim.state == "retired"
    assert "40 points" in str(plan)


def test_a_retirement_that_was_stopped_goes_on() -> None:
    _, ledger = site(record(BLUE, "retired"), record(GREEN, "active"))
    assert retired(ledger, record(BLUE, "retired").batch, {}).claim is None


async def test_nothing_of_a_retired_batch_stays_a_pause_of_its_stage_included() -> None:
    blue = record(BLUE, "retired")
    topic, ledger = site(blue, record(GREEN, "active"))
    gone: list[object] = []
    remover = Remover(gone.append, gone.append, gone.append, gone.append)
    for _ in range(2):
        await execute_retire(retired(ledger, blue.batch, {}), ledger, topic.clerk(), MemoryIndex(), remover)
    assert gone == 2 * ["group", "group", ("changes", "changelog"), blue.batch]
