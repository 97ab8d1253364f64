"""The Grafana dashboards as code: `python deploy/grafana/generate.py` writes them, `--check` says whether they are as written.

Every metric has a panel here, or stands in NO_PANEL with the reason. Figures that every worker reads from the broker (lag, batches,
dead letters) are joined with `max`, so that ten workers show one truth.
"""

from __future__ import annotations

import json
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

HERE = Path(__file__).parent
DATASOURCE = {"type": "prometheus", "uid": "${datasource}"}

NO_PANEL = {
    "process_virtual_memory_bytes": "says nothing on 64 bits; resident memory has a panel",
    "process_max_fds": "a limit of the machine; open files have a panel",
}
"""Metrics without a panel, and why."""


@dataclass(frozen=True)
class Panel:
    """One panel. `queries`: (PromQL, legend). `unit`: Grafana's name. kind: timeseries or stat. width: of 24."""

    title: str
    queries: tuple[tuple[str, str], ...]
    unit: str = "short"
    kind: str = "timeseries"
    width: int = 12
    about: str = ""


@dataclass(frozen=True)
class Dashboard:
    """One dashboard. per_worker: with a choice of the worker, `$instance`."""

    file: str
    uid: str
    title: str
    panels: tuple[Panel, ...]
    per_worker: bool = False


def quantiles(metric: str, by: str, selector: str = "") -> tuple[tuple[str, str], ...]:
    """Return p50 and p99 of a histogram, a line for each value of the labels `by`."""
    inner = f"sum by (le, {by}) (rate({metric}_bucket{selector}[$__rate_interval]))"
    legend = " ".join(f"{{{{{label.strip()}}}}}" for label in by.split(","))
    return tuple((f"histogram_quantile({q}, {inner})", f"{legend} p{name}") for q, name in ((0.5, 50), (0.99, 99)))


def rate(metric: str, by: str, selector: str = "") -> tuple[str, str]:
    """Return a counter's rise a second, a line for each value of the labels `by`."""
    legend = " ".join(f"{{{{{label.strip()}}}}}" for label in by.split(","))
    return f"sum by ({by}) (rate({metric}{selector}[$__rate_interval]))", legend


OVERVIEW = Dashboard(
    "overview.json",
    "docdelta-overview",
    "docdelta: overview",
    (
        Panel("Canary age", (("min(docdelta_canary_age_seconds)", "age"),), "s", "stat", 4, "End to end, as a reader sees it."),
        Panel(
            "Oldest event not searchable",
            (('max(docdelta_oldest_unsynced_seconds{lane="live"}) or vector(0)', "age"),),
            "s",
            "stat",
            4,
            "Without what waits in the bulk lane.",
        ),
        Panel("Dead letters open", (("max(docdelta_dead_letter_records)", "records"),), kind="stat", width=4),
        Panel("Apps not ready", (("count(docdelta_app_ready == 0) or vector(0)", "apps"),), kind="stat", width=4),
        Panel("Waiting for another side", (("sum(docdelta_waiting_operations)", "operations"),), kind="stat", width=4),
        Panel("Workers", (("count(docdelta_info)", "workers"),), kind="stat", width=4),
        Panel("Outcomes", (rate("docdelta_documents_total", "outcome"),), "ops"),
        Panel("Publish to searchable", quantiles("docdelta_publish_to_searchable_seconds", "batch"), "s"),
        Panel("Chunks by change", (rate("docdelta_chunks_total", "change"),), "ops"),
        Panel(
            "Embeddings: computed, borrowed, avoided",
            (rate("docdelta_embeddings_total", "source"),),
            "ops",
            about="Avoided: chunks that a rebuild of the page would have embedded.",
        ),
        Panel("Tries that found another side away", (rate("docdelta_retries_total", "side"),), "ops"),
        Panel("Told to wait (429)", (rate("docdelta_rate_limited_total", "side"),), "ops"),
        Panel("Waiting now, by side", (("sum by (side) (docdelta_waiting_operations)", "{{side}}"),)),
        Panel("Dead letters, by stage", (rate("docdelta_dead_letters_total", "stage"),), "ops"),
        Panel(
            "Events that wait for a person",
            (("sum by (reason) (docdelta_held_records)", "{{reason}}"),),
            about="Held by a breaker, or parked by a pause.",
        ),
        Panel(
            "Breakers open, pauses, for how long",
            (
                ("time() - min by (tenant) (docdelta_breaker_open_since_timestamp_seconds) or vector(0)", "breaker of {{tenant}}"),
                ("time() - min by (control) (docdelta_paused_since_timestamp_seconds) or vector(0)", "pause of {{control}}"),
            ),
            "s",
        ),
    ),
)

