"""A worker for the crash tests: two agents as in the real pipeline, run as a process of its own. Usage: chain_worker.py JSON.

chain:  [in] key → n      reads the key's last n from the table, publishes {n, previous} to [out], then remembers n
effect: [out]             appends "effect key n previous" to the journal: the outside world

The journal also gets "up", "handled key n" and "left". Exit code 0 after SIGTERM, 1 after a crash.
"""

from __future__ import annotations

import asyncio
import json
import os
import random
import signal
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from streams.errors import Stopping, Unavailable
from streams.faustio.app import SafeApp, make_app, raw_table, raw_topic
from streams.faustio.batch_runner import BatchRunner
from streams.faustio.continuity import OffsetContinuity
from streams.faustio.keyed_runner import KeyedRunner
from streams.faustio.lifecycle import start_app, stop_app
from streams.faustio.log import FaustLog
from streams.faustio.table import FaustTable
from streams.ports import InRecord
from streams.settings import Settings


class ChainWorker:
    """One app with both agents."""

    def __init__(self, options: dict[str, Any]) -> None:
        settings = Settings.model_validate(options["settings"])
        self.partitions = settings.kafka.partitions
        self.journal = os.open(options["journal"], os.O_WRONLY | os.O_APPEND | os.O_CREAT)
        self.out = options["out"]
        self.app: SafeApp = make_app(options["group"], settings, Path(options["datadir"]))
        self.work_seconds = float(options.get("work_seconds", 0.002))
        self.stuck_on = options.get("stuck_on")
        self.crash_on = options.get("crash_on")
        self.log = FaustLog(self.app)
        self.table = FaustTable(raw_table(self.app, "last", self.partitions, f"{options['group']}-last-changelog"))
        KeyedRunner(self.app, "chain", self.chain, in_flight=16).attach(raw_topic(self.app, options["in"], self.partitions))
        effects = BatchRunner(self.app, "effect", self.effect, size=16, seconds=0.02, continuity=OffsetContinuity())
        effects.attach(raw_topic(self.app, self.out, self.partitions))

    def note(self, *words: object) -> None:
        os.write(self.journal, (" ".join(map(str, words)) + "\n").encode())

    async def patiently(self, make: Any) -> None:
        """Await `make()` until the broker is back."""
        while True:
            try:
                return await make()
            except Unavailable:
                if self.app.leaving.is_set():
                    raise Stopping("leaving") from None
                await asyncio.sleep(0.05)

    async def chain(self, record: InRecord) -> None:
        assert record.key is not None
        assert record.value is not None
        key, n = record.key, int(record.value)
        if self.crash_on == n:
            raise ValueError("told to crash")
        if self.stuck_on == n:
            self.note("stuck", key.decode(), n)
            await asyncio.Event().wait()
        last = int(self.table.get(key) or 0)
        if n > last:
            await asyncio.sleep(random.uniform(0, self.work_seconds))
            change = json.dumps({"n": n, "previous": last}).encode()
            await self.patiently(lambda: self.log.publish(self.out, key, change))
            await self.patiently(lambda: self.table.put(key, str(n).encode()))
        self.note("handled", key.decode(), n)

    async def effect(self, records: Sequence[InRecord]) -> None:
        await asyncio.sleep(random.uniform(0, self.work_seconds))
        for record in records:
            assert record.key is not None
            assert record.value is not None
            change = json.loads(record.value)
            self.note("effect", record.key.decode(), change["n"], change["previous"])

    async def run(self) -> int:
        crashed: asyncio.Future[BaseException] = asyncio.get_running_loop().create_future()
        told = asyncio.Event()
        for number in (signal.SIGTERM, signal.SIGINT):
            asyncio.get_running_loop().add_signal_handler(number, told.set)

        def on_crash(_: SafeApp, reason: BaseException) -> None:
            print("crashed:", repr(reason), file=sys.stderr, flush=True)
            crashed.set_result(reason)

        started = asyncio.ensure_future(start_app(self.app, on_crash))
        started.add_done_callback(lambda done: self.note("up") if not done.cancelled() and done.result() else None)
        waiting = asyncio.ensure_future(told.wait())
        await asyncio.wait({waiting, crashed}, return_when=asyncio.FIRST_COMPLETED)
        clean = await stop_app(self.app, drain_seconds=8)
        self.note("left", "clean" if clean else "unclean")
        return 1 if crashed.done() or not clean else 0


if __name__ == "__main__":
    import logging

    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(levelname)s %(name)s: %(message)s")

    async def main() -> int:
        return await ChainWorker(json.loads(sys.argv[1])).run()

    sys.exit(asyncio.run(main()))
