"""`python -m tests.bench.pipeline [BENCH ...]`: run benches, print their figures, write JSON.

Without names: all but `peers` and `folder`, which need the peers' environment (`make bench-peers`).
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import subprocess
import sys
from collections.abc import Callable, Coroutine, Mapping
from pathlib import Path
from typing import Any

from streams.errors import NotPrepared
from streams.logs import configure_logs
from tests.bench.pipeline import build, folder, lanes, latency, resync, rollout, scale, state
from tests.bench.pipeline.report import load, save

PEERS = ("langchain", "langchain_with_offsets", "llamaindex", "cocoindex")
FOLDER_PEERS = ("langchain", "llamaindex")
"""Those that compare documents in hand with what they remember."""
Bench = Callable[[int], Coroutine[Any, Any, dict[str, Any]]]
BENCHES: Mapping[str, tuple[Bench, int]] = {
    "build": (build.measure, 200),
    "resync": (resync.measure, 1000),
    "latency": (latency.measure, 200),
    "state": (state.measure, 100_000),
    "rollout": (rollout.measure, 300),
    "scale": (scale.measure, 100),
    "lanes": (lanes.measure, 10_000),
}
"""Each bench and its size: documents, or samples of `latency` and `rollout`."""
WITH_PEERS = ("peers", "folder")
"""Benches that need the peers' environment too."""


def main(arguments: list[str] | None = None) -> None:
    """Run what is asked for."""
    parser = argparse.ArgumentParser(prog="tests.bench.pipeline", description=__doc__)
    parser.add_argument("benches", nargs="*", metavar="BENCH", help=", ".join((*BENCHES, *WITH_PEERS)))
    parser.add_argument("--size", type=int, help="documents (or samples of latency and rollout) in place of the bench's own number")
    parser.add_argument("--peers-python", default="", help="python of the peers' environment")
    parser.add_argument("--out", type=Path, default=Path(".bench"), help="folder of the JSON files")
    asked = parser.parse_args(arguments)
    names = asked.benches or list(BENCHES)
    if unknown := [name for name in names if name not in {*BENCHES, *WITH_PEERS}]:
        parser.error(f"no bench {unknown[0]!r}; one of {', '.join((*BENCHES, *WITH_PEERS))}")
    if asked.size is not None and asked.size < 1:
        parser.error("--size is at least 1")
    if not asked.peers_python and (theirs := [name for name in names if name in WITH_PEERS]):
        parser.error(f"{theirs[0]} needs --peers-python: use `make bench-peers`")
    configure_logs("warning", "console")
    for name in names:
        before = load()
        print(f"{name} ... (load {before[0]}; figures come at the end)", file=sys.stderr, flush=True)
        if name == "peers":
            figures = _beside_peers(asked.size or BENCHES["resync"][1], asked.peers_python)
        elif name == "folder":
            figures = _folder_beside_peers(asked.size, asked.peers_python)
        else:
            measure, size = BENCHES[name]
            try:
                figures = asyncio.run(measure(asked.size or size))
            except NotPrepared as error:
                sys.exit(f"{name}: {error}")
        save(asked.out, name, figures, before)


def _beside_peers(documents: int, python: str) -> dict[str, Any]:
    """Return docdelta's figures of re-sync and edit beside each peer's, one after the other, and the ratios."""
    ours = asyncio.run(resync.measure(documents))
    theirs = {name: _peer(python, name, "--documents", str(documents)) for name in PEERS}
    rates = {name: figures["resync"]["documents_per_second"] for name, figures in theirs.items()}
    rate = ours["resync"]["documents_per_second"]
    return {
        "docdelta": ours,
        **theirs,
        "resync_ratio": {name: rate / other for name, other in rates.items()},
        "edit_seconds_ratio": {name: each["edit"]["seconds"] / ours["edit"]["seconds"] for name, each in theirs.items()},
        "edit_bytes_ratio": {name: each["edit"]["bytes_written"] / ours["edit"]["bytes_written"] for name, each in theirs.items()},
        "target": "resync_ratio >= 5 to the best",
    }


def _folder_beside_peers(documents: int | None, python: str) -> dict[str, Any]:
    """Return how fast an unchanged folder is seen to be unchanged, by docdelta's front door and by peers, for each size."""
    sizes: dict[str, Any] = {}
    for size in (documents,) if documents else folder.SIZES:
        with folder.site(size) as root:
            ours = folder.measure(root)
            theirs = {name: _peer(python, name, "--folder", str(root)) for name in FOLDER_PEERS}
        rate = ours["documents_per_second"]
        ratios = {name: rate / each["documents_per_second"] for name, each in theirs.items()}
        sizes[str(size)] = {"docdelta": ours, **theirs, "ratio": ratios}
    return {**sizes, "target": "ratio >= 5 to the best"}


def _peer(python: str, name: str, *options: str) -> dict[str, Any]:
    script = Path(__file__).with_name("peers.py")
    environment = {**os.environ, "COCOINDEX_DISABLE_USAGE_TRACKING": "1", "PYTHONWARNINGS": "ignore"}
    done = subprocess.run([python, str(script), name, *options], env=environment, capture_output=True, text=True, check=False)
    if done.returncode:
        sys.exit(f"{name} failed:\n{done.stderr[-3000:]}")
    figures: dict[str, Any] = json.loads(done.stdout.strip().splitlines()[-1])
    return figures


if __name__ == "__main__":
    main()
