"""What commands write: tables and lines for people, JSON for programs, progress only where someone watches.

Results go to stdout, everything else to stderr. Into a pipe go no colours, no bars and no line folding.
"""

from __future__ import annotations

import json
import os
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, TextIO

from rich.cells import cell_len, set_cell_size
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TaskID, TextColumn, TimeElapsedColumn
from rich.table import Table

PIPE_WIDTH = 200
"""Columns of a table that goes into a pipe, unless COLUMNS says otherwise."""
PATIENCE_SECONDS = 1.0
"""Work that lasts longer gets a progress bar."""


class _Console(Console):
    """A console that leaves a closed pipe to `main`; rich itself would end the process with code 1."""

    def on_broken_pipe(self) -> None:
        """Raise what rich has caught."""
        raise BrokenPipeError


def stdout() -> Console:
    """Return the console for results. Made anew on each call: tests and pipes replace the stream."""
    return _console(sys.stdout)


def stderr() -> Console:
    """Return the console for everything that is no result."""
    return _console(sys.stderr)


def _console(stream: TextIO) -> Console:
    watched = stream.isatty()
    width = None if watched or "COLUMNS" in os.environ else PIPE_WIDTH
    return _Console(file=stream, width=width, highlight=False, emoji=False, markup=False, legacy_windows=False)


def print_json(value: Any) -> None:
    """Print one JSON value, indented."""
    sys.stdout.write(json.dumps(value, ensure_ascii=False, indent=2) + "\n")


def print_json_line(value: Any) -> None:
    """Print one JSON value on one line."""
    sys.stdout.write(json.dumps(value, ensure_ascii=False) + "\n")


def say(text: str) -> None:
    """Print one line of a result, as it is."""
    stdout().print(text, soft_wrap=True)


def note(text: str) -> None:
    """Print one line to stderr: a hint, a warning, what was done."""
    stderr().print(text, soft_wrap=True)


def table(*columns: str, numbers: tuple[str, ...] = (), fold: tuple[str, ...] = ()) -> Table:
    """Return an empty table. Columns in `numbers` stand to the right; those in `fold` give way when the line is too long."""
    made = Table(box=None, pad_edge=False, header_style="bold")
    for column in columns:
        is_number = column in numbers
        made.add_column(
            column,
            justify="right" if is_number else "left",
            overflow="fold" if column in fold else "ellipsis",
            no_wrap=column not in fold,
        )
    return made


class Bar:
    """A progress bar that shows itself only to a person who has waited a while."""

    def __init__(self, progress: Progress | None, description: str, total: int | None) -> None:
        self._progress = progress
        self._description = description
        self._total = total
        self._task: TaskID | None = None
        self._began = time.monotonic()
        self._done = 0

    def advance(self, count: int = 1) -> None:
        """Say that `count` more are done."""
        self._done += count
        if self._progress is None:
            return
        if self._task is None and time.monotonic() - self._began > PATIENCE_SECONDS:
            self._progress.start()
            self._task = self._progress.add_task(self._description, total=self._total)
        if self._task is not None:
            self._progress.update(self._task, completed=self._done)


@contextmanager
def progress_bar(description: str, total: int | None = None) -> Iterator[Bar]:
    """Give a `Bar` on stderr; it stays silent in a pipe and for quick work."""
    console = stderr()
    if not console.is_terminal:
        yield Bar(None, description, total)
        return
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
    progress = Progress(*columns, console=console, transient=True)
    try:
        yield Bar(progress, description, total)
    finally:
        progress.stop()


def one_line(text: str, width: int = 60) -> str:
    """Return the beginning of a text on one line of at most `width` terminal cells, for a table."""
    flat = " ".join(text[: 4 * width].split())
    if cell_len(flat) <= width:
        return flat
    return set_cell_size(flat, width - 1).rstrip() + "…"
