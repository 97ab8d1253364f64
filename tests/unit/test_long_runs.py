"""Commands of long runs (fuzz, soak, benches) refuse at once what would check nothing, and say what is wrong."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from tests.bench.pipeline.__main__ import main as bench
from tests.crash.stack.soak import main as soak
from tests.fuzz.__main__ import main as fuzz

WRONG: list[tuple[Callable[[list[str]], object], str, str]] = [
    (fuzz, "--inputs 0", "at least 1"),
    (fuzz, "--number 5", "--target"),
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
