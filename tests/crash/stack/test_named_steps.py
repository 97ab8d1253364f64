"""A worker killed at every named step, at the first and at a later time, leaves nothing that its successor does not make right."""

from __future__ import annotations

import asyncio

import pytest

from streams.crash_points import STEPS
from streams.settings import KafkaSettings
from tests.crash.stack.lives import DEATHS, HOLDING, Death, all_lives

pytestmark = pytest.mark.kafka
SIDE_BY_SIDE = 4


@pytest.fixture(scope="module")
def verdicts(apache_kafka: str, tmp_path_factory: pytest.TempPathFactory) -> dict[Death, str]:
    """What was wrong after each death, all lived through once."""
    folder = tmp_path_factory.mktemp("lives")
    return asyncio.run(all_lives(KafkaSettings(bootstrap_servers=apache_kafka), folder, folder.name, SIDE_BY_SIDE))


def test_every_named_step_kills_at_its_first_and_at_a_later_time() -> None:
    times = {step: [death.time for death in DEATHS if death.step == step] for step in STEPS if step not in HOLDING}
    assert all(1 in each and max(each) > 1 for each in times.values()), times
    assert len(DEATHS) >= 40


@pytest.mark.parametrize("death", DEATHS, ids=str)
def test_the_index_is_right_after_a_death_at(death: Death, verdicts: dict[Death, str]) -> None:
    assert verdicts[death] == "", verdicts[death]
