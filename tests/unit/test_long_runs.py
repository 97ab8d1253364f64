"""Commands of long runs (histories, fuzz, soak, benches) refuse at once what would check nothing, and say how far they came."""

from __future__ import annotations

from collections.abc import Callable
from types import ModuleType

import pytest

import tests.crash.simulation.__main__ as simulation
import tests.fuzz.__main__ as fuzzing
from tests.bench.pipeline.__main__ import main as bench
from tests.crash.stack.soak import main as soak

WRONG: list[tuple[Callable[[list[str]], object], str, str]] = [
    (fuzzing.main, "--inputs 0", "at least 1"),
    (fuzzing.main, "--number 5", "--target"),
    (soak, "--hours 0", "above 0"),
    (soak, "--every 0", "above 0"),
    (bench, "latency latancy", "no bench 'latancy'"),
    (bench, "latency folder", "make bench-peers"),
    (bench, "latency --size 0", "at least 1"),
]


@pytest.mark.parametrize(("command", "arguments", "named"), WRONG)
def test_what_would_check_nothing_is_refused_before_anything_runs(
    command: Callable[[list[str]], object], arguments: str, named: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit) as left:
        command(arguments.split())
    assert left.value.code == 2
    assert named in capsys.readouterr().err


def _interrupted(*_: object) -> None:
    raise KeyboardInterrupt


@pytest.mark.parametrize("module", [simulation, fuzzing])
def test_a_run_that_is_stopped_says_how_far_it_came(
    module: ModuleType, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(module, "campaign", _interrupted)
    assert module.main([]) == 130
    assert "stopped: " in capsys.readouterr().out
