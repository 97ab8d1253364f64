"""`docdelta demo` as a newcomer runs it: everything starts, every edit costs what it must, everything stops."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path


def test_the_demo_shows_true_figures_and_ends_well(tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-m", "streams.cli", "demo", "--keep", str(tmp_path / "demo")],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=240,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert "WRONG" not in done.stdout
    costs = [int(cost) for cost in re.findall(r"must cost (\d+) embeddings", done.stdout)]
    assert sorted(costs) == [0, 0, 0, 0, 0, 1, 1, 1]
    totals = re.search(r"Built: (\d+) chunks in (\d+) documents, (\d+) embedded", done.stdout)
    assert totals is not None
    chunks, documents, embedded = map(int, totals.groups())
    assert chunks == embedded > 150
    assert documents > 14
    assert re.search(r"After 8 edits: \d+ chunks, 3 embedded anew", done.stdout)
