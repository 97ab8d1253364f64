"""Whatever is held and decided on the way, a drained log leaves what a clean rebuild would make, and nothing is held.

About 30 s on two cores.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable
from datetime import datetime

import pytest

from streams.agents.holding import Event as AtTheDoor
from streams.agents.holding import Holding, Pass
from streams.agents.parse_document import ParserAgent
from streams.kafka.produce import OutRecord
from streams.steps.settle_change import Seen
from tests.crash.simulation.broker import SimulatedBroker
from tests.crash.simulation.doors import (
    DoorSimulation,
    DropsWhatIsApproved,
    ForgetsHeld,
    ForgetsWhoPasses,
    MarkedFirst,
    door_history,
    doors,
    first_door_failure,
)
from tests.crash.simulation.member import Parts
from tests.crash.simulation.world import NAMES

HISTORIES = int(os.environ.get("SIMULATED_HISTORIES", "5000")) // 16


@pytest.mark.parametrize("rejects", [pytest.param(False, id="approved"), pytest.param(True, id="approved-or-rejected")])
def test_every_history_with_a_door_comes_to_its_oracle(rejects: bool) -> None:
    failing = first_door_failure(range(HISTORIES), rejects=rejects)
    assert failing is None, f"history {failing[0]}: {failing[1]}"


def test_in_many_histories_something_is_held_and_decided() -> None:
    decided = [simulation.decided for seed in range(60) if (simulation := DoorSimulation(door_history(seed), doors())).run() == []]
    assert sum(count > 0 for count in decided) >= 15
    assert max(decided) >= 3


class ClearsHeld(SimulatedBroker):
    """Takes what is released out of [held] itself, where the parser may have put something newer since."""

    def write(self, records: Iterable[OutRecord], on_progress: Callable[[int], None] | None = None) -> int:
        out = list(records)
        count = super().write(out)
        super().write([OutRecord(NAMES.held, record.key, None) for record in out if record.sends == "release"])
        return count


class SeesNoBulk(SimulatedBroker):
    """Decides without the ends of [bulk]."""

    def ends(self, topic: str) -> dict[int, int]:
        return {} if topic == NAMES.bulk else super().ends(topic)


def test_in_many_histories_deletes_come_through_bulk_and_tenants_are_paused() -> None:
    histories = [door_history(seed) for seed in range(60)]
    assert sum(any(event.bulk and event.kind == "delete" for event in history.events) for history in histories) >= 10
    assert sum(any(command.name == "pause" for command in history.commands) for history in histories) >= 10


def test_a_command_that_clears_what_it_releases_is_found() -> None:
    assert first_door_failure(range(600), broken=Parts(broker=ClearsHeld)) is not None


def test_a_rejection_that_forgets_what_waits_in_bulk_is_found() -> None:
    assert first_door_failure(range(550, 1000), rejects=True, broken=Parts(broker=SeesNoBulk)) is not None


def test_a_count_that_begins_only_when_an_end_is_out_is_found() -> None:
    assert first_door_failure(range(600), counting=ForgetsWhoPasses) is not None


def test_an_approval_that_is_taken_for_a_rejection_is_found() -> None:
    assert first_door_failure(range(300), DropsWhatIsApproved, rejects=True) is not None


def test_a_held_delete_that_is_approved_and_goes_nowhere_is_found_also_where_others_are_rejected(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    goes_on = ParserAgent._pass

    async def goes_nowhere(self: ParserAgent, event: AtTheDoor, received_at: datetime, answer: Pass) -> Seen | None:
        if answer.covered and event.is_the_held_one:
            return await self._let_go(event, event.row)
        return await goes_on(self, event, received_at, answer)

    monkeypatch.setattr(ParserAgent, "_pass", goes_nowhere)
    assert first_door_failure(range(300), rejects=True) is not None


@pytest.mark.parametrize("broken", [MarkedFirst, ForgetsHeld])
def test_a_broken_order_of_holding_is_found(broken: type[Holding]) -> None:
    assert first_door_failure(range(600), broken) is not None
