"""python -m tests.fuzz: long campaigns, and one input again. `make fuzz-long` runs ten million."""

from __future__ import annotations

import argparse
import sys

from tests.fuzz.campaign import as_json, campaign, shares, try_one
from tests.fuzz.targets import TARGETS

BLOCK = 200_000


def main() -> int:
    """Return 0 when nothing was found, else 1."""
    parser = argparse.ArgumentParser(prog="python -m tests.fuzz", description=__doc__)
    parser.add_argument("--inputs", type=int, default=BLOCK, help="how many")
    parser.add_argument("--start", type=int, default=1_000_000, help="number of the first: CI has those from 0")
    parser.add_argument("--target", choices=sorted(TARGETS), action="append", default=[])
    parser.add_argument("--number", type=int, help="try this one input of --target again, with its traceback")
    options = parser.parse_args()
    if options.number is not None:
        wrong = "".join(try_one(name, options.number) for name in options.target)
        print(wrong or "nothing is wrong")
        return bool(wrong)
    found, done = False, 0
    while done < options.inputs:
        tally = campaign(shares(min(BLOCK, options.inputs - done), options.target), options.start + done)
        done += tally.inputs.total()
        found = found or bool(tally.findings)
        print(f"{done:,} of {options.inputs:,}\n{as_json(tally)}", flush=True)
    return int(found)


if __name__ == "__main__":
    sys.exit(main())