LAG = Dashboard(
    "lag-and-freshness.json",
    "docdelta-lag",
    "docdelta: lag and freshness",
    (
        Panel(
            "Lag of each group",
            (("sum by (group) (max by (group, topic, partition) (docdelta_consumer_lag_records))", "{{group}}"),),
        ),
        Panel("Age of the oldest event ahead", (("max by (group) (docdelta_consumer_lag_seconds)", "{{group}}"),), "s"),
        Panel(
            "Partitions furthest behind",
            (("topk(10, max by (group, topic, partition) (docdelta_consumer_lag_records))", "{{group}} {{topic}} {{partition}}"),),
        ),
        Panel(
            "Tenants that wait longest",
            (("max by (tenant, lane) (docdelta_oldest_unsynced_seconds)", "{{tenant}} {{lane}}"),),
            "s",
        ),
        Panel("Publish to searchable, by lane", quantiles("docdelta_publish_to_searchable_seconds", "batch, lane"), "s"),
        Panel("Bulk changes passed on", (rate("docdelta_bulk_forwarded_total", "instance"),), "ops"),
        Panel("Wait in the bulk lane", quantiles("docdelta_bulk_wait_seconds", "instance"), "s"),
        Panel(
            "Bulk changes under way, and how many may be",
            (
                ("sum(docdelta_bulk_under_way_records)", "under way"),
                ("sum(docdelta_bulk_window_records)", "window"),
            ),
            about="The window grows while live edits find the way free, and shrinks when they would queue.",
        ),
        Panel("Bulk changes whose outcome was not heard", (rate("docdelta_bulk_unheard_total", "instance"),), "ops"),
        Panel(
            "Newest events said again behind late ones",
            (
                ("sum(increase(docdelta_order_mended_total[5m]))", "in 5 minutes"),
                ("sum(increase(docdelta_order_lost_total[5m]))", "gone from the log before"),
            ),
            about="A late event stands last in [documents], and compaction would keep that. What was gone must be sent again.",
        ),
        Panel("From a stage's input to the end of its work", quantiles("docdelta_stage_seconds", "stage"), "s"),
        Panel("Canary age", (("min by (tenant) (docdelta_canary_age_seconds)", "{{tenant}}"),), "s"),
        Panel("Canaries written", (("sum(increase(docdelta_canary_written_total[5m]))", "in 5 minutes"),)),
        Panel("Since lag was last read", (("time() - max(docdelta_lag_read_timestamp_seconds)", "seconds"),), "s"),
        Panel("Readings of lag that failed", (rate("docdelta_lag_read_failures_total", "instance"),), "ops"),
    ),
)

