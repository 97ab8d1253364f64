"""SafeApp: a Faust app with the overrides of this folder, its settings, its raw topics and tables."""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import faust

from streams.errors import InvariantBroken, UsageError
from streams.faustio.handover import Handover
from streams.faustio.recovery import SafeConsumer, SafeTableManager
from streams.faustio.runner import Runner
from streams.faustio.table import AckedTable
from streams.settings import PRODUCE_TIMEOUT_SECONDS, KafkaSettings, Settings
from streams.topics import MAX_EVENT_BYTES, MAX_RECORD_BYTES

REQUEST_TIMEOUT_SECONDS = 90.0
FETCH_WAIT_SECONDS = 0.5
TANSU_FETCH_WAIT_SECONDS = 0.05
"""Tansu holds a fetch for the whole wait even when a record comes meanwhile; Apache Kafka answers at once."""
COMMIT_SECONDS = 1.0
"""A killed worker repeats at most so much work."""
POLL_RECORDS = 12
BUFFER_RECORDS = 64
"""At most a fifth of the buffer is polled at once: else one slow agent starves the others."""


class SafeApp(faust.App):  # type: ignore[misc]
    """A Faust app = a consumer group. Made with `make_app`, run with `lifecycle.start_app` and `stop_app`; not restarted."""

    def __init__(self, *args: Any, **options: Any) -> None:
        super().__init__(*args, **options)
        self.runners: list[Runner] = []
        self.handover: Handover | None = None
        """Set by `Handover` itself, where the app has one."""
        self.leaving = asyncio.Event()
        """Set while partitions are given up, at a rebalance and at shutdown, and time is short. A handler that waits out an outage
        watches it and raises Stopping. Cleared when the next generation begins."""
        self.ready = asyncio.Event()
        """Set while tables are recovered and records flow."""
        self.gone = asyncio.Event()
        """Set once the app has crashed or was stopped."""
        self.fronts: dict[Any, int] = {}
        """Partition to its first offset, where it began with nothing committed."""
        self.stopping = False
        self.committing_since: float | None = None
        """When the commit under way began, by the monotonic clock; None while none is."""
        self.fetch_wait_seconds = FETCH_WAIT_SECONDS
        """How long the broker may hold a fetch that finds nothing new."""
        self.drain_seconds = 8.0
        """How long handlers may go on when partitions are given up, before they are cancelled."""

    async def drain(self) -> None:
        """Begin no more records and end those in work: half of `drain_seconds` to finish, half to notice `leaving`, then cancelled.

        Ends within `drain_seconds` + CANCEL_SECONDS. A crashed app cancels at once.
        """
        self.ready.clear()
        patience = 0.0 if self.crashed else self.drain_seconds / 2
        for part in self._parts:
            part.close()
        await self._for_each_part(lambda part: part.finish(patience))
        self.leaving.set()
        await self._for_each_part(lambda part: part.finish(patience))
        if self.handover is not None:
            self.handover.left_behind(sum(runner.in_flight for runner in self.runners))
        await self._for_each_part(lambda part: part.cancel())

    @property
    def _parts(self) -> list[Runner | Handover]:
        return [*self.runners, *([self.handover] if self.handover is not None else [])]

    async def _for_each_part(self, act: Callable[[Runner | Handover], Awaitable[None]]) -> None:
        await asyncio.gather(*(act(part) for part in self._parts))

    def reopen(self) -> None:
        """Let the runners take the records of the new generation."""
        if self.stopping or self.should_stop:
            return
        self.leaving.clear()
        if self.handover is not None:
            self.handover.reopen()  # prepares first
            return
        for runner in self.runners:
            runner.reopen()

    def announce_ready(self) -> None:
        """Say that tables are recovered and records flow."""
        if not (self.stopping or self.should_stop):
            self.ready.set()


