"""`docdelta init`: the first batch."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Annotated

import typer

from streams.batches.ledger import clerk_of, read_ledger
from streams.batches.record import batch_record, plan_init
from streams.cli import options
from streams.cli.exits import OK
from streams.cli.output import note, say
from streams.cli.policies import read_policy
from streams.settings import Settings
from streams.topics import batch_topics, shared_topics


def init(
    context: typer.Context,
    policy: Annotated[
        str, typer.Option("--policy", "-p", help="A policy file, or the name of one in deploy/policies.", show_default=False)
    ],
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Only say what would be done.")] = False,
) -> int:
    """Prepare an installation: create the topics and name the first batch, which workers then build and serve. Safe to run again.

    A later policy is rolled out beside the first, not initialised. Refuses, with the difference, when the policy's name and version
    already stand for other content.

    Example:  docdelta init --policy default && docdelta worker
    """
    settings = options.invocation(context).settings()
    chosen = read_policy(policy)
    wanted = batch_record(chosen.policy, chosen.text, "active", settings.qdrant.alias, datetime.now(UTC))
    ledger = read_ledger(settings)
    plan = plan_init(wanted, ledger.in_order())
    wanted = plan.record or wanted
    if dry_run:
        say(plan.reason)
        return OK
    # ① topics ② the record, which workers act on. A crash between the two leaves empty topics; running again goes on.
    for name in _create_topics(settings, wanted.batch):
        say(f"created {name}")
    if plan.record is not None:
        clerk_of(settings, lambda: datetime.now(UTC)).claim(ledger, plan.record)
    note(plan.reason)
    note(f"collection {wanted.collection}, alias {wanted.alias}, model {wanted.embedding.model}; next: docdelta worker")
    return OK


def _create_topics(settings: Settings, batch: str) -> list[str]:
    """Create what is missing and return the names. Raises NotPrepared naming each topic that differs."""
    from streams.kafka.admin import apply_topics

    partitions = settings.kafka.partitions
    needed = [*shared_topics(settings.topics, partitions), *batch_topics(settings.topics, batch, partitions)]
    return [topic.name for topic in apply_topics(settings.kafka, needed).create]
