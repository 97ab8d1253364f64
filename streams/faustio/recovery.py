"""Rebalance and table recovery that skip no record. Overrides private parts of faust-streaming 0.15.3 (versions.py).

What the stock code does, and which override closes it (seen in kill -9 trials: 14 of 58 restarts skipped records):

1. `on_recovery_completed` resumes the stream partitions, then seeks (awaits), then resumes flow control, which clears every
   queue: what the fetcher delivered in between is gone, and commits freeze or jump over it (issue 596). `SafeRecovery` seeks while
   the partitions are still paused, clears the still empty queues, and only then lets records in.
2. The fetcher thread gets the live set of active partitions; pausing empties it under its hands, and aiokafka takes an empty set
   for "all". `SafeConsumer._wait_next_records` hands over a copy, and fetches nothing for an empty one.
3. A recovery step that gets no answer in time ends the recovery task without a word, and the app waits for ever.
   `SafeRecovery._wait` raises instead.
4. Records that arrive while the flow is stopped make the fetcher seek back by itself. That seek can end after the next
   generation's records flow, which then come twice. `SafeConsumer` drops such records and leaves seeking to hole 1's seek.
5. Giving partitions up waits without limit for unacknowledged records, at a rebalance and at shutdown; a real broker evicts the
   member meanwhile. And acknowledged offsets are forgotten before they are committed (issue 502). `SafeConsumer` first stops
   intake, drains the runners within a limit, commits, and lets go of what is left: it comes again, to the next owner.
6. A fetch that was sent out in one generation can return in the next (within its second), with that one's first records, and they
   are dropped (hole 4) after the seek that should bring them again; and the seek does nothing where nothing is committed yet. So a
   second worker that came soon after the first lost records: for good on compacted topics, with a crash by the tripwire on others.
   `SafeRecovery._let_streams_run` waits for that fetch, then seeks, to the beginning where nothing is committed.
7. Stopping blocks the event loop until the consumer's thread is gone, and that thread cancels what is left on its own loop and
   waits for it without limit: one task that misses its cancellation, and nothing in the process runs any more, no limit of ours
   either. `_ConsumerThread.stop` waits beside the loop, and not for ever.
8. A rebalance that comes while the app stops closes the consumer beside its stop, on the wrong thread's loop and in the wrong
   order: connections and metadata first. The rebalance then waits for metadata for ever, the group is not left, and the stop never
   ends. `_ConsumerThread.close` leaves it to the stop, which closes the coordinator, then the rest, on their own loop.
9. A partition that Faust has paused is fetched all the same: each rebalance brings all changelogs into memory, from their
   beginning, whatever the local store has. `SafeConsumer` knows which changelogs recovery reads, and fetching.py fetches no others.
10. Recovery takes the rows of a changelog one by one, each in a task with a limit and past a count of all that is left: 170 µs a
   row, most of a minute for 100,000 documents. And it goes on after a row that could not be stored. `SafeRecovery.take` stores what
   one fetch brought, and an error ends the app.
"""

from __future__ import annotations

import asyncio
import time
from dataclasses import dataclass
from typing import Any

import faust.transport.drivers.aiokafka as driver
from faust.tables.manager import TableManager
from faust.tables.recovery import RebalanceAgain, Recovery, ServiceStopped
from faust.types import Message
from mode import Service
from mode.threads import WorkerThread

from streams.errors import Unavailable
from streams.faustio.fetching import fetch_promptly, fetch_what_is_read, look_again
from streams.faustio.versions import require_known_versions

require_known_versions()

RECOVERY_POLL_ROWS = 1000
"""Rows of changelogs that are taken at once: some 10 ms of the event loop."""
FULL_BUFFER_SECONDS = 0.02
"""How long one fetch may wait while partitions are held back by a full buffer: the copy it works on does not see them come back."""
THREAD_SECONDS = 2.0
"""For the consumer's thread to end, once its consumer is closed and has left the group: nothing of worth is left in it."""
COMMITS_AT_MOST = 5
"""`commit` does nothing when another commit is under way, which may have begun before the last acknowledgement: hence again."""


