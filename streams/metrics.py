"""Every metric of docdelta, named once, with the helpers that the code calls where the thing happens.

Names carry base units. Label values are closed sets: those in `CLOSED`, and names that an operator made (batches, groups, topics,
partitions); `tenant` shows at most TOP_TENANTS at a time. Never a document. Counters count what this process did since it
started: an event repeated after a crash counts again, as its receipt does. Nothing here scans anything when it is read.
"""

from __future__ import annotations

import platform
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from importlib.metadata import PackageNotFoundError, version
from typing import TYPE_CHECKING

from prometheus_client import (
    CollectorRegistry,
    Counter,
    Gauge,
    Histogram,
    ProcessCollector,
    disable_created_metrics,
    generate_latest,
)

if TYPE_CHECKING:
    from schemas.receipt import Receipt
    from streams.errors import Unavailable

disable_created_metrics()  # type: ignore[no-untyped-call]
REGISTRY = CollectorRegistry(auto_describe=True)
ProcessCollector(registry=REGISTRY)  # process_resident_memory_bytes, process_cpu_seconds_total, process_open_fds and so on

TOP_TENANTS = 10
FRESHNESS_BUCKETS = (0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60, 300, 900, 3600)
CALL_BUCKETS = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60)
LOOP_BUCKETS = (0.005, 0.025, 0.1, 0.25, 0.5, 1, 2.5, 5, 10)

STAGES = ("parser", "chunker", "indexer")
OUTCOMES = ("indexed", "unchanged", "stale", "held", "dead_lettered")
CHANGES = ("kept", "added", "updated", "removed")
SOURCES = ("computed", "borrowed", "avoided")
EVENT_LANES = ("live", "bulk")
GROUP_LANES = (*EVENT_LANES, "build")
"""Lanes of events; groups also work for builds, which nobody waits for."""
SIDES = ("kafka", "index", "embedder", "source", "other")
WRITES = ("record", "table")
HOLDS = ("breaker", "paused")
STATES = ("proposed", "building", "ready", "active", "warm", "retired")
INDEX_ACTIONS = {
    "ensure collection": "ensure_collection",
    "set alias": "set_alias",
    "read aliases": "read_aliases",
    "list collections": "list_collections",
    "drop collection": "drop_collection",
    "describe collection": "describe_collection",
    "retrieve points": "retrieve",
    "scroll points": "scroll",
    "read before delete": "read_before_delete",
    "write": "write",
    "search": "search",
    "count points": "count",
    "count digests": "digests",
    "ask for optimizers": "optimizers",
}
"""Actions as `streams.index` words them, and as they are called here."""
DRIFT_KINDS = ("missing_point", "left_over_point", "wrong_payload", "wrong_order")
INDEX_FAILURES = ("rate_limited", "disk_full", "refused", "no_answer", "server_error", "other")
WAITS = {
    "saving the manifest": "kafka",
    "marking a manifest": "kafka",
    "remembering what was seen": "kafka",
    "reading what was decided": "kafka",
    "telling what can't be hosted": "kafka",
    "saving a key once more": "kafka",
    "reading a newest event again": "kafka",
    "reading where topics end": "kafka",
    "reading documents again": "kafka",
    "reading changes again": "kafka",
    "reading what is held again": "kafka",
    "sending a held event again": "kafka",
    "keeping the order of [documents]": "kafka",
    "reading the index": "index",
    "reading points": "index",
    "listing a document": "index",
    "borrowing vectors": "index",
    "writing points": "index",
    "preparing the collection": "index",
    "reading the alias": "index",
    "pointing the alias at the first batch": "index",
    "embedding": "embedder",
    "fetching content": "source",
}
"""What an operation that waits calls itself (`Patience.hold`), and who it waits for. `publish to …` waits for kafka."""

CLOSED: Mapping[str, tuple[str, ...]] = {
    "stage": STAGES,
    "outcome": OUTCOMES,
    "change": CHANGES,
    "source": SOURCES,
    "side": SIDES,
    "lane": GROUP_LANES,
    "write": WRITES,
    "reason": HOLDS,
    "state": STATES,
    "action": (*INDEX_ACTIONS.values(), "other"),
    "failure": INDEX_FAILURES,
    "kind": DRIFT_KINDS,
}
"""Label names whose values are fixed by this file."""
NAMED_BY_OPERATORS = frozenset({"control", "batch", "group", "topic", "partition", "app", "agent", "tenant", "version", "python"})
"""Label names whose values are few because people name them."""