def make_app(app_id: str, settings: Settings, datadir: Path) -> SafeApp:
    """Return an app for the consumer group `app_id`. `datadir`: a folder of this app alone, on a volume that lasts (RocksDB).

    Topics are expected to exist (`docdelta topics apply`); nothing is created here.
    """
    kafka, worker = settings.kafka, settings.worker
    if kafka.heartbeat_seconds >= kafka.session_timeout_seconds:
        raise UsageError("setting kafka.heartbeat_seconds must be below kafka.session_timeout_seconds; a third is usual")
    app = SafeApp(
        app_id,
        version=1,
        broker=[f"kafka://{host.strip()}" for host in kafka.bootstrap_servers.split(",") if host.strip()],
        broker_credentials=credentials(kafka),
        broker_client_id=app_id,
        store="rocksdb://" if worker.state == "rocksdb" else "memory://",
        datadir=str(datadir),
        processing_guarantee="at_least_once",
        autodiscover=False,
        TableManager=SafeTableManager,
        Table=AckedTable,
        topic_partitions=kafka.partitions,
        topic_replication_factor=kafka.replication_factor,
        topic_allow_declare=False,
        topic_disable_leader=True,
        table_standby_replicas=0,
        consumer_auto_offset_reset="earliest",
        consumer_max_fetch_size=MAX_EVENT_BYTES,
        stream_wait_empty=True,
        stream_buffer_maxsize=BUFFER_RECORDS,
        broker_max_poll_records=POLL_RECORDS,
        broker_commit_interval=COMMIT_SECONDS,
        broker_session_timeout=kafka.session_timeout_seconds,
        broker_heartbeat_interval=kafka.heartbeat_seconds,
        broker_request_timeout=max(REQUEST_TIMEOUT_SECONDS, kafka.session_timeout_seconds),
        broker_rebalance_timeout=kafka.rebalance_timeout_seconds,
        broker_max_poll_interval=7 * 86_400,  # a member that evicts itself never comes back
        producer_acks=-1,
        producer_request_timeout=PRODUCE_TIMEOUT_SECONDS,
        producer_max_request_size=MAX_RECORD_BYTES,
        web_enabled=False,
        # Waiting for company pays off where a batch may hold several records.
        **({"producer_max_batch_size": 1, "producer_linger": 0} if kafka.single_record_batches else {"producer_linger": 0.005}),
    )
    app.drain_seconds = min(worker.drain_seconds, kafka.rebalance_timeout_seconds / 3)
    if kafka.single_record_batches:
        app.fetch_wait_seconds = TANSU_FETCH_WAIT_SECONDS
    app.transport.Consumer = SafeConsumer
    return app


def raw_topic(app: SafeApp, name: str, partitions: int) -> Any:
    """Return a topic of bytes to bytes for `Runner.attach`. The handler decodes: Faust drops what it can't decode."""
    return app.topic(
        name, key_type=bytes, value_type=bytes, key_serializer="raw", value_serializer="raw", partitions=partitions, internal=False
    )


def raw_table(app: SafeApp, name: str, partitions: int, changelog: str) -> AckedTable:
    """Return a table of bytes to bytes. `changelog` is `TopicNames.changelog(app_id, name)`; InvariantBroken when Faust differs."""
    options = {"driver": "rocksdict"} if app.conf.store.scheme == "rocksdb" else None
    table: AckedTable = app.Table(name, key_type=bytes, value_type=bytes, partitions=partitions, options=options)
    if table.changelog_topic_name != changelog:
        raise InvariantBroken("Faust names the changelog otherwise", faust=table.changelog_topic_name, expected=changelog)
    return table


def credentials(kafka: KafkaSettings) -> Any:
    """Return Faust's credentials for the settings; None for PLAINTEXT. UsageError for a certificate that can't be read."""
    if kafka.security_protocol == "PLAINTEXT":
        return None
    context = ssl_context(kafka) if kafka.security_protocol in ("SSL", "SASL_SSL") else None
    if kafka.security_protocol == "SSL":
        return faust.SSLCredentials(context=context)
    return faust.SASLCredentials(
        username=kafka.sasl_username,
        password=kafka.sasl_password.get_secret_value(),
        ssl_context=context,
        mechanism=kafka.sasl_mechanism,
    )


def ssl_context(kafka: KafkaSettings) -> ssl.SSLContext:
    """Return the TLS context of the settings: system authorities or `ssl_ca_file`, and a client certificate where one is named."""
    try:
        context = ssl.create_default_context(cafile=str(kafka.ssl_ca_file) if kafka.ssl_ca_file else None)
        if kafka.ssl_certificate_file is not None:
            context.load_cert_chain(str(kafka.ssl_certificate_file), str(kafka.ssl_key_file) if kafka.ssl_key_file else None)
    except OSError as error:  # ssl.SSLError is one
        raise UsageError(f"settings kafka.ssl_…: certificate or key can't be read: {error}") from error
    return context
