"""One run of `docdelta dev`: broker, index, model and worker, and a folder that is kept in sync. See `streams/cli/dev.py`."""

from __future__ import annotations

import asyncio
import contextlib
import signal
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

from watchfiles import awatch

from streams.cli.change_table import ChangeTable
from streams.cli.exits import FAILED, OK
from streams.cli.output import note
from streams.cli.policies import NamedPolicy
from streams.connectors.directory import DirectoryConnector
from streams.connectors.sender import KafkaSender
from streams.embedded.dev_file import dev_file_for, remove_dev_file, write_dev_file
from streams.embedded.stack import BrokerKind, EmbeddedStack, ReceiptBook
from streams.errors import NotReachable, UsageError
from streams.settings import Settings
from streams.words import counted

TICK_SECONDS = 0.5
"""How often it is looked whether the folder is still the one that is watched."""
CONSENT = "stop this with Ctrl-C and run the same docdelta dev again with --force"
"""How it is said here that the loss of most of a folder is meant: no other command shares what dev has sent."""


class DevSession:
    """One run of `docdelta dev`."""

    def __init__(
        self,
        settings: Settings,
        connector: DirectoryConnector,
        policy: NamedPolicy,
        data: Path,
        kind: BrokerKind,
        force: bool = False,
    ) -> None:
        """`force`: what is gone at the start is ended, however much it is. Later losses are held back all the same."""
        self._connector = connector
        self._force = force
        self._data = data
        self._stack = EmbeddedStack(data, policy.policy, policy.text, settings, kind)
        self._stop = asyncio.Event()
        self._table = ChangeTable()

    async def run(self) -> int:
        """Return the exit code after Ctrl-C, SIGTERM, or the worker's end."""
        loop = asyncio.get_running_loop()
        for number in (signal.SIGINT, signal.SIGTERM):
            loop.add_signal_handler(number, self._end)
        note("starting broker, model and worker ...")
        async with self._stack as stack, ReceiptBook(stack, self._table.add) as book, dashboard_of(stack) as page:
            sender = await asyncio.to_thread(KafkaSender, stack.settings.kafka)
            own = self._connector
            metrics = await stack.worker.metrics_url()
            write_dev_file(
                dev_file_for(
                    stack.settings, qdrant_url=stack.server.url, tenant=own.tenant, folder=own.root, metrics_url=metrics
                )
            )
            try:
                # The broker's memory began empty, so everything is said again; what the index holds already costs nothing.
                await book.of(await self._sync(sender, everything=True), self._stop)
                if not self._stop.is_set():
                    await stack.serve_this_batch()
                    note(f"{self._table.totals()}. Watching {self._connector.root} - Ctrl-C stops. Index: {stack.server.url}")
                    note(f"Dashboard: {page}")
                    await self._watch(sender)
            finally:
                remove_dev_file()
            failure = stack.worker.failure
        note(self._table.totals())
        if failure is not None:
            note(f"stopped: {failure}")
        return FAILED if failure is not None else OK

    def _end(self) -> None:
        """Say once that the wish was heard: what is under way, a start included, ends first."""
        if not self._stop.is_set():
            note("stopping ...")
            self._stop.set()

    async def _watch(self, sender: KafkaSender) -> None:
        gone = asyncio.create_task(self._stack.worker.wait())
        gone.add_done_callback(lambda _: self._stop.set())
        try:
            while not self._stop.is_set():
                self._check_broker()
                await self._watch_this_folder(sender)
                with contextlib.suppress(TimeoutError):
                    await asyncio.wait_for(self._stop.wait(), TICK_SECONDS)
        finally:
            gone.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await gone

    async def _watch_this_folder(self, sender: KafkaSender) -> None:
        """Sync at every change until the folder is moved away or replaced: the system watches a folder, not a name."""
        root = self._connector.root
        here = _identity(root)
        if here is None:
            return
        ticks = awatch(
            root, stop_event=self._stop, debounce=200, step=50, rust_timeout=int(TICK_SECONDS * 1000), yield_on_timeout=True
        )
        await self._sync(sender)  # what changed while nobody watched
        async for changes in ticks:
            self._check_broker()
            if changes:
                await self._sync(sender)
            moved = any(Path(path) in (root, root.absolute()) for _, path in changes)
            if moved or _identity(root) != here:
                return

    def _check_broker(self) -> None:
        """Raise NotReachable when the broker has ended: nothing would bring it back, and the index lasts without it."""
        try:
            self._stack.check_broker()
        except NotReachable as error:
            note("stopping: the broker has ended ...")
            raise NotReachable(f"{error}\nthe index is kept: run docdelta dev again, which sends the folder again") from error

    async def _sync(self, sender: KafkaSender, everything: bool = False) -> list[str]:
        """Send what changed; return the ids of the events sent."""
        try:
            force = everything and self._force
            plan = await asyncio.to_thread(
                lambda: self._connector.plan(everything=everything, delete=True, force=force, consent=CONSENT)
            )
        except UsageError as error:
            if everything:
                raise  # nothing runs yet that would be lost
            note(f"nothing sent: {error}")  # such as a site.yaml half written: the next save is looked at again
            return []
        for refusal in plan.refused:
            note(f"not sent: {refusal.document_id}: {refusal.reason}")
        if plan.held:
            note(f"{counted(len(plan.held), 'delete')} held back: {plan.held_reason}")
        report = await asyncio.to_thread(self._connector.execute, plan, sender)
        for refusal in report.failed:
            note(f"not sent: {refusal.document_id}: {refusal.reason}")
        return [change.event_id for change in report.confirmed]


@asynccontextmanager
async def dashboard_of(stack: EmbeddedStack) -> AsyncIterator[str]:
    """Serve the operations page of an embedded stack, and give its address. It reads nothing until somebody looks.

    A port that is taken is replaced by a free one. UsageError for a token that could be guessed.
    """
    from streams.board.scrape import this_process
    from streams.board.server import make_board

    own = stack.settings.dashboard
    board = make_board(stack.settings, stack.index, this_process, own.host, own.token.get_secret_value())
    try:
        await board.start(own.host, own.port)
    except NotReachable:
        await board.start(own.host, 0)
    try:
        yield board.url
    finally:
        await board.stop()


def _identity(folder: Path) -> tuple[int, int] | None:
    """Return what tells a folder from another of the same name, or None where there is none."""
    try:
        found = folder.stat()
    except OSError:
        return None
    return found.st_dev, found.st_ino
