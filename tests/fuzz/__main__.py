"""python -m tests.fuzz: long campaigns, and one input again. `make fuzz-long` runs ten million, INPUTS=n another number.

Each block of 200,000 reports its figures when it is done: a minute or two. Inputs have numbers, from --start on, so the same
command tries the same ones; another --start tries new ones. Exit code 1: something was found.
"""

from __future__ import annotations

import argparse
import sys

from tests.fuzz.campaign import as_json, campaign, shares, try_one
from tests.fuzz.targets import TARGETS

BLOCK = 200_000


def main(arguments: list[str] | None = None) -> int:
    """Return 0 when nothing was found, else 1."""
    parser = argparse.ArgumentParser(
        prog="python -m tests.fuzz", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--inputs", type=int, default=BLOCK, help="how many")
    parser.add_argument("--start", type=int, default=1_000_000, help="number of the first: CI has those from 0")
    parser.add_argument(
        "--target", choices=sorted(TARGETS), action="append", default=[], help="only this one (all); may be repeated"
    )
    parser.add_argument("--number", type=int, help="try this one input of --target again, with its traceback")
    options = parser.parse_args(arguments)
    if options.inputs < 1 or options.start < 0:
        parser.error("--inputs is at least 1 and --start at least 0")
    if options.number is not None and not options.target:
        parser.error("--number needs the --target whose input it is")
    if options.number is not None:
        wrong = "".join(try_one(name, options.number) for name in options.target)
        print(wrong or "nothing is wrong")
        return bool(wrong)
    found, done = False, 0
    print(f"{options.inputs:,} inputs, numbers from {options.start:,}; figures every {BLOCK:,}", flush=True)
    while done < options.inputs:
        try:
            tally = campaign(shares(min(BLOCK, options.inputs - done), options.target), options.start + done)
        except KeyboardInterrupt:
            print(f"stopped: the figures above are of {done:,} inputs")
            return 130
        done += tally.inputs.total()
        found = found or bool(tally.findings)
        print(f"{done:,} of {options.inputs:,}\n{as_json(tally)}", flush=True)
    if found:
        print("found something; one of its inputs again: python -m tests.fuzz --target TARGET --number NUMBER")
    return int(found)


if __name__ == "__main__":
    sys.exit(main())
