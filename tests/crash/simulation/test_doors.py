"""Whatever is held and decided on the way, a drained log leaves what a clean rebuild would make, and nothing is held.

About 30 s on two cores.
"""

from __future__ import annotations

import os

import pytest

from streams.agents.holding import Holding
from tests.crash.simulation.doors import DoorSimulation, ForgetsHeld, MarkedFirst, door_history, doors, first_door_failure

HISTORIES = int(os.environ.get("SIMULATED_HISTORIES", "5000")) // 16


@pytest.mark.parametrize("rejects", [pytest.param(False, id="approved"), pytest.param(True, id="approved-or-rejected")])
def test_every_history_with_a_door_comes_to_its_oracle(rejects: bool) -> None:
    failing = first_door_failure(range(HISTORIES), rejects=rejects)
    assert failing is None, f"history {failing[0]}: {failing[1]}"


def test_in_many_histories_something_is_held_and_decided() -> None:
    decided = [simulation.decided for seed in range(60) if (simulation := DoorSimulation(door_history(seed), doors())).run() == []]
    assert sum(count > 0 for count in decided) >= 15
    assert max(decided) >= 3


@pytest.mark.parametrize("broken", [MarkedFirst, ForgetsHeld])
def test_a_broken_order_of_holding_is_found(broken: type[Holding]) -> None:
    assert first_door_failure(range(600), broken) is not None
