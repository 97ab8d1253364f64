"""`docdelta audit`: does the index hold what the manifests say, do the manifests know what the log says, and the source."""

from __future__ import annotations

import asyncio
import time
from collections import defaultdict
from dataclasses import replace
from pathlib import Path
from typing import Annotated

import typer

from schemas.batch import BatchRecord
from streams import telemetry
from streams.audit.documents import compare_inventory, read_inventory
from streams.audit.findings import EXAMPLES, MEANING, Finding, Report, in_order
from streams.audit.repair import RepairPlan, plan_repair, repair
from streams.audit.run import Audit, Sample
from streams.audit.sources import Sources
from streams.audit.walk import Walk
from streams.batches.record import collection_spec, policy_of
from streams.batches.site import Site
from streams.cli import options
from streams.cli.batch_commands import acting_site
from streams.cli.exits import DRIFT, OK
from streams.cli.output import note, print_json, progress_bar, say, stdout, table
from streams.errors import NotPrepared
from streams.repair.reindex import run_name
from streams.words import counted


def audit(
    context: typer.Context,
    mend: Annotated[bool, typer.Option("--repair", help="Mend what is found: documents are sent again.")] = False,
    sample: Annotated[int, typer.Option("--sample", help="Read so many points in full and make their vectors anew.", min=0)] = 0,
    batch: Annotated[str, typer.Option("--batch", help="Batch id. Default: the served one.", show_default=False)] = "",
    tenant: Annotated[str, typer.Option("--tenant", "-t", help="Report on one tenant only.", show_default=False)] = "",
    inventory: Annotated[
        Path | None,
        typer.Option("--inventory", help="JSONL or CSV of tenant, document, revision, as the source has them.", show_default=False),
    ] = None,
    json: options.Json = False,
) -> int:
    """Hold the index against the manifests, the manifests against the log, and if given the log against a source's inventory.

    Reads counts of digests, and points only where those differ. What is on its way is not judged. A payload changed by hand and a
    wrong vector show in a --sample only. Exit code 6: something was found.

    Example:  docdelta audit --sample 200

    Example:  docdelta audit --repair; docdelta audit
    """
    return asyncio.run(_audit(context, mend, sample, batch, tenant, inventory, json))


async def _audit(
    context: typer.Context, mend: bool, points: int, name: str, tenant: str, inventory: Path | None, json: bool
) -> int:
    listed = read_inventory(inventory) if inventory is not None else []
    async with acting_site(context) as site:
        ledger = await site.ledger()
        batch = site.batch(ledger, name) if name else ledger.served(site.alias)
        if batch is None:
            raise NotPrepared("no batch is served; name one with --batch (docdelta batches lists them)")
        sources = Sources(site.settings, batch)
        await asyncio.to_thread(sources.refresh_manifests)
        walk = Walk(site.index, batch.collection, sources.partitions)
        wanted = await asyncio.to_thread(_sample, site, batch, points) if points else None
        with progress_bar("comparing documents", len(sources.manifests)) as bar:
            report = await Audit(sources, walk, batch.batch, tenant, on_progress=bar.advance).run(wanted)
        if inventory is not None:
            report = replace(report, findings=in_order([*report.findings, *compare_inventory(listed, sources.newest, tenant)]))
        plan: RepairPlan | None = None
        if mend and report.findings:
            manifests = {key: found for key in sources.manifests if (found := sources.manifest(key)) is not None}
            plan = plan_repair(report.findings, sources.newest, manifests)
            telemetry.begin(site.settings.otel.endpoint, "docdelta-cli")
            await repair(plan, site.settings, site.index, batch.collection, run_name(time.time()))
    _tell(report, plan, json)
    return OK if report.clean else DRIFT


def _sample(site: Site, batch: BatchRecord, points: int) -> Sample:
    from streams.embedders import open_embedder

    policy = policy_of(batch)
    embedder = open_embedder(site.settings.embedder, policy.embedding)
    return Sample(points, policy, embedder, collection_spec(batch, policy).distance)


def _tell(report: Report, plan: RepairPlan | None, json: bool) -> None:
    if json:
        repaired = None
        if plan is not None:
            left = [{**finding.as_json(), "action": action} for finding, action in plan.left]
            repaired = {"sent_again": len(plan.reindex), "deleted": len(plan.delete), "left": left}
        print_json({**report.as_json(), "repair": repaired})
        return
    sizes = (counted(report.documents, "document"), counted(report.chunks, "chunk"), counted(report.points, "point"))
    say(f"batch {report.batch}: {', '.join(sizes)}")
    if report.findings:
        stdout().print(_found(report.findings))
    share = f"{100 * report.reads.points / report.points:.1f} %" if report.points else "0 %"
    counts = counted(report.reads.facets, "request")
    say(f"points read: {report.reads.points:,} of {report.points:,} ({share}), digests counted in {counts}")
    if report.unmarked:
        unmarked = counted(report.unmarked, "point carries no marks and was", "points carry no marks and were")
        say(f"{unmarked} read in full: a batch built by this release has them")
    if report.sampled or report.unsampled:
        more = f"; of {report.unsampled:,} more the text can't be told" if report.unsampled else ""
        say(f"sample: {report.sampled:,} vectors made anew and compared{more}")
    for count, words in (
        (report.in_flight, "with an event on its way, not judged"),
        (report.refused, "other than the log since an event was refused: docdelta dead-letters list"),
        (report.held, "waiting for a decision: docdelta breaker list"),
        (report.rejected, "kept though the newest event is a delete, by docdelta breaker reject"),
    ):
        if count:
            say(f"{counted(count, 'document')} {words}")
    if plan is not None:
        say(f"repair: {plan}")
        for finding, action in plan.left[:EXAMPLES]:
            note(f"left: {finding.kind} {finding.place}: {action}")
        say("once the workers are done: docdelta audit")
    elif report.clean:
        say("no drift")
    else:
        actions = dict.fromkeys(MEANING[finding.kind][1] for finding in report.findings)
        say(f"to mend it: {'; '.join(actions)}")


def _found(findings: tuple[Finding, ...]) -> object:
    by_kind: dict[str, list[Finding]] = defaultdict(list)
    for finding in findings:
        by_kind[finding.kind].append(finding)
    rows = table("kind", "found", "what", "examples", numbers=("found",), fold=("what", "examples"))
    for kind, found in by_kind.items():
        examples = "; ".join(f"{each.place} ({each.said})" for each in found[:EXAMPLES])
        more = f"; and {len(found) - EXAMPLES:,} more" if len(found) > EXAMPLES else ""
        rows.add_row(kind, f"{len(found):,}", MEANING[found[0].kind][0], examples + more)
    return rows