def _counter(name: str, words: str, *labels: str) -> Counter:
    return Counter(name, words, labels, registry=REGISTRY)


def _gauge(name: str, words: str, *labels: str) -> Gauge:
    return Gauge(name, words, labels, registry=REGISTRY)


def _histogram(name: str, words: str, buckets: tuple[float, ...], *labels: str) -> Histogram:
    return Histogram(name, words, labels, registry=REGISTRY, buckets=buckets)


# What became of documents
DOCUMENTS = _counter(
    "docdelta_documents_total", "Events that got their outcome, by the stage that settled them.", "batch", "stage", "outcome"
)
CHUNKS = _counter("docdelta_chunks_total", "Chunks of settled events, by what changed.", "batch", "change")
EMBEDDINGS = _counter(
    "docdelta_embeddings_total",
    "Embeddings of settled events: computed by the model, borrowed from the served batch, or avoided (chunks that needed none).",
    "batch",
    "source",
)
DEAD_LETTERS = _counter("docdelta_dead_letters_total", "Records parked by this worker.", "batch", "stage")
PUBLISH_TO_SEARCHABLE = _histogram(
    "docdelta_publish_to_searchable_seconds",
    "From the event's record in [documents] to its points confirmed by the index; events that changed something.",
    FRESHNESS_BUCKETS,
    "batch",
    "lane",
)
BULK_FORWARDED = _counter("docdelta_bulk_forwarded_total", "Records of [bulk] that this worker passed on to [documents].")
BULK_WAIT = _histogram(
    "docdelta_bulk_wait_seconds", "How long a record of [bulk] waited there before it was passed on.", FRESHNESS_BUCKETS
)
BULK_UNDER_WAY = _gauge("docdelta_bulk_under_way_records", "Bulk changes that were passed on and have no outcome yet.")
BULK_WINDOW = _gauge("docdelta_bulk_window_records", "Bulk changes that may be under way at once, as it stands now.")
BULK_UNHEARD = _counter(
    "docdelta_bulk_unheard_total", "Bulk changes that are through by the broker's word and whose outcome was not heard."
)
ORDER_MENDED = _counter(
    "docdelta_order_mended_total", "Newest events that the parser said again behind a late one, so that compaction keeps them."
)
ORDER_LOST = _counter(
    "docdelta_order_lost_total", "Newest events that were gone from the log before they could be said again behind a late one."
)
STAGE_SECONDS = _histogram(
    "docdelta_stage_seconds",
    "From a record's time in the stage's input topic to the end of the stage's work on it.",
    FRESHNESS_BUCKETS,
    "group",
    "stage",
)

# How far everything is, as the broker tells it (streams/lag.py)
LAG_RECORDS = _gauge(
    "docdelta_consumer_lag_records",
    "Records ahead of what a group has committed: for a handover's grace, what is done already counts.",
    "group",
    "topic",
    "partition",
    "lane",
)
LAG_SECONDS = _gauge(
    "docdelta_consumer_lag_seconds",
    "Age of the oldest record ahead of what a group has committed; 0 where none is.",
    "group",
    "topic",
    "partition",
    "lane",
)
LAG_READ = _gauge("docdelta_lag_read_timestamp_seconds", "When lag was last read from the broker, seconds since 1970.")
LAG_READ_FAILURES = _counter(
    "docdelta_lag_read_failures_total", "Readings of lag that failed; the gauges keep what was read before."
)
OLDEST_UNSYNCED = _gauge(
    "docdelta_oldest_unsynced_seconds",
    "Age of the oldest event that is not in a served batch yet, for the tenants that wait longest in a lane (at most 10).",
    "tenant",
    "lane",
)
DEAD_LETTER_RECORDS = _gauge(
    "docdelta_dead_letter_records", "Dead letters that are open: not replayed, not dropped, no later event of theirs went through."
)

