"""`docdelta demo` as a newcomer runs it: all starts, each edit costs what it must, a policy is rolled out and back, all stops."""

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
        timeout=600,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert "WRONG" not in done.stdout
    costs = [int(cost) for cost in re.findall(r"must cost (\d+) embeddings?", done.stdout)]
    assert sorted(costs) == [0, 0, 0, 0, 0, 1, 1, 1]
    assert done.stdout.count("Nothing is sent") == 1
    totals = re.search(r"Built: (\d+) chunks in (\d+) documents, (\d+) embedded", done.stdout)
    assert totals is not None
    chunks, documents, embedded = map(int, totals.groups())
    assert chunks == embedded > 150
    assert documents > 14
    assert re.search(r"After 8 edits: \d+ chunks, 3 embedded anew", done.stdout)
    the_rollout_is_proven_line_by_line(done.stdout)


def the_rollout_is_proven_line_by_line(said: str) -> None:
    readers = re.findall(r"^readers see (default-v\d)-\w{8} now", said, re.MULTILINE)
    assert readers == ["default-v2", "default-v1", "default-v2"]
    gates = re.findall(r"^gate of default-v2-\w{8}:\n((?:(?:ok|FAIL) .*\n)+)", said, re.MULTILINE)
    assert len(gates) == 2, "before each switch to it"
    for gate in gates:
        assert [line for line in gate.splitlines() if not line.startswith("ok  ")] == []
        assert {"lag", "count", "ids and payloads", "metadata", "recall@5"} <= {
            line[5:].split(":")[0] for line in gate.splitlines()
        }
    assert re.search(r"expected: [\d,]+ chunks, [\d,]+ embedded, [\d,]+ borrowed", said)
    assert re.search(r"default-v2-\w{8}: .* documents, .* chunks \([\d,]+ embedded, [\d,]+ borrowed\)", said)
    for figure in ("Recall@1", "MRR", "nDCG@10"):
        row = re.search(rf"^{figure} +([\d.]+) +([\d.]+)", said, re.MULTILINE)
        assert row is not None
        assert float(row[1]) < float(row[2]), f"{figure} rises from version 1 to version 2"
