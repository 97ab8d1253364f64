"""KnownFiles: what was read of a folder's files before, so that a file that was not touched since need not be read to be known.

A file is known by size, both times, inode and device, as git knows one: a write sets its change time (`ctime`), which nobody can
set back, whatever becomes of its modification time. A file that changed less than `SETTLED_SECONDS` before it was read is not
remembered ("racily clean"): it may change once more within the same tick of its file system's clock. So what is remembered is
true, or the file looks different.

One JSON file beside the sync state. It only saves reading: losing or damaging it costs one reading of the folder.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

import orjson

SETTLED_SECONDS = 3.0
"""File systems that keep times in whole seconds are in use, and in steps of two."""
_VERSION = 1


class KnownFiles:
    """Digests of files by their path in the folder. For one scan: `digest` what is known, `read` what is not, then `save`."""

    def __init__(self, path: Path, clock: Callable[[], float], anew: bool = False) -> None:
        """`path`: where it is kept. `clock`: seconds since 1970, as the file system's. `anew`: believe nothing of it."""
        self._path, self._clock = path, clock
        self._before = {} if anew else _load(path)
        self._now: dict[str, list[object]] = {}

    def digest(self, name: str, found: os.stat_result) -> str | None:
        """Return the digest of a file that looks as it did when it was read; None: it has to be read."""
        known = self._before.get(name)
        if known is None or known[:-1] != _looks(found):
            return None
        self._now[name] = known
        return str(known[-1])

    def now(self) -> float:
        """Return the time, to be asked for before a file is read."""
        return self._clock()

    def read(self, name: str, found: os.stat_result, digest: str, at: float) -> None:
        """Remember the digest of a file that looked so just before it was read, unless that was too soon after its last change.

        `at`: when the reading began; it may take longer than the tick that hides a change.
        """
        if max(found.st_mtime, found.st_ctime) + SETTLED_SECONDS <= at:
            self._now[name] = [*_looks(found), digest]

    def save(self) -> None:
        """Write down what is known now, if that is another thing than before. A folder that can't be written is let be."""
        if self._now == self._before:
            return
        beside = self._path.with_suffix(f".{os.getpid()}.new")
        with suppress(OSError, orjson.JSONEncodeError):  # the latter: a name that is no text
            self._path.parent.mkdir(parents=True, exist_ok=True)
            beside.write_bytes(orjson.dumps({"version": _VERSION, "files": self._now}))
            beside.replace(self._path)


def _looks(found: os.stat_result) -> list[object]:
    return [found.st_size, found.st_mtime_ns, found.st_ctime_ns, found.st_ino, found.st_dev]


def _load(path: Path) -> dict[str, list[object]]:
    try:
        whole = orjson.loads(path.read_bytes())
        files = whole["files"] if whole["version"] == _VERSION else {}
        return files if all(len(known) == 6 and isinstance(known[-1], str) for known in files.values()) else {}
    except (OSError, ValueError, TypeError, KeyError, AttributeError, IndexError):
        return {}