# What waits for a person (streams/controls)
HELD = _gauge(
    "docdelta_held_records", "Documents with an event that is kept back, in the partitions of this worker, by reason.", "reason"
)
BREAKER_OPEN = _gauge(
    "docdelta_breaker_open_since_timestamp_seconds",
    "When a tenant's breaker tripped, seconds since 1970, while it is open (at most 10 tenants).",
    "tenant",
)
PAUSED = _gauge(
    "docdelta_paused_since_timestamp_seconds",
    "When a tenant or a stage was paused, seconds since 1970, while it is (at most 10).",
    "control",
)

# Batches
BATCH_INFO = _gauge("docdelta_batch_info", "1 for the state a batch is in.", "batch", "state")
BUILD_PROGRESS = _gauge(
    "docdelta_batch_build_progress_ratio", "Share of what stood in [parsed] at launch that a build has passed, 0 to 1.", "batch"
)
BUILD_REMAINING = _gauge(
    "docdelta_batch_build_remaining_records", "Records of [parsed] at launch that a build has not passed.", "batch"
)

# Calls to others
KAFKA_PUBLISH = _histogram(
    "docdelta_kafka_publish_seconds",
    "One try to write a record, until the broker confirmed it or the try failed.",
    CALL_BUCKETS,
    "write",
)
INDEX_REQUEST = _histogram(
    "docdelta_index_request_seconds", "One action on the index, tries that failed included.", CALL_BUCKETS, "action"
)
INDEX_FAILED = _counter("docdelta_index_failures_total", "Actions on the index that failed.", "action", "failure")
EMBEDDER_CALL = _histogram("docdelta_embedder_call_seconds", "One call of the model.", CALL_BUCKETS)
EMBEDDER_TEXTS = _counter("docdelta_embedder_texts_total", "Texts given to the model, those given again after a failure included.")
EMBEDDER_RUNNING = _gauge(
    "docdelta_embedder_running_seconds", "How long the longest call of the model under way has taken so far; 0 while none is."
)
EMBEDDER_FAILED = _counter("docdelta_embedder_failures_total", "Calls of the model that raised or answered wrongly.")
RETRIES = _counter("docdelta_retries_total", "Tries that found the other side away, each of which is followed by another.", "side")
RATE_LIMITED = _counter("docdelta_rate_limited_total", "Answers that named a time to wait (429).", "side")
WAITING = _gauge("docdelta_waiting_operations", "Operations that wait now for another side to come back.", "side")

# The worker
READY = _gauge("docdelta_app_ready", "1 while an app has its tables recovered and records flow.", "app")
NOT_READY_SECONDS = _gauge("docdelta_app_not_ready_seconds", "How long an app has not been ready; 0 while it is.", "app")
RECOVERY_REMAINING = _gauge(
    "docdelta_recovery_remaining_records", "Changelog records still to be read before an app is ready.", "app"
)
REBALANCES = _counter("docdelta_rebalances_total", "Times a group's partitions were given out anew.", "app")
REBALANCE_SECONDS = _histogram(
    "docdelta_rebalance_seconds",
    "From partitions being given up until records flow again, recovery included.",
    FRESHNESS_BUCKETS,
    "app",
)
PARTITIONS = _gauge("docdelta_assigned_partitions", "Partitions that an app owns, changelogs left out.", "app")
IN_HAND = _gauge("docdelta_records_in_hand", "Records taken and not yet acknowledged.", "app", "agent")
COMMIT_STALL = _gauge(
    "docdelta_commit_stall_seconds", "How long an app's offsets have not moved although it has records in hand; 0 otherwise.", "app"
)
COMMIT_UNCONFIRMED = _gauge(
    "docdelta_commit_unconfirmed_seconds",
    "How long an app has waited for the broker to confirm the commit under way; 0 while none is.",
    "app",
)
LOOP_LAG = _histogram("docdelta_loop_lag_seconds", "How much later than asked the event loop woke up a timer.", LOOP_BUCKETS)
INFO = _gauge("docdelta_info", "1; the release that runs.", "version", "python")

