"""python -m tests.crash.stack.soak --hours N: two workers under steady load and random faults, for hours. `make soak HOURS=n`.

Worker "one" lives throughout, so that its memory and file handles say something; "two" is killed, stopped and started; the index
fails in all its ways; the broker is killed now and then. Every few minutes all comes to rest and is held against the oracle.
A line a minute tells how it stands, and figures go to soak.json and soak.html each time, so a run that is stopped early (by Ctrl-C
or SIGTERM: exit code 130, no worker left behind) leaves them too. Exit code 1: the index was wrong, a worker fell, or memory or
handles of "one" kept growing.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import random
import signal
import statistics
import sys
import tempfile
import time
import uuid
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from streams.embedded.apache_kafka import ApacheKafka
from streams.errors import DocdeltaError, NotPrepared
from streams.kafka.offsets import group_lag
from streams.settings import KafkaSettings
from tests.contracts.qdrant_shim import Fault, disk_full, rate_limited
from tests.crash.stack.installation import Installation, installation
from tests.crash.stack.plot import plot

WAVE_SECONDS = 2.0
FAULT_SECONDS = (5.0, 20.0)
REST_MINUTES = 5.0
GROWTH_MIB = 20.0
"""Between the second fifth of the time and the last: how much is still flat. Buffers of eight local stores fill by 2 MiB each
(streams/faustio/rocks.py), the more the longer a run is."""
GROWTH_HANDLES = 20


@dataclass
class Soak:
    """One run. `samples` and `faults` are what the plot shows."""

    own: Installation
    broker: ApacheKafka
    dice: random.Random
    began: float = field(default_factory=time.monotonic)
    samples: list[dict[str, float]] = field(default_factory=list)
    faults: list[tuple[float, str]] = field(default_factory=list)
    rests: int = 0
    _sent: dict[str, float] = field(default_factory=dict)
    _counted: set[str] = field(default_factory=set)

    @property
    def minute(self) -> float:
        """Return minutes since the start."""
        return (time.monotonic() - self.began) / 60

    async def run(self, minutes: float, every: float, save: Callable[[], None]) -> None:
        """Load, break, measure, rest; raises AssertionError when something is wrong."""
        self.own.start("one")
        self.own.start("two")
        assert await self.own.settle()
        self.began = time.monotonic()
        next_fault, next_sample, next_rest = self._fault_time(), time.monotonic() + every, REST_MINUTES
        while self.minute < minutes:
            await self._wave()
            if time.monotonic() >= next_fault:
                await self._break_something()
                next_fault = self._fault_time()
            if time.monotonic() >= next_sample:
                next_sample += every
                await self._measure()
                save()
            if self.minute >= next_rest:
                await self._rest()
                next_rest = self.minute + REST_MINUTES
            await asyncio.sleep(WAVE_SECONDS)
        await self._rest()
        await self._measure()
        save()

    def verdict(self) -> tuple[bool, str]:
        """Return whether memory and handles of the lasting worker are flat, and the figures in words."""
        fifth = max(1, len(self.samples) // 5)
        early, late = self.samples[fifth : 2 * fifth] or self.samples[:1], self.samples[-fifth:]
        lines, flat = [], True
        for name, allowed in (("memory_mib", GROWTH_MIB), ("parser_memory_mib", GROWTH_MIB), ("file_handles", GROWTH_HANDLES)):
            before, after = (statistics.median(sample[name] for sample in part) for part in (early, late))
            flat = flat and after - before <= allowed
            word = "flat" if after - before <= allowed else "GROWS"
            lines.append(f"{name}: {before:.0f} in the second fifth, {after:.0f} in the last: {word} (up to +{allowed:g} is)")
        slowest = max(sample["freshness_max_seconds"] for sample in self.samples)
        typical = statistics.median(sample["freshness_p50_seconds"] for sample in self.samples)
        lines.append(
            f"sent to settled: {typical:.2f} s in the median interval's median, {slowest:.1f} s at the slowest (faults included)"
        )
        lines.append(
            f"{len(self.own.receipts)} events, {len(self.faults)} faults; {self.rests} times held against a clean rebuild and equal"
        )
        return flat, "\n".join(lines)

    def line(self) -> str:
        """Return how it stands, in a line."""
        last = self.samples[-1]
        return (
            f"minute {last['minute']:.1f}: {len(self.own.receipts)} events, {len(self.faults)} faults, "
            f"{self.rests} times equal to a clean rebuild; memory {last['memory_mib']:.0f} MiB, "
            f"handles {last['file_handles']:.0f}, lag {last['lag']:.0f}, sent to settled {last['freshness_p50_seconds']:.2f} s"
        )

    def _fault_time(self) -> float:
        return time.monotonic() + self.dice.uniform(*FAULT_SECONDS)

    async def _wave(self) -> None:
        before = set(self.own.site.awaited)
        wave = self.own.site.wave()
        now = time.time()
        self._sent |= dict.fromkeys(self.own.site.awaited - before, now)
        await self.own.send(wave)
        self.own.rig.shim.seen.clear()
        self.own.rig.shim.asked.clear()
        code = self.own.rig.workers["one"].poll()
        assert code is None, f"worker one ended with {code}:\n{self.own.rig.log('one')[-3000:]}"

    async def _break_something(self) -> None:
        what = self.dice.choice(["kill", "kill", "stop", "index", "index", "index", "hang", "broker"])
        self.faults.append((self.minute, what))
        rig = self.own.rig
        match what:
            case "kill":
                rig.workers["two"].kill()
                await asyncio.to_thread(rig.workers["two"].wait)
                self.own.start("two")
            case "stop":
                code = await rig.stop("two")
                assert code == 0, rig.log("two")[-3000:]
                self.own.start("two")
            case "index":
                rig.shim.faults += [
                    rate_limited(1),
                    Fault(status=500),
                    Fault(cut_before=True),
                    Fault(cut_after=True),
                    Fault(killed_after=1),
                    disk_full(),
                    Fault(said="wait_timeout"),
                ]
            case "hang":
                rig.shim.faults += [Fault(hang=True), Fault(match="/points", hang=True)]
            case "broker":
                self.broker.kill()
                await asyncio.sleep(2)  # the length of the outage
                await asyncio.to_thread(self.broker.start)

    async def _rest(self) -> None:
        """Let all be settled; the worker that was being started at a broker outage may have given up, and is started again."""
        self.own.rig.shim.faults.clear()
        if self.own.rig.workers["two"].poll() is not None:
            self.own.start("two")
        assert await self.own.settle()
        await self.own.check()
        self.rests += 1

    async def _measure(self) -> None:
        pid = self.own.rig.workers["one"].pid
        own, parser = _status(pid), _status(_children(pid)[0]) if _children(pid) else {}
        new = self.own.receipts.keys() & self._sent.keys() - self._counted
        self._counted |= new
        waits = [self.own.receipts[event].settled_at.timestamp() - self._sent[event] for event in new]
        self.samples.append(
            {
                "minute": round(self.minute, 2),
                "memory_mib": own["VmRSS"] / 1024,
                "parser_memory_mib": parser.get("VmRSS", 0) / 1024,
                "threads": own["Threads"],
                "file_handles": _handles(pid),
                "lag": await asyncio.to_thread(self._lag),
                "settled": len(waits),
                "freshness_p50_seconds": statistics.median(waits) if waits else 0.0,
                "freshness_max_seconds": max(waits, default=0.0),
            }
        )

    def _lag(self) -> int:
        rig, topics = self.own.rig, self.own.rig.settings.topics
        batch = rig.policy.batch_id
        groups = {topics.parser_group: [topics.documents], topics.batch_group(batch): [topics.parsed, topics.changes(batch)]}
        try:
            return sum(each.lag for group, names in groups.items() for each in group_lag(rig.kafka, group, names))
        except DocdeltaError:
            return -1  # the broker is away


def _status(pid: int) -> dict[str, int]:
    lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    return {
        name: int(value.split()[0]) for name, _, value in (line.partition(":") for line in lines) if name in ("VmRSS", "Threads")
    }


def _handles(pid: int) -> int:
    return len(list(Path(f"/proc/{pid}/fd").iterdir()))


def _children(pid: int) -> list[int]:
    found: list[int] = []
    for task in Path(f"/proc/{pid}/task").iterdir():
        with suppress(FileNotFoundError):  # a thread that has ended meanwhile
            found += [int(child) for child in (task / "children").read_text().split()]
    return found


async def soak(hours: float, every: float, out: Path, seed: int) -> int:
    """Run a soak and write its figures. Returns the exit code."""
    with tempfile.TemporaryDirectory() as folder, ApacheKafka(Path(folder) / "kafka") as broker:
        kafka = KafkaSettings(bootstrap_servers=broker.bootstrap_servers)
        async with installation(kafka, Path(folder), f"soak-{uuid.uuid4().hex[:6]}", seed) as own:
            made = Soak(own, broker, random.Random(seed))

            def save(verdict: str = "still running, or stopped early") -> None:
                figures: dict[str, Any] = {"seed": seed, "samples": made.samples, "faults": made.faults}
                (out / "soak.json").write_text(json.dumps(figures, indent=1))
                (out / "soak.html").write_text(plot(made.samples, made.faults, verdict))
                print(made.line(), file=sys.stderr, flush=True)

            wrong = ""
            try:
                await made.run(hours * 60, every, save)
            except AssertionError as error:
                wrong = f"WRONG at minute {made.minute:.1f}, seed {seed}: {error}\n"
            if not made.samples:
                print(wrong or "no samples: the run is shorter than the interval")
                return 1
            flat, words = made.verdict()
            (out / "soak.html").write_text(plot(made.samples, made.faults, wrong + words))
            print(f"{wrong}{words}\nplot: {out / 'soak.html'}")
            return int(bool(wrong) or not flat)


def main(arguments: list[str] | None = None) -> int:
    """Return the exit code."""
    parser = argparse.ArgumentParser(
        prog="python -m tests.crash.stack.soak", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--hours", type=float, default=1.0, help="how long, with fractions: 0.1 is six minutes")
    parser.add_argument("--every", type=float, default=60.0, help="seconds between two samples")
    parser.add_argument("--out", type=Path, default=Path("build/soak"), help="folder of soak.json and soak.html")
    parser.add_argument("--seed", type=int, default=1, help="of load and faults")
    options = parser.parse_args(arguments)
    if not (options.hours > 0 and options.every > 0):
        parser.error("--hours and --every are above 0")
    options.out.mkdir(parents=True, exist_ok=True)
    signal.signal(signal.SIGTERM, lambda number, frame: signal.raise_signal(signal.SIGINT))
    print(f"{options.hours:g} h, seed {options.seed}: broker and workers start; a line each {options.every:g} s", file=sys.stderr)
    try:
        return asyncio.run(soak(options.hours, options.every, options.out, options.seed))
    except NotPrepared as error:
        sys.exit(f"soak: {error}")
    except KeyboardInterrupt:
        print(f"stopped early; what was measured: {options.out / 'soak.html'}", file=sys.stderr)
        return 130


if __name__ == "__main__":
    sys.exit(main())
