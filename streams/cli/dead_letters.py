"""`docdelta dead-letters`: what was refused, and what becomes of it."""

from __future__ import annotations

import shlex
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Any

import typer

from schemas.codec import UndecodableRecord, decode
from schemas.document_change import DocumentChange
from streams.cli import options
from streams.cli.batch_commands import DryRun, Yes, confirmed, die_as_told
from streams.cli.documents_named import moment, plain
from streams.cli.exits import FAILED, OK
from streams.cli.output import note, one_line, print_json, progress_bar, say, stderr, stdout, table
from streams.errors import UsageError
from streams.repair.dead_letters import FoundLetter, drop, find_letter, list_letters, named, read_letters, replay
from streams.repair.letters import Letter, LetterState, Wanted
from streams.settings import Settings
from streams.words import counted

app = typer.Typer(
    help="""List, show, replay and drop dead letters: records that were refused, with the reason.

    Example:  docdelta dead-letters list --tenant acme

    Example:  docdelta dead-letters replay --document handbook.md
    """,
    no_args_is_help=True,
)

STATES: tuple[LetterState, ...] = ("open", "healed", "replayed", "dropped")
SHOWN_BYTES = 4_000

Names = Annotated[list[str] | None, typer.Argument(help="Letters, as list shows them (3-17).", show_default=False)]
Document = Annotated[str, typer.Option("--document", help="Only of this document id.", show_default=False)]
Stage = Annotated[str, typer.Option("--stage", help="Only of this stage: parser, chunker, indexer.", show_default=False)]
OfBatch = Annotated[str, typer.Option("--batch", help="Only of this batch.", show_default=False)]
Error = Annotated[str, typer.Option("--error", help="Only of this class of error.", show_default=False)]
Since = Annotated[str, typer.Option("--since", help="Only since: 2h, 3d, or a date.", show_default=False)]
All = Annotated[bool, typer.Option("--all", help="Every open letter that the filters leave.")]


@app.command("list")
def list_(
    context: typer.Context,
    tenant: options.Tenant = "",
    document: Document = "",
    stage: Stage = "",
    batch: OfBatch = "",
    error: Error = "",
    since: Since = "",
    state: Annotated[str, typer.Option("--state", help="open, healed, replayed, dropped or all.")] = "open",
    limit: Annotated[int, typer.Option("--limit", min=1, help="The newest so many.")] = 50,
    json: options.Json = False,
) -> int:
    """List dead letters, newest first. Open ones unless told otherwise: nobody has replayed or dropped them, and no later event of
    their document went through.

    Example:  docdelta dead-letters list --tenant acme --since 2h
    """
    settings = options.invocation(context).settings()
    wanted = _wanted(tenant, document, stage, batch, error, since, state)
    with stderr().status("reading topics"):
        found = list_letters(settings, wanted, limit)
    if json:
        print_json(
            {"letters": [letter_json(letter) for letter in found.letters], "matching": found.matching, "open": found.open}
        )  # fmt: skip
        return OK
    made = table(
        "letter", "state", "since", "document", "revision", "stage", "error", "reason", numbers=("revision",), fold=("reason",)
    )
    for letter in found.letters:
        made.add_row(*(plain(cell) for cell in _row(letter)))
    if found.letters:
        stdout().print(made)
    shown = f"{len(found.letters)} of {found.matching} shown" if found.matching > len(found.letters) else f"{found.matching} found"
    note(f"{shown}; open in all: {found.open}")
    return OK


@app.command()
def show(
    context: typer.Context,
    letter: Annotated[str, typer.Argument(help="A letter, as list shows it (3-17).", show_default=False)],
    value: Annotated[bool, typer.Option("--value", help="Show the beginning of what was refused, too.")] = False,
    save: Annotated[
        Path | None, typer.Option("--save", help="Write the refused record's bytes to this file.", show_default=False)
    ] = None,
    json: options.Json = False,
) -> int:
    """Show one letter: what was refused, where, why, and what is left to do. Not the text of the document, unless --value asks.

    Example:  docdelta dead-letters show 3-17
    """
    settings = options.invocation(context).settings()
    found = find_letter(settings, letter)
    if save is not None:
        if found.value is None:
            raise UsageError(f"letter {found.letter.id} holds no bytes: {_no_bytes(found)}")
        save.write_bytes(found.value)
        note(f"{len(found.value):,} bytes written to {save}")
    if json:
        print_json(found_json(found, value))
        return OK
    for name, text in _told(found):
        say(f"{name:<10} {plain(text)}")
    if value:
        say(f"{'value':<10} {preview(found.value) if found.value is not None else _no_bytes(found)}")
    return OK