# Audit (streams/audit/watch.py)
DRIFT = _gauge(
    "docdelta_drift_points",
    "Points of the partitions owned here that are not what their manifest says, by what is wrong.",
    "batch",
    "kind",
)
AUDIT_ROUND = _gauge(
    "docdelta_audit_round_timestamp_seconds",
    "When this worker's last full round of a batch ended, or its watch began, seconds since 1970.",
    "batch",
)
AUDIT_LEFT = _gauge(
    "docdelta_audit_remaining_seconds",
    "How long what is left of this worker's round of a batch takes at the audit's rate; 0 between rounds.",
    "batch",
)
AUDIT_COMPARED = _counter("docdelta_audit_compared_points_total", "Points that the index counted for an audit.", "batch")
AUDIT_READ = _counter("docdelta_audit_read_points_total", "Points that an audit read, since their digest differed.", "batch")

# Freshness probe (streams/canary.py)
CANARY_AGE = _gauge(
    "docdelta_canary_age_seconds", "Age of the newest canary that can be read through the alias; nothing while off.", "tenant"
)
CANARY_WRITTEN = _counter("docdelta_canary_written_total", "Canary documents that this worker wrote.")


def _release() -> str:
    try:
        return version("docdelta")
    except PackageNotFoundError:
        return "unknown"


INFO.labels(_release(), platform.python_version()).set(1)
for _side in SIDES:
    WAITING.labels(_side).set(0)
    RETRIES.labels(_side)
    RATE_LIMITED.labels(_side)
for _failure in INDEX_FAILURES:
    INDEX_FAILED.labels("write", _failure)  # from 0 on, so that the first one shows as a rise


def exposition() -> str:
    """Return all metrics in the text format of Prometheus."""
    return generate_latest(REGISTRY).decode()


def settled(receipt: Receipt, lane: str = "live") -> None:
    """Count an outcome: the event, its chunks, its embeddings, its time. `lane`: by which it came."""
    batch = receipt.batch
    DOCUMENTS.labels(batch, receipt.stage, receipt.outcome).inc()
    if receipt.outcome == "indexed" and receipt.received_at is not None and receipt.settled_at is not None:
        seconds = (receipt.settled_at - receipt.received_at).total_seconds()
        PUBLISH_TO_SEARCHABLE.labels(batch, lane).observe(max(0.0, seconds))
    if receipt.stage == "parser":
        return
    for change in CHANGES:
        if count := getattr(receipt, change):
            CHUNKS.labels(batch, change).inc(count)
    needing_none = receipt.kept + receipt.updated + receipt.added - receipt.embedded - receipt.borrowed
    for source, count in (("computed", receipt.embedded), ("borrowed", receipt.borrowed), ("avoided", max(0, needing_none))):
        if count:
            EMBEDDINGS.labels(batch, source).inc(count)


def bulk_forwarded(record_timestamp: float) -> None:
    """Count a record of [bulk] that was passed on. `record_timestamp` as for `handled`."""
    BULK_FORWARDED.inc()
    if record_timestamp > 0:
        BULK_WAIT.observe(max(0.0, time.time() - record_timestamp))


def bulk_window(under_way: int, size: int) -> None:
    """Show the feeder's window."""
    BULK_UNDER_WAY.set(under_way)
    BULK_WINDOW.set(size)


def dead_lettered(batch: str, stage: str) -> None:
    """Count a parked record."""
    DEAD_LETTERS.labels(batch, stage).inc()


def handled(group: str, stage: str, record_timestamp: float | None) -> None:
    """Time a stage's work. `record_timestamp`: seconds since 1970 as the broker has it; 0 or None: not known, not counted."""
    if record_timestamp and record_timestamp > 0:
        STAGE_SECONDS.labels(group, stage).observe(max(0.0, time.time() - record_timestamp))


@contextmanager
def publishing(write: str) -> Iterator[None]:
    """Time one try to write a record (`record`) or a table's changelog (`table`)."""
    began = time.perf_counter()
    try:
        yield
    finally:
        KAFKA_PUBLISH.labels(write).observe(time.perf_counter() - began)


def _index_action(action: str) -> str:
    return INDEX_ACTIONS.get(action.partition(",")[0], "other")


