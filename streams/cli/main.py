"""The `docdelta` command: puts the commands together, and turns expected errors into one line and an exit code."""

from __future__ import annotations

import errno
import os
import sys
from collections.abc import Sequence
from importlib import import_module, metadata
from pathlib import Path
from typing import Annotated, Any

import typer

from streams.cli.exits import FAILED, INTERRUPTED, OK, epilog, exit_code_of
from streams.cli.options import Invocation
from streams.cli.output import note
from streams.kafka.waiting import told_by

HELP = """Keep a Qdrant index in step with changing documents: only the chunks that changed are embedded.

Start here:  docdelta dev FOLDER  runs everything on this machine and keeps a folder in sync; then, in another terminal,
docdelta search "your question" --tenant demo

Policy authors:  docdelta parse, chunk, diff  work offline.  Operators:  topics, init, worker, status, why, dashboard.

Settings come from the environment (DOCDELTA_KAFKA__BOOTSTRAP_SERVERS, ...) over docdelta.toml over defaults."""

COMMANDS: tuple[tuple[str, str, str], ...] = (
    # (panel, command, module:function)
    ("Try it", "dev", "dev:dev"),
    ("Try it", "demo", "demo:demo"),
    ("Documents", "put", "put:put"),
    ("Documents", "delete", "delete:delete"),
    ("Documents", "sync", "sync:sync"),
    ("Search and state", "search", "search:search"),
    ("Search and state", "evaluate", "evaluate:evaluate"),
    ("Search and state", "status", "status:status"),
    ("Search and state", "why", "why:why"),
    ("Search and state", "dashboard", "dashboard:dashboard"),
    ("Offline previews", "parse", "parse:parse"),
    ("Offline previews", "chunk", "chunk:chunk"),
    ("Offline previews", "diff", "diff:diff"),
    ("Offline previews", "policy", "policy:app"),
    ("Policies", "rollout", "rollout:rollout"),
    ("Policies", "batches", "batches:batches"),
    ("Policies", "gate", "gate:gate"),
    ("Policies", "switch", "switch:switch"),
    ("Policies", "rollback", "rollback:rollback"),
    ("Policies", "retire", "retire:retire"),
    ("Policies", "pace", "pace:pace"),
    ("Operation", "audit", "audit:audit"),
    ("Operation", "dead-letters", "dead_letters:app"),
    ("Operation", "reindex", "reindex:reindex"),
    ("Operation", "gc", "gc:gc"),
    ("Operation", "breaker", "breaker:app"),
    ("Operation", "pause", "pause:pause"),
    ("Operation", "resume", "pause:resume"),
    ("Operation", "topics", "topics:app"),
    ("Operation", "init", "init:init"),
    ("Operation", "worker", "worker:worker"),
)
"""Every command: where it stands in the help, its name, and the file of this folder that holds it."""


_UNWRITABLE = {errno.ENOSPC, errno.EDQUOT, errno.EROFS, errno.EACCES, errno.EPERM, errno.EIO, errno.ENOTDIR}
"""What a file system answers where a person must act. Other errors of the system deserve their traceback."""


def _everywhere(
    context: typer.Context,
    config: Annotated[
        Path | None, typer.Option("--config", help="Settings file instead of docdelta.toml.", show_default=False)
    ] = None,
    version: Annotated[bool, typer.Option("--version", help="Which release this is.")] = False,
) -> None:
    context.obj = Invocation(config)
    if version:
        typer.echo(f"docdelta {metadata.version('docdelta')}")
        raise typer.Exit
    if context.invoked_subcommand is None:
        typer.echo(context.get_help(), nl=False)


def build(words: Sequence[str] = ()) -> typer.Typer:
    """Return the application: with the commands that stand among `words`, or with all of them where none does.

    Only what is asked for is imported: a preview must not wait for Faust.
    """
    app = typer.Typer(
        name="docdelta",
        help=HELP,
        epilog=epilog(),
        invoke_without_command=True,
        add_completion=False,
        pretty_exceptions_enable=False,
        rich_markup_mode="markdown",  # "rich" would take [documents] for markup
        context_settings={"help_option_names": ["-h", "--help"]},
    )
    app.callback()(_everywhere)
    asked = [row for row in COMMANDS if row[1] in words]
    for panel, name, place in asked or COMMANDS:
        module, _, attribute = place.partition(":")
        command: Any = getattr(import_module(f"streams.cli.{module}"), attribute)
        if isinstance(command, typer.Typer):
            app.add_typer(command, name=name, rich_help_panel=panel)
        else:
            app.command(name, rich_help_panel=panel)(command)
    return app


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one command and return its exit code. Only what is not expected leaves with a traceback."""
    words = list(sys.argv[1:] if arguments is None else arguments)
    try:
        command = typer.main.get_command(build(words))
        with told_by(note):
            result = command.main(args=words, prog_name="docdelta", standalone_mode=False)
        sys.stdout.flush()  # here, where a full disk or a closed pipe can still be told
    except typer.TyperException as error:
        note(f"docdelta: {error.format_message()} (see docdelta {_asked_command(error)}--help)")
        return error.exit_code
    except (KeyboardInterrupt, typer.Abort):
        note("stopped")
        return INTERRUPTED
    except (BrokenPipeError, SystemExit) as error:
        if isinstance(error, SystemExit) and not isinstance(error.__context__, BrokenPipeError):
            raise  # typer ends with 1 at a closed pipe
        # The reader of our pipe has seen enough. Python would complain once more at exit, unless stdout leads nowhere.
        _silence_stdout()
        return OK
    except OSError as error:
        if error.errno not in _UNWRITABLE:
            raise
        what = f"{error.filename} can't be read or written" if error.filename else "the output can't be written"
        note(f"docdelta: {what}: {error.strerror}")
        _silence_stdout()
        return FAILED
    except Exception as error:
        code = exit_code_of(error)
        if code is None:
            raise
        note(f"docdelta: {error}")
        return code
    if result == INTERRUPTED:  # Ctrl-C in the command itself: Typer has made a number of it
        note("stopped")
    return result if isinstance(result, int) else OK


def _silence_stdout() -> None:
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def _asked_command(error: typer.TyperException) -> str:
    """Return the name of the command that a wrong use was meant for, with a blank after it, or nothing."""
    path: str = getattr(getattr(error, "ctx", None), "command_path", "")
    name = path.partition(" ")[2]
    return f"{name} " if name else ""


def run() -> None:
    """Entry point of the `docdelta` script."""
    for stream in (sys.stdout, sys.stderr):
        reconfigure = getattr(stream, "reconfigure", None)
        if reconfigure:
            # Documents hold every script there is; the terminal's own encoding must not stop a line.
            reconfigure(encoding="utf-8", errors="backslashreplace")
    sys.exit(main())
