"""The folder where a worker keeps its local state: made, taken by one worker at a time, and removed where a batch is retired."""

from __future__ import annotations

import fcntl
import os
import shutil
import tempfile
from pathlib import Path

from streams.errors import UsageError


def remove_folder(folder: Path) -> bool:
    """Remove a folder with all that is in it. Returns whether it was there."""
    there = folder.is_dir()
    shutil.rmtree(folder, ignore_errors=True)
    return there


def make_folder(folder: Path) -> None:
    """Make a folder with its parents where it is missing, and try to write to it. UsageError names the setting and the reason."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryFile(dir=folder):
            pass
    except OSError as error:
        words = f"setting worker.state_dir: {folder.absolute()} can't be made and written to: {error.strerror}"
        raise UsageError(words) from error


def take_folder(folder: Path, part: str) -> int:
    """Return the lock of a worker's state folder, held until it is closed or the process ends. UsageError when another has it."""
    lock = os.open(folder / f"{part.replace(':', '-')}.lock", os.O_RDWR | os.O_CREAT, 0o644)
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError as error:
        os.close(lock)
        words = f"setting worker.state_dir: another worker works in {folder.absolute()}; give each one a folder of its own"
        raise UsageError(words) from error
    return lock