@contextmanager
def index_action(action: str) -> Iterator[None]:
    """Time one action on the index. `action` as it is worded for errors."""
    began = time.perf_counter()
    try:
        yield
    finally:
        INDEX_REQUEST.labels(_index_action(action)).observe(time.perf_counter() - began)


def index_failed(action: str, status: int | None, disk_full: bool) -> None:
    """Count an action that failed. `status`: of HTTP, None for no answer."""
    kind = "other"
    if disk_full:
        kind = "disk_full"
    elif status is None or status == 408:
        kind = "no_answer"
    elif status == 429:
        kind = "rate_limited"
    elif status >= 500:
        kind = "server_error"
    elif status in (400, 401, 403, 413, 422):
        kind = "refused"
    INDEX_FAILED.labels(_index_action(action), kind).inc()


@contextmanager
def embedding(texts: int) -> Iterator[None]:
    """Time one call of the model and the check of its answer."""
    EMBEDDER_TEXTS.inc(texts)
    call, began = object(), time.perf_counter()
    _calls[call] = began
    try:
        yield
    except Exception:
        EMBEDDER_FAILED.inc()
        raise
    finally:
        del _calls[call]
        EMBEDDER_CALL.observe(time.perf_counter() - began)


_calls: dict[object, float] = {}
"""Calls of the model under way, and when they began; the oldest first."""


def _running_seconds() -> float:
    return time.perf_counter() - next(iter(_calls.values()), time.perf_counter())


EMBEDDER_RUNNING.set_function(_running_seconds)


def side_of(what: str) -> str:
    """Return who an operation waits for, by what it calls itself."""
    return "kafka" if what.startswith("publish to ") else WAITS.get(what, "other")


class Wait:
    """One operation that may have to wait: counts tries, and shows as waiting from its first failed try to its end."""

    __slots__ = ("_shown", "_side")

    def __init__(self, what: str) -> None:
        self._side = side_of(what)
        self._shown = False

    def failed(self, error: Unavailable) -> None:
        """Count a try that found the other side away."""
        RETRIES.labels(self._side).inc()
        if error.retry_after is not None:
            RATE_LIMITED.labels(self._side).inc()
        if not self._shown:
            self._shown = True
            _show_waiting(self._side, 1)

    def over(self) -> None:
        """Say that it waits no more."""
        if self._shown:
            self._shown = False
            _show_waiting(self._side, -1)


_waiting = dict.fromkeys(SIDES, 0)


def _show_waiting(side: str, more: int) -> None:
    _waiting[side] += more
    WAITING.labels(side).set(_waiting[side])


def waiting() -> dict[str, int]:
    """Return how many operations wait now, by side; sides that nobody waits for left out."""
    return {side: count for side, count in _waiting.items() if count}


def batch_states(states: Mapping[str, str]) -> None:
    """Show each batch in its state, and forget those that are gone."""
    BATCH_INFO.clear()
    for batch, state in states.items():
        BATCH_INFO.labels(batch, state).set(1)


def breakers_open(since: Mapping[str, float]) -> None:
    """Show the tenants whose breaker is open, the longest first, and forget the others."""
    _show_first(BREAKER_OPEN, since)


def paused(since: Mapping[str, float]) -> None:
    """Show what is paused (``tenant/acme``, ``stage/parser``), the longest first, and forget the rest."""
    _show_first(PAUSED, since)


def _show_first(gauge: Gauge, values: Mapping[str, float]) -> None:
    gauge.clear()
    for name, value in list(values.items())[:TOP_TENANTS]:
        gauge.labels(name).set(value)


def forget_audit(batch: str) -> None:
    """Remove what an audit of a batch showed: it is watched here no more."""
    DRIFT.remove_by_labels({"batch": batch})
    AUDIT_ROUND.remove_by_labels({"batch": batch})
    AUDIT_LEFT.remove_by_labels({"batch": batch})


def forget_app(app: str) -> None:
    """Remove the gauges of an app that is hosted here no more: it may live elsewhere."""
    for gauge in (READY, NOT_READY_SECONDS, RECOVERY_REMAINING, PARTITIONS, COMMIT_STALL, COMMIT_UNCONFIRMED):
        gauge.remove_by_labels({"app": app})
    IN_HAND.remove_by_labels({"app": app})
