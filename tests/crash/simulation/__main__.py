"""python -m tests.crash.simulation: random histories by the million. `make crash-long HISTORIES=n`.

Each run begins at a seed of its own, and prints it, so that runs add up. Ends with 0 when all came to their oracle; with 1 at the
first that does not, shrunk, with its timeline; with 130 at Ctrl-C, and says how far it came. `--kind KIND --seed S --histories 1`
runs one again.
"""

from __future__ import annotations

import argparse
import secrets
import sys

from tests.crash.simulation.kinds import KINDS
from tests.crash.simulation.long import BLOCK, Failed, campaign
from tests.crash.simulation.shrinking import shrunk, traced

PROGRESS_SECONDS = 10.0


def main(arguments: list[str] | None = None) -> int:
    """Run histories and say how it went; return the exit code."""
    parser = argparse.ArgumentParser(
        prog="python -m tests.crash.simulation", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--histories", type=int, default=5000, help="how many")
    parser.add_argument("--seed", type=int, help="first seed; history n has seed + n (one that differs by run)")
    parser.add_argument("--processes", type=int, default=2)
    parser.add_argument("--kind", choices=sorted(KINDS), default="", help="histories of one family (all in turn)")
    parser.add_argument("--no-shrink", action="store_true", help="show the failing history as it is")
    options = parser.parse_args(arguments)
    if options.histories < 1 or options.processes < 1:
        parser.error("--histories and --processes are at least 1")
    first = options.seed if options.seed is not None else secrets.randbelow(10**12)
    print(f"{options.histories:,} histories from seed {first}, {options.processes} processes", flush=True)
    shown, right = 0.0, 0

    def told(done: int, seconds: float) -> None:
        nonlocal shown, right
        right = done
        if seconds - shown >= PROGRESS_SECONDS:
            shown = seconds
            rate = done / max(seconds, 1e-9)
            left = (options.histories - done) / rate / 60
            print(f"{done:,} of {options.histories:,}, {rate:.0f} a second, {left:.0f} min left", file=sys.stderr, flush=True)

    processes = min(options.processes, -(-options.histories // BLOCK))
    try:
        failed = campaign(first, options.histories, processes, options.kind, told)
    except KeyboardInterrupt:
        print(f"stopped: {right:,} histories from seed {first} came to their oracle")
        return 130
    if failed is None:
        print(f"{options.histories:,} histories from seed {first}: all came to their oracle")
        return 0
    print(_told(failed, options.no_shrink))
    return 1


def _told(failed: Failed, as_it_is: bool) -> str:
    """Return a failing history, shrunk unless `as_it_is`, and what happened in it."""
    family = KINDS[failed.kind]
    again = f"again: python -m tests.crash.simulation --kind {failed.kind} --seed {failed.seed} --histories 1"
    head = f"seed {failed.seed} of kind {failed.kind} fails ({again})"
    history = family.history(failed.seed)
    if as_it_is:
        return f"{head}\n{traced(history, family.simulation)}"
    print(f"{head}\nlooking for the shortest that still fails ...", file=sys.stderr, flush=True)
    return f"{head}\nthe shortest that still fails:\n{shrunk(history, run=family.simulation)}"


if __name__ == "__main__":
    sys.exit(main())
