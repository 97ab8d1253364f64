"""What a worker's `/metrics` says that neither broker nor index can tell: who it waits for, what stands, what is slow.

Pure: `read_worker` turns the text into facts; rates come from comparing with an earlier reading.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from prometheus_client.parser import text_string_to_metric_families

SERIES = frozenset(
    {
        "docdelta_waiting_operations",
        "docdelta_commit_stall_seconds",
        "docdelta_commit_unconfirmed_seconds",
        "docdelta_app_not_ready_seconds",
        "docdelta_recovery_remaining_records",
        "docdelta_embedder_call_seconds_sum",
        "docdelta_embedder_call_seconds_count",
        "docdelta_embedder_running_seconds",
        "docdelta_embedder_failures_total",
        "docdelta_index_failures_total",
        "docdelta_canary_age_seconds",
        "docdelta_drift_points",
        "docdelta_audit_round_timestamp_seconds",
        "docdelta_audit_remaining_seconds",
    }
)
"""What is kept of a scrape."""
Labels = tuple[tuple[str, str], ...]


@dataclass(frozen=True, slots=True)
class WorkerFacts:
    """One worker at one time. `problem`: why it could not be asked."""

    name: str
    at: float
    problem: str = ""
    samples: Mapping[tuple[str, Labels], float] = field(default_factory=dict)

    def by(self, series: str, label: str) -> dict[str, float]:
        """Return the sum of a series' samples, by the value of one label."""
        found: dict[str, float] = {}
        for (name, labels), value in self.samples.items():
            if name == series:
                key = dict(labels).get(label, "")
                found[key] = found.get(key, 0.0) + value
        return found

    def total(self, series: str, **wanted: str) -> float:
        """Return the sum of a series' samples that have these labels."""
        return sum(
            value for (name, labels), value in self.samples.items() if name == series and wanted.items() <= dict(labels).items()
        )


def read_worker(name: str, text: str, at: float) -> WorkerFacts:
    """Return the facts of one scrape. A text that is no Prometheus format gives a problem."""
    samples: dict[tuple[str, Labels], float] = {}
    try:
        for family in text_string_to_metric_families(text):
            for sample in family.samples:
                if sample.name in SERIES:
                    samples[sample.name, tuple(sorted(sample.labels.items()))] = sample.value
    except ValueError as error:
        return WorkerFacts(name, at, f"answers no metrics: {error}")
    return WorkerFacts(name, at, "", samples)


def seconds_a_call(before: WorkerFacts | None, now: WorkerFacts) -> float | None:
    """Return how long a call of the model took on average since `before`, or how long one under way has taken where that is longer;
    None where none ended and none is under way."""
    sums, counts = "docdelta_embedder_call_seconds_sum", "docdelta_embedder_call_seconds_count"
    calls = now.total(counts) - (before.total(counts) if before else 0.0)
    seconds = now.total(sums) - (before.total(sums) if before else 0.0)
    ended = seconds / calls if calls > 0 and seconds >= 0 else 0.0
    return max(ended, now.total("docdelta_embedder_running_seconds")) or None


def risen(before: WorkerFacts | None, now: WorkerFacts, series: str, **labels: str) -> float:
    """Return by how much a counter rose since `before`; 0 where there is no earlier reading or the worker began anew."""
    return max(0.0, now.total(series, **labels) - before.total(series, **labels)) if before is not None else 0.0


@dataclass(frozen=True, slots=True)
class AuditPass:
    """How far the continuous audit of a batch is, over the workers that were asked."""

    since: float
    """When the last full round ended of the worker that is furthest behind (or its watch began), seconds since 1970."""
    left: float
    """Seconds that the rest of a round under way takes at the audit's rate; 0 between rounds."""


def audit_pass(workers: Iterable[WorkerFacts], batch: str) -> AuditPass | None:
    """Return how far the audit of a batch is; None where no worker that was asked audits it."""
    asked = list(workers)
    rounds = [at for each in asked if (at := each.by("docdelta_audit_round_timestamp_seconds", "batch").get(batch))]
    left = [each.by("docdelta_audit_remaining_seconds", "batch").get(batch, 0.0) for each in asked]
    return AuditPass(min(rounds), max(left)) if rounds else None
