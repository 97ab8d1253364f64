"""Long runs: ``python -m tests.crash.simulation --histories 1000000 --seed 7``. Ends with 1 and a timeline when a history fails."""

from __future__ import annotations

import argparse
import sys
import time

from tests.crash.simulation.campaign import first_failure
from tests.crash.simulation.shrinking import shrunk


def main() -> int:
    """Run histories from a seed on and say how it went."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--histories", type=int, default=5000)
    parser.add_argument("--seed", type=int, default=0, help="first seed; history n has seed + n")
    parser.add_argument("--no-shrink", action="store_true", help="show the failing history as it is")
    arguments = parser.parse_args()
    began = time.monotonic()

    def told(seed: int) -> None:
        done = seed - arguments.seed + 1
        if done % 500 == 0:
            print(f"{done} of {arguments.histories} histories, {done / (time.monotonic() - began):.0f} a second", file=sys.stderr)

    failing = first_failure(range(arguments.seed, arguments.seed + arguments.histories), told=told)
    if failing is None:
        print(f"{arguments.histories} histories from seed {arguments.seed}: all came to their oracle")
        return 0
    print(f"seed {failing.seed} fails:\n{failing}\n")
    if not arguments.no_shrink:
        print(f"the shortest that still fails:\n{shrunk(failing)}")
    return 1


if __name__ == "__main__":
    sys.exit(main())
