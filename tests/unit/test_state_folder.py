"""A worker's state folder: written to, and by one worker only."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from streams.errors import UsageError
from streams.state_folder import make_folder, take_folder


def test_a_state_folder_is_one_workers_until_it_ends(tmp_path: Path) -> None:
    lock = take_folder(tmp_path, "all")
    with pytest.raises(UsageError, match="another worker works in"):
        take_folder(tmp_path, "all")
    other = take_folder(tmp_path, "batch:docs-v1")
    os.close(lock)
    os.close(take_folder(tmp_path, "all"))
    os.close(other)


def test_a_folder_that_can_not_be_written_to_is_named(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("", encoding="ascii")
    for folder in (tmp_path / "file", tmp_path / "file" / "below", Path("/proc/docdelta")):
        with pytest.raises(UsageError, match=r"worker\.state_dir"):
            make_folder(folder)