BATCHES = Dashboard(
    "batches.json",
    "docdelta-batches",
    "docdelta: batches",
    (
        Panel("Batches and their state", (("max by (batch, state) (docdelta_batch_info)", "{{batch}} {{state}}"),)),
        Panel("Build progress", (("max by (batch) (docdelta_batch_build_progress_ratio)", "{{batch}}"),), "percentunit"),
        Panel("Records a build has not passed", (("max by (batch) (docdelta_batch_build_remaining_records)", "{{batch}}"),)),
        Panel("Outcomes of each batch", (rate("docdelta_documents_total", "batch, outcome"),), "ops"),
        Panel("Embeddings of each batch", (rate("docdelta_embeddings_total", "batch, source"),), "ops"),
        Panel("Chunks of each batch", (rate("docdelta_chunks_total", "batch, change"),), "ops"),
        Panel(
            "Drift: points that are not what their manifest says",
            (("sum by (batch, kind) (docdelta_drift_points)", "{{batch}} {{kind}}"),),
            about="Over all workers. docdelta audit names them.",
        ),
        Panel(
            "Since the last full round of the audit",
            (("time() - min by (batch) (docdelta_audit_round_timestamp_seconds)", "{{batch}}"),),
            "s",
            about="Of the worker that is furthest behind.",
        ),
        Panel(
            "Left of the audit's round",
            (("max by (batch) (docdelta_audit_remaining_seconds)", "{{batch}}"),),
            "s",
            about="At the audit's rate, of the worker that has most. Missing and left-over points show within a minute whatever "
            "the size; points written otherwise show when the round comes by.",
        ),
        Panel(
            "Audit: points compared and read",
            (
                ("sum by (batch) (rate(docdelta_audit_compared_points_total[$__rate_interval]))", "{{batch}} compared"),
                ("sum by (batch) (rate(docdelta_audit_read_points_total[$__rate_interval]))", "{{batch}} read"),
            ),
            "ops",
        ),
        Panel("Apps that are ready", (("sum by (app) (docdelta_app_ready)", "{{app}}"),)),
        Panel("Partitions owned, over all workers", (("sum by (app) (docdelta_assigned_partitions)", "{{app}}"),)),
    ),
)

ONE = '{instance=~"$instance"}'
WORKER = Dashboard(
    "worker.json",
    "docdelta-worker",
    "docdelta: a worker",
    (
        Panel("Release", ((f"docdelta_info{ONE}", "{{instance}} {{version}} Python {{python}}"),), kind="stat"),
        Panel("Apps ready", ((f"docdelta_app_ready{ONE}", "{{instance}} {{app}}"),)),
        Panel("Not ready since", ((f"docdelta_app_not_ready_seconds{ONE}", "{{instance}} {{app}}"),), "s"),
        Panel("Recovery: changelog records to read", ((f"docdelta_recovery_remaining_records{ONE}", "{{instance}} {{app}}"),)),
        Panel("Offsets have not moved for", ((f"docdelta_commit_stall_seconds{ONE}", "{{instance}} {{app}}"),), "s"),
        Panel("Commit not confirmed for", ((f"docdelta_commit_unconfirmed_seconds{ONE}", "{{instance}} {{app}}"),), "s"),
        Panel("Records in hand", ((f"docdelta_records_in_hand{ONE}", "{{instance}} {{app}} {{agent}}"),)),
        Panel("Partitions owned", ((f"docdelta_assigned_partitions{ONE}", "{{instance}} {{app}}"),)),
        Panel("Rebalances", ((f"increase(docdelta_rebalances_total{ONE}[10m])", "{{instance}} {{app}} in 10 minutes"),)),
        Panel("A rebalance takes", quantiles("docdelta_rebalance_seconds", "app", ONE), "s"),
        Panel("Event loop wakes up late by", quantiles("docdelta_loop_lag_seconds", "instance", ONE), "s"),
        Panel("Kafka: a write takes", quantiles("docdelta_kafka_publish_seconds", "write", ONE), "s"),
        Panel("Index: an action takes", quantiles("docdelta_index_request_seconds", "action", ONE), "s"),
        Panel("Index: failures", (rate("docdelta_index_failures_total", "action, failure", ONE),), "ops"),
        Panel("Embedder: a call takes", quantiles("docdelta_embedder_call_seconds", "instance", ONE), "s"),
        Panel("Embedder: a call is under way for", ((f"docdelta_embedder_running_seconds{ONE}", "{{instance}}"),), "s"),
        Panel("Embedder: texts", (rate("docdelta_embedder_texts_total", "instance", ONE),), "ops"),
        Panel("Embedder: failures", (rate("docdelta_embedder_failures_total", "instance", ONE),), "ops"),
        Panel("Memory", ((f"process_resident_memory_bytes{ONE}", "{{instance}}"),), "bytes"),
        Panel("Processor", (rate("process_cpu_seconds_total", "instance", ONE),), "percentunit"),
        Panel("Open files", ((f"process_open_fds{ONE}", "{{instance}}"),)),
        Panel("Up for", ((f"time() - process_start_time_seconds{ONE}", "{{instance}}"),), "s"),
    ),
    per_worker=True,
)