@dataclass(frozen=True, slots=True)
class _Row:
    """What a table wants to know of a changelog record: keys and values are bytes as they are."""

    message: Message

    @property
    def key(self) -> Any:
        return self.message.key

    @property
    def value(self) -> Any:
        return self.message.value


class SafeRecovery(Recovery):  # type: ignore[misc]
    """Recovery with holes 1, 3 and 10 mended."""

    def take(self, records: dict[Any, list[Any]]) -> dict[Any, list[Any]]:
        """Store the rows of changelogs among fetched records, by partition; return the records of streams. Ends the recovery.

        Rows that come when it has ended are dropped: the next recovery reads them, and must not find them in a buffer.
        """
        consumer = self.app.consumer
        changelogs = {tp: rows for tp, rows in records.items() if tp in self.active_tps}
        if self.in_recovery and consumer.reads_changelogs:
            for tp, rows in changelogs.items():
                self._active_events_received_at[tp] = time.monotonic()
                seen = self.active_offsets.get(tp)
                fresh = [row for row in rows if seen is None or row.offset > seen]
                if fresh:
                    self.tp_to_table[tp].apply_changelog_batch([_Row(consumer._to_message(tp, row)) for row in fresh])
                    self.active_offsets[tp] = fresh[-1].offset
                    self._last_flush_at = time.monotonic()
            if not self.need_recovery():
                self._set_recovery_ended()
                self.signal_recovery_end.set()
        return {tp: rows for tp, rows in records.items() if tp not in changelogs}

    @Service.task  # type: ignore[untyped-decorator]
    async def _slurp_changelogs(self) -> None:
        """Do nothing: `take` does it. Faust's loop also clears the signal of the end every five seconds, whoever waits for it."""

    async def _seek_offsets(self, consumer: Any, tps: set[Any], offsets: Any, title: str) -> None:
        """Seek changelogs to where reading begins, once nobody waits for rows of the last generation: those that come to it are
        dropped, as in hole 6, and a table would lack them."""
        await consumer.not_waiting_next_records.wait()
        await super()._seek_offsets(consumer, tps, offsets, title)

    async def on_recovery_completed(self, generation_id: int = 0) -> None:
        """Let the streams run, now that the tables are complete."""
        await self.app.on_rebalance_complete.send()
        self._set_recovery_ended()
        tables = [
            asyncio.ensure_future(table.on_recovery_completed(self.actives_for_table[table], self.standbys_for_table[table]))
            for table in self.tables.values()
        ]
        if tables:
            await asyncio.wait(tables)
        await self._let_streams_run(generation_id)

    async def _resume_streams(self, generation_id: int = 0) -> None:
        """The same for an app without tables."""
        await self.app.on_rebalance_complete.send()
        await self._let_streams_run(generation_id)

    async def _let_streams_run(self, generation_id: int) -> None:
        app, consumer = self.app, self.app.consumer
        if app.consumer_generation_id != generation_id:
            return  # another rebalance is on its way and ends here again
        assigned = consumer.assignment()
        patience = app.conf.broker_request_timeout
        await self._wait(consumer.not_waiting_next_records.wait(), timeout=patience)
        if assigned:
            await self._wait(consumer.perform_seek(), timeout=patience)
            await self._wait(self._begin_uncommitted(assigned), timeout=patience)
        if app.consumer_generation_id != generation_id:
            return
        self.completed.set()
        app.flow_control.resume()  # clears the queues, empty as nothing was fetched yet
        app.reopen()
        consumer.resume_partitions({tp for tp in assigned if not self._is_changelog_tp(tp)})
        consumer.resume_flow()
        await app._fetcher.maybe_start()
        self.tables.on_actives_ready()
        if not app.assignor.assigned_standbys():
            self.tables.on_standbys_ready()
        app.on_rebalance_end()
        app.announce_ready()

    async def _begin_uncommitted(self, assigned: set[Any]) -> None:
        """Seek to the beginning where nothing is committed: aiokafka's seek to what is committed leaves those where they stand."""
        consumer = self.app.consumer
        fresh = {tp for tp in assigned if not (self._is_changelog_tp(tp) or consumer._committed_offset.get(tp))}
        if fresh:
            begins = await consumer.earliest_offsets(*fresh)
            self.app.fronts = {tp: begins.get(tp) or 0 for tp in fresh}
            await consumer.seek_wait(self.app.fronts)

    async def _wait(self, coro: Any, timeout: Any = None) -> None:  # noqa: ASYNC109 - the signature is Faust's
        result = await self.wait_first(coro, self.signal_recovery_start, timeout=timeout)
        if result.stopped:
            if self.should_stop:
                raise ServiceStopped
            raise Unavailable("broker gave no answer during table recovery", seconds=timeout)
        if self.signal_recovery_start in result.done:
            raise RebalanceAgain


