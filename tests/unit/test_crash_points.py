"""Crash points: an armed step kills at its n-th time, an unarmed one does nothing, a wrong order is refused."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

from streams import crash_points
from streams.errors import UsageError
from streams.settings import load_settings

SOURCES = Path(__file__).resolve().parents[2] / "streams"


@pytest.fixture(autouse=True)
def _disarmed():
    yield
    crash_points.arm("")


def test_a_process_dies_the_nth_time_and_not_before():
    code = (
        "from streams.crash_points import arm, reached\n"
        "arm('chunker.saved:3')\n"
        "for number in range(9):\n"
        "    print(number, flush=True)\n"
        "    reached('chunker.published')\n"
        "    reached('chunker.saved')\n"
    )
    ran = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert ran.returncode == -9
    assert ran.stdout.split()[-1] == "2"


@pytest.mark.parametrize("order", ["chunker.save:1", "chunker.saved", "chunker.saved:0", "chunker.saved:x", ":1"])
def test_a_wrong_order_is_refused_in_one_line(order: str) -> None:
    with pytest.raises(UsageError, match="DOCDELTA_CRASH_AT"):
        crash_points.arm(order)


def test_a_command_other_than_the_worker_ignores_the_variable(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(crash_points.VARIABLE, "chunker.saved:1")
    load_settings()
    crash_points.reached("chunker.saved")


def test_every_step_is_reached_somewhere_and_every_place_has_a_step() -> None:
    """The table and the code name the same steps; most stand at one place."""
    places = [
        found
        for path in SOURCES.rglob("*.py")
        for found in re.findall(r'\breached\("([a-z.]+)"\)', path.read_text(encoding="utf-8"))
    ]
    steps = {*crash_points.STEPS, *crash_points.COMMAND_STEPS}
    assert set(places) == steps
    assert len(places) == len(steps)