DASHBOARDS = (OVERVIEW, LAG, BATCHES, WORKER)


def as_json(dashboard: Dashboard) -> str:
    """Return a dashboard as Grafana imports it."""
    panels, x, y = [], 0, 0
    for number, panel in enumerate(dashboard.panels, start=1):
        height = 4 if panel.kind == "stat" else 8
        if x + panel.width > 24:
            x, y = 0, y + height
        panels.append(_panel(panel, number, {"x": x, "y": y, "w": panel.width, "h": height}))
        x += panel.width
        if x >= 24:
            x, y = 0, y + height
    whole = {
        "uid": dashboard.uid,
        "title": dashboard.title,
        "tags": ["docdelta"],
        "schemaVersion": 39,
        "version": 1,
        "editable": True,
        "refresh": "15s",
        "time": {"from": "now-1h", "to": "now"},
        "timezone": "browser",
        "templating": {"list": _variables(dashboard)},
        "links": [{"type": "dashboards", "tags": ["docdelta"], "title": "docdelta", "asDropdown": True, "keepTime": True}],
        "panels": panels,
    }
    return json.dumps(whole, indent=1, ensure_ascii=False) + "\n"


def _panel(panel: Panel, number: int, place: dict[str, int]) -> dict[str, Any]:
    options: dict[str, Any] = (
        {"reduceOptions": {"calcs": ["lastNotNull"]}} if panel.kind == "stat" else {"legend": {"displayMode": "list"}}
    )
    return {
        "id": number,
        "type": panel.kind,
        "title": panel.title,
        "description": panel.about,
        "gridPos": place,
        "datasource": DATASOURCE,
        "fieldConfig": {"defaults": {"unit": panel.unit, "min": 0}, "overrides": []},
        "options": options,
        "targets": [
            {"refId": chr(65 + place), "expr": expression, "legendFormat": legend, "datasource": DATASOURCE}
            for place, (expression, legend) in enumerate(panel.queries)
        ],
    }


def _variables(dashboard: Dashboard) -> list[dict[str, Any]]:
    variables: list[dict[str, Any]] = [{"name": "datasource", "type": "datasource", "query": "prometheus", "label": "Source"}]
    if dashboard.per_worker:
        variables.append(
            {
                "name": "instance",
                "label": "Worker",
                "type": "query",
                "datasource": DATASOURCE,
                "query": "label_values(docdelta_info, instance)",
                "refresh": 2,
                "multi": True,
                "includeAll": True,
                "allValue": ".*",
                "current": {"text": "All", "value": "$__all"},
            }
        )
    return variables


def main(arguments: list[str]) -> int:
    """Write the files, or with --check compare. Returns the exit code."""
    differing = []
    for dashboard in DASHBOARDS:
        file, text = HERE / dashboard.file, as_json(dashboard)
        if not file.exists() or file.read_text(encoding="utf-8") != text:
            differing.append(dashboard.file)
            if "--check" not in arguments:
                file.write_text(text, encoding="utf-8")
    if "--check" in arguments and differing:
        print(f"{', '.join(differing)}: not as deploy/grafana/generate.py makes it; run it", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