class SafeTableManager(TableManager):  # type: ignore[misc]
    """TableManager that recovers with SafeRecovery."""

    _recovery: SafeRecovery | None = None

    @property
    def recovery(self) -> SafeRecovery:
        """The recovery service."""
        if self._recovery is None:
            self._recovery = SafeRecovery(self.app, self, beacon=self.beacon, loop=self.loop)
        return self._recovery


class _DaemonThread(WorkerThread):  # type: ignore[misc]
    """The consumer's thread, as a daemon: one that hangs on a dead broker must not keep the process from ending."""

    def __init__(self, service: Any, **options: Any) -> None:
        super().__init__(service, **options)
        self.daemon = True


class _ConsumerThread(driver.AIOKafkaConsumerThread):  # type: ignore[misc]
    """The consumer's thread, with holes 7 and 8 mended and the app's own wait of a fetch: Faust's 1.5 s is hard-coded."""

    def _create_worker_consumer(self, transport: Any) -> Any:
        consumer = super()._create_worker_consumer(transport)
        consumer._fetch_max_wait_ms = int(self.app.fetch_wait_seconds * 1000)  # read when the consumer starts
        return consumer

    async def on_start(self) -> None:
        """Start the consumer in this thread, with a fetcher that lets no records wait (fetching.py)."""
        await super().on_start()
        fetch_what_is_read(self._consumer._fetcher, self.consumer.is_read)
        fetch_promptly(self._consumer._fetcher)

    def read_what_has_come_up(self) -> None:
        """Fetch at once what `SafeConsumer.is_read` says now. From any thread."""
        if self._consumer is not None:
            self.thread_loop.call_soon_threadsafe(look_again, self._consumer._fetcher)

    async def _fetch_records(self, consumer: Any, active: Any, timeout: Any = None, max_records: Any = None) -> Any:  # noqa: ASYNC109
        """Take what is in hand: of streams few records, so that none starves another; of changelogs many."""
        most = RECOVERY_POLL_ROWS if self.consumer.reads_changelogs else max_records
        return await super()._fetch_records(consumer, active, timeout=timeout, max_records=most)

    def verify_event_path(self, now: float, tp: Any) -> None:
        """Log where nothing is fetched, as Faust does, but not of what nobody reads."""
        if self.consumer.is_read(tp):
            super().verify_event_path(now, tp)

    async def _keepalive2(self) -> None:
        """Wake the app's loop, as Faust does. It also logs an error where that loop was 3 s late, as if this thread had died."""
        while not self.should_stop:
            await self.sleep(1.1)
            await self._wakeup_timer_in_thread()

    def close(self) -> None:
        """Do nothing: only asked of an app that stops already, and its stop closes the consumer."""

    async def stop(self) -> None:
        """Stop the service in its thread, then wait for the thread, a bounded time and without holding up this loop."""
        if not self._started.is_set():
            return
        await Service.stop(self)
        loop = asyncio.get_running_loop()
        until = loop.time() + THREAD_SECONDS
        while self._thread is not None and self._thread.is_alive():
            if loop.time() > until:
                self.log.warning("consumer's thread does not end: left behind, it has given up its partitions")
                return
            await asyncio.sleep(0.01)


