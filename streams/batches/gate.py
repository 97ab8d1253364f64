"""The gate: what must hold before readers are moved to a batch. Each line says what was found, and what to do about it.

Pure: `judge` turns evidence into lines. The evidence is gathered in gather.py.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from schemas.batch import BatchRecord
from streams.batches.evidence import Agreement
from streams.kafka.offsets import PartitionLag
from streams.ports import CollectionSpec, Readiness
from streams.words import counted

_NAMED = 5
_WHOLE = ("launch offsets", "documents", "count", "ids and payloads")
"""Lines that say whether the index held all of the build when it was asked."""


@dataclass(frozen=True, slots=True)
class Limits:
    """How much is enough. max_lag in records; tolerance as a share of recall@k that may be lost."""

    max_lag: int = 100
    recall_tolerance: float = 0.02


@dataclass(frozen=True, slots=True)
class Recall:
    """Share of golden questions answered within the first k hits."""

    k: int
    green: float
    blue: float
    questions: int


@dataclass(frozen=True, slots=True)
class Evidence:
    """All that the gate looks at, of one moment."""

    batch: BatchRecord
    offsets: tuple[PartitionLag, ...]
    """Where the batch stands in [parsed] and [changes.<batch>]: at the first record without an outcome, commits or not."""
    parsed_topic: str
    agreement: Agreement
    unknown: tuple[str, ...]
    """Live documents of the served batch that this batch's manifests do not know."""
    refused: Mapping[str, str]
    held: Mapping[str, str]
    stray_letters: tuple[str, ...]
    readiness: Readiness
    spec: CollectionSpec | None
    wanted_spec: CollectionSpec
    probes: int
    missed_probes: tuple[str, ...]
    recall: Recall | None = None
    behind_before: int = 0
    """Records without a commit before manifests and index were compared: `offsets` is read after that."""
    uncommitted: int = 0
    """Records that are done and not committed yet."""


@dataclass(frozen=True, slots=True)
class Line:
    """One condition. `waits`: it may come true by itself, so a rollout goes on waiting."""

    name: str
    passed: bool
    figure: str
    advice: str = ""
    waits: bool = False

    def __str__(self) -> str:
        return f"{'ok  ' if self.passed else 'FAIL'} {self.name}: {self.figure}" + ("" if self.passed else f"; {self.advice}")


@dataclass(frozen=True, slots=True)
class Verdict:
    """All conditions, in the order they are printed."""

    batch: str
    lines: tuple[Line, ...] = field(default_factory=tuple)

    @property
    def passed(self) -> bool:
        """True when every condition holds."""
        return all(line.passed for line in self.lines)

    @property
    def may_pass(self) -> bool:
        """True when all that fails may come true by itself."""
        return all(line.passed or line.waits for line in self.lines)

    def __str__(self) -> str:
        return "\n".join(map(str, self.lines))


def judge(evidence: Evidence, limits: Limits) -> Verdict:
    """Return what the gate says."""
    lines = [
        _launch(evidence),
        _lag(evidence, limits),
        _coverage(evidence),
        *_documents(evidence),
        _index(evidence),
        _metadata(evidence),
        _probes(evidence),
    ]
    if evidence.recall is not None:
        whole = all(line.passed for line in lines if line.name in _WHOLE)
        lines.append(_recall(evidence.recall, limits, whole))
    return Verdict(evidence.batch.batch, tuple(lines))


def _launch(evidence: Evidence) -> Line:
    launch = evidence.batch.launch
    ends = launch.parsed if launch is not None else {}
    behind = {
        each.partition: ends[each.partition] - max(each.begin, each.committed or 0)
        for each in evidence.offsets
        if each.topic == evidence.parsed_topic and each.partition in ends
    }
    left = sum(max(0, records) for records in behind.values())
    total = sum(ends.values())
    return Line(
        "launch offsets",
        left == 0,
        f"{total - left:,} of {total:,} offsets that stood at launch are past" if launch else "no launch was noted",
        f"{left:,} are to come: wait, or give the build more workers (docdelta worker --only batch:{evidence.batch.batch})",
        waits=True,
    )


def _lag(evidence: Evidence, limits: Limits) -> Line:
    lag = sum(each.lag for each in evidence.offsets)
    held = (
        f"; {evidence.uncommitted:,} more are done and not committed yet: after a restart or takeover workers hold commits back"
        if evidence.uncommitted
        else ""
    )
    figure = f"{counted(lag, 'record')}, limit {limits.max_lag:,}{held}"
    return Line("lag", lag <= limits.max_lag, figure, "wait, or add workers", waits=True)


