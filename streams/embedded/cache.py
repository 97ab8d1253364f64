"""Where things that are fetched or built once are kept: the user's cache folder, one entry a version, filled in one step."""

from __future__ import annotations

import os
import shutil
import tempfile
from collections.abc import Callable
from pathlib import Path


def cache_folder() -> Path:
    """Return ``$XDG_CACHE_HOME/docdelta``, or ``~/.cache/docdelta``."""
    base = os.environ.get("XDG_CACHE_HOME")
    return (Path(base) if base else Path.home() / ".cache") / "docdelta"


def fill_once(folder: Path, fill: Callable[[Path], None]) -> Path:
    """Return `folder`, filled by `fill` unless it exists. Others never see it half filled, and two fillers at once do no harm."""
    if folder.is_dir():
        return folder
    folder.parent.mkdir(parents=True, exist_ok=True)
    draft = Path(tempfile.mkdtemp(prefix=f".{folder.name}-", dir=folder.parent))
    try:
        fill(draft)
        draft.chmod(0o755)
        try:
            draft.rename(folder)
        except OSError:
            if not folder.is_dir():  # another filler was first: its content is as good as ours
                raise
    finally:
        shutil.rmtree(draft, ignore_errors=True)
    return folder
