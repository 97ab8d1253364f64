"""Installation: a rig with a living site, which knows when all that was sent is settled, and holds it against the oracle."""

from __future__ import annotations

import asyncio
import base64
import random
import subprocess
import time
import zlib
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path

from schemas.codec import decode
from schemas.dead_letter import DeadLetter
from schemas.receipt import Receipt
from streams.crash_points import VARIABLE
from streams.kafka.read import Follower
from streams.settings import KafkaSettings
from tests.crash.stack.site import Pair, Site
from tests.stack.rig import Rig, rig
from tests.support.patience import PATIENCE

KILLED = -9


@dataclass
class Installation:
    """One installation. `receipts`: the first of each event; `letters`: every dead letter; both grow as they come."""

    rig: Rig
    site: Site
    receipts: dict[str, Receipt] = field(default_factory=dict)
    letters: list[DeadLetter] = field(default_factory=list)
    forgiving: bool = False
    """While set, the index refuses some writes, and whose events these are can't be known."""
    forgiven: set[str] = field(default_factory=set)
    """Events dead-lettered by the indexer meanwhile."""
    news: asyncio.Event = field(default_factory=asyncio.Event)

    async def send(self, pairs: Sequence[Pair]) -> None:
        """Produce records, about half of them through the bulk lane, and await the broker.

        A null value deletes what is newest when it comes, so what follows one must not come by another lane: it may be there first.
        """
        ordered = {key for key, value in pairs if value is None}
        lanes: dict[bool, list[Pair]] = {False: [], True: []}
        for key, value in pairs:
            lanes[value is not None and key not in ordered and bool(zlib.crc32(value) & 1)].append((key, value))
        await self.rig.send_raw(*lanes[True], topic=self.rig.settings.topics.bulk)
        await self.rig.send_raw(*lanes[False])

    def start(self, name: str = "one", order: str = "", **environment: str) -> subprocess.Popen[bytes]:
        """Start a worker; `order` arms a crash point."""
        return self.rig.start(name, **environment, **({VARIABLE: order} if order else {}))

    @property
    def open_events(self) -> set[str]:
        """Events without an outcome."""
        return self.site.awaited - self.receipts.keys()

    @property
    def settled(self) -> bool:
        """True when every event has its outcome and every record that no event can be read from is parked."""
        return not self.open_events and self.site.parked <= {_value(letter) for letter in self.letters}

    async def settle(self, *, dying: str = "", but: int = 0) -> bool:
        """Wait until all is settled (or all `but` so many) and return True, or False as soon as the worker `dying` was killed.

        Fails when a worker ends in another way, or after PATIENCE seconds without news.
        """
        deadline = time.monotonic() + PATIENCE
        while not (self.settled or 0 < len(self.open_events) <= but):
            for name, worker in self.rig.workers.items():
                code = worker.poll()
                if name == dying and code == KILLED:
                    return False
                assert code in (None, 0, KILLED), f"worker {name} ended with {code}:\n{self.rig.log(name)[-3000:]}"
            assert time.monotonic() < deadline, self._complaint()
            self.news.clear()
            try:
                await asyncio.wait_for(self.news.wait(), 0.1)
                deadline = time.monotonic() + PATIENCE
            except TimeoutError:
                continue
        return True

    async def death(self, name: str) -> None:
        """Wait until a worker was killed. Fails when it ends otherwise, or goes on living."""
        worker = self.rig.workers[name]
        code = await asyncio.wait_for(asyncio.to_thread(worker.wait), PATIENCE)
        assert code == KILLED, f"worker {name} ended with {code}:\n{self.rig.log(name)[-3000:]}"

    async def check(self) -> None:
        """Hold the index against a clean rebuild, each event against its one outcome, the dead letters against what is bad."""
        await self.rig.check(self.site.newest.values())
        wrong = {
            event: receipt.outcome
            for event, receipt in self.receipts.items()
            if event not in self.forgiven and (receipt.outcome == "dead_lettered") != (event in self.site.refused)
        }
        assert not wrong, f"outcomes: {wrong}"
        stray = {letter.event_id for letter in self.letters if letter.stage != "parser"} - self.forgiven
        assert not stray, f"dead letters of good events: {stray}"
        parked = {_value(letter) for letter in self.letters if letter.stage == "parser"}
        assert parked == self.site.parked

    def _complaint(self) -> str:
        logs = "\n".join(self.rig.log(name)[-3000:] for name in self.rig.workers)
        unparked = self.site.parked - {_value(letter) for letter in self.letters}
        return f"no outcome of {sorted(self.open_events)[:5]}; no letter of {unparked}\n{logs}"

    async def _take_receipts(self, follower: Follower) -> None:
        async for record in follower:
            if record.value is not None:
                receipt = decode(record.value, Receipt)
                self.receipts.setdefault(receipt.event_id, receipt)
                if self.forgiving and receipt.stage == "indexer" and receipt.outcome == "dead_lettered":
                    self.forgiven.add(receipt.event_id)
                self.news.set()

    async def _take_letters(self, follower: Follower) -> None:
        async for record in follower:
            if record.value is not None:
                letter = decode(record.value, DeadLetter)
                self.letters.append(letter)
                if self.forgiving and letter.stage == "indexer":
                    self.forgiven.add(letter.event_id)
                self.news.set()


def _value(letter: DeadLetter) -> bytes:
    return base64.b64decode(letter.value or "")


@asynccontextmanager
async def installation(kafka: KafkaSettings, folder: Path, prefix: str, seed: int) -> AsyncIterator[Installation]:
    """Give an installation of its own, prepared, with the site's first revisions sent and no worker running."""
    await asyncio.to_thread(folder.mkdir, parents=True, exist_ok=True)
    async with rig(kafka, folder, prefix) as made:
        own = Installation(made, Site(random.Random(seed)))
        topics = made.settings.topics
        receipts, letters = Follower(made.kafka, topics.receipts), Follower(made.kafka, topics.dead_letters)
        await receipts.start()
        await letters.start()
        tasks = [asyncio.create_task(own._take_receipts(receipts)), asyncio.create_task(own._take_letters(letters))]
        try:
            await own.send(own.site.first())
            yield own
        finally:
            for task in tasks:
                task.cancel()
            await receipts.stop()
            await letters.stop()
