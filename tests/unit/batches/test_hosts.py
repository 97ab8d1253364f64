"""A build that workers refuse is told where operators look, in the workers' words, with the one thing to do."""

from __future__ import annotations

import asyncio
import dataclasses
from collections.abc import Iterable
from datetime import timedelta

import pytest

from chunking.policy import load_policy
from schemas.batch import BatchRecord, BatchState
from schemas.codec import encode
from schemas.control import Control
from streams.batches.hosts import Hosts
from streams.batches.ledger import with_state
from streams.batches.progress import REFUSED_SECONDS, Progress
from streams.batches.record import batch_record
from streams.controls.refusing import Refusing, forget_refusals, worker_name
from streams.controls.state import Controls
from streams.errors import NotPrepared, NotReachable
from streams.patience import Patience
from streams.ports import InRecord
from tests.support.batches import ALIAS, GREEN, NOW

REASON = "model acme/large is not in any directory"


def build(state: BatchState = "building", claim: str = "c1") -> BatchRecord:
    return with_state(batch_record(load_policy(GREEN), GREEN, state, ALIAS, NOW), claim=claim)


BUILD = build()
NAME = BUILD.batch


class Log:
    """[controls], and what amounts to it. `away`: so many writes find no broker."""

    def __init__(self, away: int = 0) -> None:
        self.controls = Controls()
        self.records: list[tuple[bytes, bytes | None]] = []
        self.away = away

    def write(self, records: Iterable[tuple[bytes, bytes | None]]) -> None:
        if self.away:
            self.away -= 1
            raise NotReachable("no answer from the broker")
        for key, value in records:
            self.controls.apply(InRecord("controls", 0, len(self.records), key, value))
            self.records.append((key, value))

    def worker(self, name: str = "host-1") -> Refusing:
        return Refusing(name, lambda: self.controls, self.write, lambda: NOW, Patience(first=0.0, longest=0.0))


def test_what_a_worker_can_not_host_is_known_to_everybody_until_it_hosts_it() -> None:
    async def history() -> None:
        log = Log()
        worker, other = log.worker(), log.worker("host-2")
        await worker.say(BUILD, REASON)
        await other.say(BUILD, "another reason")
        assert [(each.by, each.reason) for each in log.controls.refusals_of(BUILD)] == [
            ("host-1", REASON),
            ("host-2", "another reason"),
        ]
        restarted = log.worker()  # knows what it said from [controls] alone
        await restarted.take_back(BUILD)
        assert [each.by for each in log.controls.refusals_of(BUILD)] == ["host-2"]
        written = len(log.records)
        await restarted.take_back(BUILD)
        assert len(log.records) == written, "nothing is written where nothing was said"

    asyncio.run(history())


@pytest.mark.parametrize("now", [build(claim="c2"), build("active"), build("warm"), build("retired")])
def test_a_refusal_says_nothing_of_a_later_claim_nor_of_what_is_no_build(now: BatchRecord) -> None:
    log = Log()
    asyncio.run(log.worker().say(BUILD, REASON))
    assert log.controls.refusals_of(now) == ()


def test_a_broker_that_is_away_is_waited_for_and_a_missing_topic_takes_nothing_down() -> None:
    log = Log(away=3)
    asyncio.run(log.worker().say(BUILD, REASON))
    assert len(log.controls.refusals_of(BUILD)) == 1

    def missing(records: Iterable[tuple[bytes, bytes | None]]) -> None:
        raise NotPrepared("topic docdelta.controls does not exist")

    asyncio.run(dataclasses.replace(log.worker(), write=missing).say(BUILD, REASON))


def test_a_worker_that_is_leaving_does_not_wait() -> None:
    log = Log(away=1)
    patience = Patience()
    patience.stopping.set()
    asyncio.run(dataclasses.replace(log.worker(), patience=patience).say(BUILD, REASON))
    assert log.records == []


def test_retiring_leaves_no_word_of_the_batch() -> None:
    log = Log()
    for name in ("host-1", "host-2"):
        asyncio.run(log.worker(name).say(BUILD, REASON))
    forget_refusals(log.controls, "another-v1-00000000", log.write)
    assert len(log.controls.refusals) == 2
    forget_refusals(log.controls, NAME, log.write)
    assert log.controls.refusals == {}


def test_a_worker_has_the_same_name_after_a_restart_and_another_for_another_part() -> None:
    assert worker_name(None) == worker_name(None)
    assert len({worker_name(None), worker_name("parser"), worker_name(f"batch:{NAME}")}) == 3


def refusal(by: str = "host-1", seconds: int = 0) -> Control:
    at = NOW + timedelta(seconds=seconds)
    return Control(kind="refused", at=at, stage=f"batch:{NAME}", by=by, reason=REASON, claim="c1")


@pytest.mark.parametrize(
    ("hosts", "refused", "words"),
    [
        pytest.param(Hosts(NAME, 2), False, "", id="workers-are-at-it"),
        pytest.param(Hosts(NAME, None), False, "", id="the-broker-tells-nothing"),
        pytest.param(Hosts(NAME, 0), False, "start one: docdelta worker", id="no-worker-runs"),
        pytest.param(Hosts(NAME, 0, (refusal(),)), True, f"docdelta retire {NAME}", id="all-refuse-it"),
        pytest.param(Hosts(NAME, None, (refusal(),)), True, f"host-1 says: {REASON}", id="one-refuses-and-none-began"),
        pytest.param(Hosts(NAME, None, (refusal(),), began=True), False, "not every worker", id="one-refuses-one-began"),
        pytest.param(Hosts(NAME, 1, (refusal(), refusal("h2"))), False, "1 more worker refuses", id="two-refuse-one-builds"),
    ],
)
def test_who_hosts_a_build_is_told_with_what_to_do(hosts: Hosts, refused: bool, words: str) -> None:
    assert hosts.refused is refused
    assert words in hosts.problem
    assert bool(words) == bool(hosts.problem)


def look(hosts: Hosts | None, stalled: float) -> Progress:
    return Progress(0, 9, 0, 0, 0, 0, 9, 9, None, stalled, hosts)


def test_a_rollout_gives_a_refused_build_up_and_says_why() -> None:
    nobody = Hosts(NAME, 0, (refusal(),))
    assert look(nobody, REFUSED_SECONDS + 1).given_up
    assert REASON in str(look(nobody, REFUSED_SECONDS + 1))
    assert not look(nobody, REFUSED_SECONDS - 1).given_up, "a worker may be starting"
    assert not look(Hosts(NAME, 1, (refusal(),)), REFUSED_SECONDS + 1).given_up, "others build it"
    assert not look(Hosts(NAME, 0), REFUSED_SECONDS + 1).given_up, "no worker runs yet"
    assert not look(None, REFUSED_SECONDS + 1).given_up


def test_the_key_of_a_refusal_is_its_batch_and_worker() -> None:
    control = refusal()
    controls = Controls()
    controls.apply(InRecord("c", 0, 0, control.key, encode(control)))
    assert list(controls.refusals) == [f"refused/batch:{NAME}/host-1".encode()]
    controls.apply(InRecord("c", 0, 1, control.key, None))
    assert controls.refusals == {}