class SafeConsumer(driver.Consumer):  # type: ignore[misc]
    """Consumer with holes 2, 4, 5 and 9 mended."""

    def __init__(self, *args: Any, **options: Any) -> None:
        self._changelogs_read: frozenset[Any] = frozenset()
        """Partitions of changelogs that recovery reads now. Replaced, not changed: the consumer's thread looks at it."""
        super().__init__(*args, **options)

    @property
    def reads_changelogs(self) -> bool:
        """Return whether recovery reads now. Streams stand still meanwhile."""
        return bool(self._changelogs_read)

    def is_read(self, tp: Any) -> bool:
        """Return whether anybody takes the records of a partition. Of streams somebody always does, sooner or later."""
        return tp in self._changelogs_read or not self._is_changelog_tp(tp)

    def pause_partitions(self, tps: Any) -> None:
        """Take no records of these from now on."""
        super().pause_partitions(tps)
        self._changelogs_read -= set(tps)

    def resume_partitions(self, tps: Any) -> None:
        """Take records of these again."""
        super().resume_partitions(tps)
        changelogs = {tp for tp in tps if self._is_changelog_tp(tp)}
        if changelogs:
            self.app.tables.recovery.signal_recovery_end.clear()  # may still be set from the last recovery
            self._changelogs_read |= changelogs
            self._thread.read_what_has_come_up()

    def _new_consumer_thread(self) -> Any:
        return _ConsumerThread(self, loop=self.loop, beacon=self.beacon, Worker=_DaemonThread)

    async def _wait_next_records(self, timeout: float) -> Any:  # noqa: ASYNC109 - the signature is Faust's
        if not self.flow_active:
            await self.wait(self.can_resume_flow)
        self.not_waiting_next_records.clear()
        try:
            active = set(self._get_active_partitions())
            if self._buffered_partitions:
                timeout = min(timeout, FULL_BUFFER_SECONDS)
            if not active:
                await self.sleep(FULL_BUFFER_SECONDS)
                return {}, active
            generation = self.app.consumer_generation_id
            records = await self._getmany(active_partitions=active, timeout=timeout)
            if not self.flow_active or self.app.consumer_generation_id != generation:
                return None, active  # of a generation that has ended: the next one seeks for itself
            return self.app.tables.recovery.take(records), active
        finally:
            self.not_waiting_next_records.set()

    def _filter_tps_with_pending_acks(self, topics: Any = None) -> Any:
        """Leave out what a handover holds back (handover.py): acknowledged, and committed once it is re-checked."""
        held = self.app.handover.held if self.app.handover is not None else ()
        return (tp for tp in super()._filter_tps_with_pending_acks(topics) if tp.partition not in held)

    async def _commit_offsets(self, offsets: Any, start_new_transaction: bool = True) -> Any:
        """Commit, and let it be seen for how long: the stock code tries again for ever while the coordinator refuses."""
        self.app.committing_since = time.monotonic()
        try:
            return await super()._commit_offsets(offsets, start_new_transaction)
        finally:
            self.app.committing_since = None

    async def on_partitions_revoked(self, revoked: set[Any]) -> None:
        """Finish and commit before the stock code forgets what was acknowledged."""
        if revoked and not self.app.should_stop:
            try:
                self.stop_flow()
                self.app.flow_control.suspend()
                self.pause_partitions(self.assignment())
                self.app.flow_control.clear()
                await self.wait_empty()
            except Exception as error:  # noqa: BLE001 - the caller is aiokafka's coordinator, which would swallow it
                await self.app.crash(error)
        await super().on_partitions_revoked(revoked)

    async def wait_empty(self) -> None:
        """Drain the runners within the app's limit, commit what is acknowledged, let go of the rest."""
        await self.app.drain()
        self._clean_unacked_messages()
        left = len(self._unacked_messages)
        if left:
            self.log.info("%d records are left unacknowledged and will come again", left)
            self._unacked_messages.clear()
        for _ in range(COMMITS_AT_MOST):
            if self.app.crashed or not any(self._acked.values()):
                break  # a crashed consumer thread answers no more
            await self.commit_and_end_transactions()