def _coverage(evidence: Evidence) -> Line:
    known = evidence.agreement.documents
    return Line(
        "documents",
        not evidence.unknown,
        f"{known:,} live documents, {len(evidence.unknown):,} of the served batch unknown here",
        f"unknown: {_some(evidence.unknown)}; wait, or look with docdelta why",
        waits=True,
    )


def _documents(evidence: Evidence) -> Iterable[Line]:
    agreement = evidence.agreement
    moving = f", {agreement.in_flight} were on their way, {agreement.edited} are being edited" if agreement.in_flight else ""
    yield Line(
        "count",
        agreement.counts_agree,
        f"{counted(agreement.points, 'point')} (exact) against {counted(agreement.chunks, 'chunk')} in the manifests{moving}",
        f"docdelta audit --batch {evidence.batch.batch} --repair mends what differs; else retire the batch and build anew",
        waits=True,
    )
    yield Line(
        "ids and payloads",
        not agreement.wrong,
        f"{counted(len(agreement.wrong), 'document differs from its manifest', 'documents differ from their manifests')}",
        f"differ: {_some(agreement.wrong)}; docdelta audit --batch {evidence.batch.batch} --repair mends them",
        waits=agreement.moved or evidence.behind_before > 0 or any(each.lag for each in evidence.offsets),
    )
    yield Line(
        "refused",
        not evidence.refused and not evidence.stray_letters and not agreement.suspect,
        f"{counted(len(evidence.refused), 'document')} and {counted(len(evidence.stray_letters), 'record')} "
        "are dead letters of this batch, "
        f"{counted(len(agreement.suspect), 'document')} in doubt",
        _some([f"{document} ({why})" for document, why in evidence.refused.items()] or evidence.stray_letters or agreement.suspect)
        + "; mend what the reason names, then docdelta reindex TENANT/DOCUMENT",
    )
    yield Line(
        "held",
        not evidence.held,
        f"{counted(len(evidence.held), 'document is', 'documents are')} held",
        f"held: {_some(evidence.held)}; release or reject them (docdelta breaker list, docdelta resume)",
    )


def _index(evidence: Evidence) -> Line:
    advice = "wait: queries can miss points meanwhile"
    return Line("index at rest", evidence.readiness.idle, evidence.readiness.said, advice, waits=True)


def _metadata(evidence: Evidence) -> Line:
    found, wanted = evidence.spec, evidence.wanted_spec
    if found is None:
        return Line("metadata", False, "collection does not exist", "is a worker running? it makes the collection", waits=True)
    differences = [
        f"{name} is {getattr(found, name)!r}, must be {getattr(wanted, name)!r}"
        for name in wanted.__dataclass_fields__
        if getattr(found, name) != getattr(wanted, name)
    ]
    figure = "; ".join(differences) or f"policy {wanted.policy_fingerprint[:8]}, {wanted.dimensions} dimensions, {wanted.distance}"
    return Line("metadata", not differences, figure, f"this collection is not this batch's: retire {evidence.batch.batch}")


def _probes(evidence: Evidence) -> Line:
    missed = evidence.missed_probes
    return Line(
        "read-back probes",
        not missed,
        f"{evidence.probes - len(missed)} of {counted(evidence.probes, 'chunk')} found by their own vectors",
        f"not found: {_some(missed)}; if it stays so, the index must be looked at",
        waits=True,
    )


def _recall(recall: Recall, limits: Limits, whole: bool) -> Line:
    """Return whether recall is kept. It was asked of the points there were: of a build that is not `whole` yet it says nothing."""
    least = recall.blue - limits.recall_tolerance
    return Line(
        f"recall@{recall.k}",
        recall.green >= least - 1e-9,
        f"{recall.green:.3f} against {recall.blue:.3f} of the served batch, tolerance {limits.recall_tolerance}, "
        f"{recall.questions} golden questions",
        "look with docdelta evaluate which questions got worse; change the policy as a new version"
        if whole
        else "measured while not all of the build was there: it counts when the lines above hold",
        waits=not whole,
    )


def _some(names: Iterable[str]) -> str:
    listed = list(names)
    more = f" and {len(listed) - _NAMED:,} more" if len(listed) > _NAMED else ""
    return ", ".join(listed[:_NAMED]) + more
