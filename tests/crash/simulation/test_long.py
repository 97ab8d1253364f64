"""The long campaign's command line, on a few histories: seeds that add up, a failure that is told shrunk, an exit code."""

from __future__ import annotations

import re

import pytest

from tests.crash.simulation import kinds, long
from tests.crash.simulation.__main__ import main
from tests.crash.simulation.kinds import KINDS, TURNS, Kind, kind_of
from tests.crash.simulation.mutations import MUTATIONS
from tests.crash.simulation.scheduler import Simulation

HISTORIES = 24


def test_all_kinds_have_their_turn() -> None:
    assert set(TURNS) == KINDS.keys() == {kind_of(seed) for seed in range(len(TURNS))}


def test_a_campaign_whose_histories_come_to_their_oracle_ends_with_0_and_names_its_seed(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--histories", str(HISTORIES)]) == 0
    said = capsys.readouterr().out
    first = re.search(r"from seed (\d+)", said)
    assert first is not None
    assert f"{HISTORIES} histories from seed {first[1]}: all came to their oracle" in said


def test_two_runs_begin_at_seeds_of_their_own(capsys: pytest.CaptureFixture[str]) -> None:
    for _ in range(2):
        assert main(["--histories", "1"]) == 0
    assert len(set(re.findall(r"from seed (\d+),", capsys.readouterr().out))) == 2


def test_blocks_are_told_in_order_and_all_processes_have_some(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(long, "BLOCK", 5)
    told: list[int] = []
    assert long.campaign(900, 12, 2, told=lambda done, seconds: told.append(done)) is None
    assert told == [5, 10, 12]


@pytest.fixture
def _a_broken_order(monkeypatch: pytest.MonkeyPatch) -> None:
    parts = MUTATIONS["a-delete-is-missing"].parts
    broken = Kind(KINDS["any"].history, lambda history, tracing: Simulation(history, parts, tracing))
    monkeypatch.setattr(kinds, "KINDS", {**KINDS, "any": broken})
    for module in ("tests.crash.simulation.long", "tests.crash.simulation.__main__"):
        monkeypatch.setattr(f"{module}.KINDS", kinds.KINDS)


@pytest.mark.usefixtures("_a_broken_order")
def test_the_first_failure_ends_it_with_1_shrunk_and_with_its_timeline(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--histories", "1000", "--seed", "0", "--kind", "any"]) == 1
    said = capsys.readouterr().out
    failed = re.search(r"--kind any --seed (\d+) --histories 1", said)
    assert failed is not None
    told = ("the shortest that still fails", "owns the partition", "what is wrong:", "left over chunk")
    assert all(part in said for part in told)
    assert main(["--histories", "1", "--seed", failed[1], "--kind", "any", "--no-shrink"]) == 1


@pytest.mark.parametrize("wrong", [["--histories", "0"], ["--processes", "0"], ["--kind", "none"]])
def test_a_command_that_makes_no_sense_is_refused(wrong: list[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        main(wrong)
    assert ended.value.code == 2