@app.command("replay")
def replay_(
    context: typer.Context,
    names: Names = None,
    tenant: options.Tenant = "",
    document: Document = "",
    stage: Stage = "",
    batch: OfBatch = "",
    error: Error = "",
    since: Since = "",
    all_: All = False,
    limit: Annotated[int, typer.Option("--limit", min=1, help="At most so many, the newest.")] = 10_000,
    dry_run: DryRun = False,
    yes: Yes = False,
    json: options.Json = False,
) -> int:
    """Send what was refused through the front door again, once its cause is mended. Till then the last good version serves.

    Safe to repeat: a letter that was replayed, or whose document has gone through since, is left alone, and a document never goes
    back to an older revision. Exit code 1: one of them can't be replayed; what to do stands beside it.

    Example:  docdelta dead-letters replay 3-17

    Example:  docdelta dead-letters replay --tenant acme --error PoisonRecord --since 1d --yes
    """
    die_as_told()
    settings = options.invocation(context).settings_to_send()
    chosen = _chosen(settings, names, _wanted(tenant, document, stage, batch, error, since, "open"), all_, limit)
    if not dry_run and not confirmed(f"replay {len(chosen)} dead letters?", yes or len(names or ()) == 1 or not chosen):
        note(f"nothing is replayed of {counted(len(chosen), 'letter')}; say --yes to do it")
        return FAILED
    done = 0
    with progress_bar("replaying", len(chosen)) as bar:

        def advance(count: int) -> None:
            nonlocal done
            bar.advance(count - done)
            done = count

        told = replay(settings, chosen, dry_run, advance)
    refused = sum(each.outcome == "refused" for each in told)
    counts = {outcome: sum(each.outcome == outcome for each in told) for outcome in ("sent", "closed", "stale", "refused")}
    if json:
        rows = [{**letter_json(each.letter), "outcome": each.outcome, "said": each.reason} for each in told]
        print_json({"dry_run": dry_run, **counts, "letters": rows})
    else:
        for each in told:
            word = "would be sent" if dry_run and each.outcome == "sent" else each.outcome
            say(f"{each.letter.id} {plain(_name(each.letter))}: {word}: {plain(each.reason)}")
        if not told:
            say("no open letter: nothing to replay")
    note(", ".join(f"{count} {outcome}" for outcome, count in counts.items() if count) or "nothing to do")
    return FAILED if refused else OK


@app.command("drop")
def drop_(
    context: typer.Context,
    names: Names = None,
    tenant: options.Tenant = "",
    document: Document = "",
    stage: Stage = "",
    batch: OfBatch = "",
    error: Error = "",
    since: Since = "",
    all_: All = False,
    limit: Annotated[int, typer.Option("--limit", min=1, help="At most so many, the newest.")] = 10_000,
    reason: Annotated[str, typer.Option("--reason", help="Why: one line that stays beside it.", show_default=False)] = "",
    dry_run: DryRun = False,
    yes: Yes = False,
    json: options.Json = False,
) -> int:
    """Close letters for good without sending anything: they no longer count as open. Their records stay on the broker.

    Of a document that was never searchable, docdelta audit says from then on that the index lacks it: docdelta delete ends it.

    Example:  docdelta dead-letters drop 3-17 --reason "test traffic"
    """
    settings = options.invocation(context).settings()
    chosen = _chosen(settings, names, _wanted(tenant, document, stage, batch, error, since, "open"), all_, limit)
    if not dry_run and chosen and not confirmed(f"drop {len(chosen)} dead letters?", yes):
        note(f"nothing is dropped of {counted(len(chosen), 'letter')}; say --yes to do it")
        return FAILED
    dropped = drop(settings, chosen, plain(reason)[:300], dry_run)
    if json:
        print_json({"dry_run": dry_run, "dropped": [letter.id for letter in dropped]})
    else:
        for letter in dropped:
            say(f"{letter.id} {plain(_name(letter))}: {'would be dropped' if dry_run else 'dropped'}")
    note(f"{len(dropped)} {'would be dropped' if dry_run else 'dropped'}, {len(chosen) - len(dropped)} were closed before")
    return OK


def letter_json(letter: Letter) -> dict[str, Any]:
    """Return a letter as commands print it with --json."""
    entry, document = letter.entry, letter.document
    return {
        "letter": letter.id,
        "state": letter.state,
        "closed_at": letter.closing.at.isoformat() if letter.closing else None,
        "note": letter.closing.note if letter.closing else "",
        "tenant_id": document[0] if document else "",
        "document_id": document[1] if document else "",
        "revision": entry.revision,
        "event_id": entry.event_id,
        "stage": entry.stage,
        "batch": entry.batch,
        "error": entry.error,
        "reason": entry.reason,
        "source": {"topic": entry.topic, "partition": entry.partition, "offset": entry.offset},
        "bytes": entry.size,
        "failed_at": entry.failed_at.isoformat(),
    }


