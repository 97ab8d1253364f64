"""`docdelta gc`: forget what was settled long ago."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Annotated

import typer

from streams.cli import options
from streams.cli.batch_commands import DryRun, Yes, confirmed, die_as_told
from streams.cli.documents_named import duration
from streams.cli.exits import FAILED, OK
from streams.cli.output import note, print_json, say, stderr
from streams.repair.gc import forget
from streams.words import counted


def gc(
    context: typer.Context,
    older_than: Annotated[str, typer.Option("--older-than", help="How long ago it must have been settled: 90d, 720h.")] = "90d",
    dry_run: DryRun = False,
    yes: Yes = False,
    json: options.Json = False,
) -> int:
    """Forget closed dead letters, bytes and all, and the events of old deletes, which compaction then drops.

    What keeps a deleted document away stays: late events of it are stale as before. Safe to stop and to run again.

    Example:  docdelta gc --older-than 90d --dry-run
    """
    die_as_told()
    settings = options.invocation(context).settings()
    since = datetime.now(UTC) - duration(older_than, "--older-than")
    if not dry_run and not confirmed(f"forget what was settled before {since:%Y-%m-%d %H:%M}Z, for good?", yes):
        note("nothing is forgotten; say --yes to do it, --dry-run to count")
        return FAILED
    with stderr().status("reading topics"):
        done = forget(settings, since, dry_run)
    if json:
        print_json(
            {
                "dry_run": dry_run,
                "letters": done.letters,
                "letter_records": done.letter_records,
                "deletes": done.deletes,
                "deletes_waiting": done.deletes_waiting,
                "mended": done.mended,
                "notes": done.notes,
            }
        )
    else:
        verb = "would be forgotten" if dry_run else "forgotten"
        letters = f"{counted(done.letters, 'dead letter')} ({counted(done.letter_records, 'record')})"
        say(f"{letters} and {counted(done.deletes, 'delete')} {verb}")
        if done.deletes_waiting:
            say(f"{done.deletes_waiting:,} old deletes stay for now: the parser has not passed them (docdelta status)")
    for each in done.notes:
        note(each)
    return OK
