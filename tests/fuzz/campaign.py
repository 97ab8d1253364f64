"""campaign(): many inputs to the targets, in one process with a memory limit, each within a bound of processor time.

The process writes down what it is about to try, so that an input that kills it (memory, endless loop, a crash in C) is known too.
"""

from __future__ import annotations

import json
import mmap
import multiprocessing
import resource
import signal
import time
import traceback
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field
from multiprocessing.connection import Connection
from pathlib import Path

from tests.fuzz.inputs import Inputs, seeds
from tests.fuzz.targets import TARGETS

MEMORY_BYTES = 1 << 30
"""On top of what the process holds at its start: the parse sandbox's own limit."""
CPU_SECONDS = 2.0
CPU_SECONDS_PER_CHARACTER = 0.0005
"""Bound of one input: generous, since a hang is what is looked for. Growth is measured in test_large_inputs.py."""
KILL_CPU_SECONDS = 60
"""A single input that takes so much processor time ends the process."""


@dataclass
class Tally:
    """What a campaign found. findings: target, number and what was wrong; slowest: seconds, target, number."""

    inputs: Counter[str] = field(default_factory=Counter)
    outcomes: Counter[str] = field(default_factory=Counter)
    findings: list[str] = field(default_factory=list)
    slowest: tuple[float, str, int] = (0.0, "", 0)
    seconds: float = 0.0
    memory_mib: float = 0.0

    def __str__(self) -> str:
        per_target = ", ".join(f"{name} {count:,}" for name, count in self.inputs.items())
        seconds, target, number = self.slowest
        costs = f"{self.seconds:.0f} s of processor time, {self.memory_mib:.0f} MiB at most"
        head = f"{self.inputs.total():,} inputs, {costs}: {per_target}"
        return "\n".join([head, f"slowest: {target} {number}, {seconds:.2f} s", *self.findings])

    def merge(self, other: Tally) -> None:
        """Add another campaign's figures."""
        self.inputs += other.inputs
        self.outcomes += other.outcomes
        self.findings += other.findings
        self.slowest = max(self.slowest, other.slowest)
        self.seconds += other.seconds
        self.memory_mib = max(self.memory_mib, other.memory_mib)


def campaign(counts: dict[str, int], start: int = 0) -> Tally:
    """Try `counts[target]` inputs of each target, numbered from `start`. At most 20 findings a target."""
    total = Tally()
    for name, count in counts.items():
        position = start
        while position < start + count:
            tally, position = _in_a_process(name, position, start + count)
            total.merge(tally)
    return total


def try_one(name: str, number: int) -> str:
    """Return what is wrong with one input, with its traceback; empty when all is right."""
    try:
        TARGETS[name][0](Inputs(number))
    except Exception:  # noqa: BLE001 - whatever a target raises is the finding
        return traceback.format_exc()
    return ""


def _in_a_process(name: str, first: int, end: int) -> tuple[Tally, int]:
    """Return what a process found from `first` on, and where to go on: `end`, or behind the input that killed it."""
    place = mmap.mmap(-1, 8)
    seeds()  # read before the fork, once for all processes
    context = multiprocessing.get_context("fork")
    ours, theirs = context.Pipe(duplex=False)
    process = context.Process(target=_work, args=(name, first, end, place, theirs))
    process.start()
    theirs.close()
    try:
        tally = ours.recv()
        killed_by = None
    except KeyboardInterrupt:
        process.kill()
        raise
    except EOFError:
        tally, killed_by = Tally(), int.from_bytes(place[:8], "little")
    process.join()
    if killed_by is None:
        return tally, end
    tally.inputs[name] = killed_by - first + 1
    tally.findings.append(f"{name} {killed_by}: the process died ({_signal_name(process.exitcode)})")
    return tally, killed_by + 1


def _signal_name(code: int | None) -> str:
    return signal.Signals(-code).name if code is not None and code < 0 else f"exit code {code}"


def _work(name: str, first: int, end: int, place: mmap.mmap, answer: Connection) -> None:
    target, _ = TARGETS[name]
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C reaches the whole group: the parent answers
    used = int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize() if Path("/proc").is_dir() else 0
    if used:
        resource.setrlimit(resource.RLIMIT_AS, (used + MEMORY_BYTES, used + MEMORY_BYTES))
    tally = Tally()
    began = time.process_time()
    for number in range(first, end):
        place[:8] = number.to_bytes(8, "little")
        signal.setitimer(signal.ITIMER_PROF, KILL_CPU_SECONDS)
        before = time.process_time()
        try:
            outcome, size = target(Inputs(number))
        except Exception as error:  # noqa: BLE001 - whatever a target raises is a finding
            outcome, size = "finding", 0
            if len(tally.findings) < 20:
                steps = traceback.extract_tb(error.__traceback__)
                tally.findings.append(f"{name} {number}: {type(error).__name__}: {str(error)[:200]} at {steps[-1].name}")
        spent = time.process_time() - before
        tally.inputs[name] += 1
        tally.outcomes[f"{name}: {outcome}"] += 1
        tally.slowest = max(tally.slowest, (spent, name, number))
        if outcome != "finding" and spent > CPU_SECONDS + CPU_SECONDS_PER_CHARACTER * size:
            tally.findings.append(f"{name} {number}: {spent:.1f} s for {size} characters")
    tally.seconds = time.process_time() - began
    tally.memory_mib = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    answer.send(tally)


def shares(total: int, only: Iterable[str] = ()) -> dict[str, int]:
    """Return how many of `total` inputs each target gets."""
    names = list(only) or list(TARGETS)
    whole = sum(TARGETS[name][1] for name in names)
    return {name: max(1, total * TARGETS[name][1] // whole) for name in names}


def as_json(tally: Tally) -> str:
    """Return the figures for a record of a long run."""
    fields = {"inputs": dict(tally.inputs), "outcomes": dict(tally.outcomes), "findings": tally.findings, "slowest": tally.slowest}
    return json.dumps(
        {**fields, "seconds": round(tally.seconds), "memory_mib": round(tally.memory_mib)}, ensure_ascii=False, indent=1
    )