def found_json(found: FoundLetter, with_value: bool) -> dict[str, Any]:
    """Return one letter as `show --json` prints it."""
    return {
        **letter_json(found.letter),
        "attempts": found.record.attempts,
        "facts": found.record.facts,
        "key": None if found.key is None else preview(found.key, 600),
        "headers": sorted(found.record.headers),
        "newest_revision": None if found.newest is None else found.newest.revision,
        **({"value": None if found.value is None else preview(found.value)} if with_value else {}),
    }


def preview(data: bytes, limit: int = SHOWN_BYTES) -> str:
    """Return the beginning of bytes as text that no terminal can take amiss: UTF-8 with control characters written out, or hex."""
    part, more = data[:limit], f" … ({len(data):,} bytes)" if len(data) > limit else ""
    try:
        data.decode("utf-8")
    except UnicodeDecodeError:
        return "hex " + part[: limit // 4].hex(" ") + (more or (f" … ({len(data):,} bytes)" if len(data) > limit // 4 else ""))
    return plain(part.decode("utf-8", "ignore")) + more


def _wanted(tenant: str, document: str, stage: str, batch: str, error: str, since: str, state: str) -> Wanted:
    if state != "all" and state not in STATES:
        raise UsageError(f"--state {state!r}: one of {', '.join(STATES)}, all")
    if stage not in ("", "parser", "chunker", "indexer"):
        raise UsageError(f"--stage {stage!r}: parser, chunker or indexer")
    states = frozenset(STATES if state == "all" else [each for each in STATES if each == state])
    return Wanted(states, tenant, document, stage, batch, error, moment(since, "--since") if since else None)


def _chosen(settings: Settings, names: Sequence[str] | None, wanted: Wanted, everything: bool, limit: int) -> list[Letter]:
    """Return the letters a command is to act on: those named, or those that the filters leave."""
    if names and (everything or wanted != Wanted()):
        raise UsageError("name letters, or use filters: not both")
    if not names and not everything and wanted == Wanted():
        raise UsageError("which letters? name them (docdelta dead-letters list), use filters, or --all")
    with stderr().status("reading topics"):
        book = read_letters(settings)
    return named(book, settings, names) if names else book.letters(wanted)[:limit]


def _name(letter: Letter) -> str:
    return "/".join(letter.document) if letter.document else "(no document)"


def _row(letter: Letter) -> list[str]:
    entry = letter.entry
    revision = "-" if entry.revision is None else str(entry.revision)
    stage = f"{entry.stage} {entry.batch}" if entry.batch else entry.stage
    when = f"{entry.failed_at:%Y-%m-%d %H:%M:%S}"
    return [letter.id, letter.state, when, one_line(_name(letter)), revision, stage, entry.error, entry.reason]


def _told(found: FoundLetter) -> list[tuple[str, str]]:
    letter, entry = found.letter, found.letter.entry
    lines = [("letter", f"{letter.id}, {letter.state}" + (f": {letter.closing.note}" if letter.closing else ""))]
    lines += [("document", f"{_name(letter)}, revision {'not known' if entry.revision is None else entry.revision}")]
    lines += [("refused by", f"{entry.stage} {entry.batch}".strip() + f" at {entry.failed_at:%Y-%m-%d %H:%M:%S}Z")]
    lines += [("reason", f"{entry.error}: {found.record.reason}")]
    lines += [(name, text) for name, text in sorted(found.record.facts.items())]
    lines += [("record", f"{entry.topic}[{entry.partition}] at {entry.offset}")]
    lines += [("key", "none" if found.key is None else preview(found.key, 600))]
    lines += [("content", _content(found))]
    if found.record.headers:
        lines += [("headers", ", ".join(sorted(found.record.headers)))]
    if found.newest is not None:
        lines += [("newest", f"{found.newest.op} revision {found.newest.revision} in [documents]")]
    if letter.state == "open":
        lines += [("next", _next(letter))]
    return lines


def _next(letter: Letter) -> str:
    from streams.repair.timeline import is_hopeless

    if not is_hopeless(letter):
        return f"mend the cause, then docdelta dead-letters replay {letter.id} (--dry-run tells whether it can be)"
    if letter.document is None:
        return f"a replay can't help, it is the bytes: docdelta dead-letters drop {letter.id}"
    tenant, document = letter.document
    more = f"docdelta why {shlex.quote(document)} --tenant {tenant}"
    return f"a replay can't help, it is the bytes: send the page again, mended ({more})"


def _content(found: FoundLetter) -> str:
    """Return what the refused record is, without its text."""
    if found.value is None:
        return _no_bytes(found)
    size = f"{len(found.value):,} bytes"
    if found.record.stage != "parser":
        return f"{size} of the stage before {found.record.stage}"
    try:
        change = decode(found.value, DocumentChange)
    except UndecodableRecord as error:
        return f"{size}, no event: {error}"
    return f"{size}: {change.op} of {change.media_type}"


def _no_bytes(found: FoundLetter) -> str:
    place = found.record.facts.get("bytes")
    return f"too large for the letter; kept at {place} while that lasts" if place else "a null value"
