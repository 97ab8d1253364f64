"""`docdelta topics`: create and check the topics that an installation needs."""

from __future__ import annotations

from typing import Any

import typer

from schemas.batch import LIVE_STATES
from streams.cli import options
from streams.cli.exits import FAILED, OK
from streams.cli.output import note, print_json, say, stdout, table
from streams.settings import Settings
from streams.topics import Topic, batch_topics, shared_topics

HELP = """Create and check topics: partitions, compaction, size limits. What exists is never changed.

Example:  docdelta topics describe
"""

app = typer.Typer(help=HELP, no_args_is_help=False)


@app.command()
def apply(context: typer.Context) -> int:
    """Create the topics that are missing. Refuses, by name, when one that exists is not as it must be. Safe to run again.

    Example:  DOCDELTA_KAFKA__PARTITIONS=16 DOCDELTA_KAFKA__REPLICATION_FACTOR=3 docdelta topics apply
    """
    from streams.kafka.admin import apply_topics

    settings = options.invocation(context).settings()
    plan = apply_topics(settings.kafka, wanted_topics(settings))
    for topic in plan.create:
        say(f"created {topic.name}")
    note(f"{len(plan.create)} created, {len(plan.unchanged)} already there")
    return OK


@app.command()
def describe(context: typer.Context, json: options.Json = False) -> int:
    """Show every topic as it must be and as it is. Exit code 1 when one is missing or differs.

    Example:  docdelta topics describe --json | jq '.[] | select(.state != "ok")'
    """
    from streams.kafka.admin import TopicState, describe_topics
    from streams.kafka.client import make_admin

    settings = options.invocation(context).settings()
    wanted = wanted_topics(settings)
    found: dict[str, TopicState] = describe_topics(make_admin(settings.kafka), [topic.name for topic in wanted])
    rows = [_row(topic, found) for topic in wanted]
    if json:
        print_json(rows)
    else:
        lines = table("topic", "state", "partitions", "settings", numbers=("partitions",), fold=("settings",))
        for row in rows:
            config = ", ".join(f"{name}={value}" for name, value in row["config"].items())
            lines.add_row(row["topic"], row["state"], str(row["partitions"]), config)
        stdout().print(lines)
        for row in rows:
            for difference in row["differences"]:
                note(difference)
    return OK if all(row["state"] == "ok" for row in rows) else FAILED


def wanted_topics(settings: Settings) -> list[Topic]:
    """Return every topic the installation needs: the shared ones and those of each live batch."""
    from streams.reading.batches import read_batches

    topics, partitions = settings.topics, settings.kafka.partitions
    wanted = shared_topics(topics, partitions)
    for batch in read_batches(settings):
        if batch.state in LIVE_STATES:
            wanted += batch_topics(topics, batch.batch, partitions)
    return wanted


def _row(topic: Topic, found: Any) -> dict[str, Any]:
    from streams.kafka.admin import plan_topics

    state = found.get(topic.name)
    differences = [str(difference) for difference in plan_topics(found, [topic]).differences]
    return {
        "topic": topic.name,
        "state": "missing" if state is None else "differs" if differences else "ok",
        "partitions": topic.partitions if state is None else state.partitions,
        "config": dict(topic.config if state is None else state.config),
        "differences": differences,
    }
