"""`docdelta worker` with faults that can't be made from outside, each lasting while a file of its name is in the working folder.

Run as ``python -m tests.support.faulty_worker worker``.
"""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from aiokafka.consumer.group_coordinator import GroupCoordinator
from aiokafka.errors import GroupCoordinatorNotAvailableError

from streams.cli.main import main
from streams.embedders.hashing import HashingModel
from streams.faustio.recovery import SafeConsumer
from streams.ports import Vector

MODEL_HANGS = "model-hangs"
"""A call of the model does not return."""
MODEL_FAILS = "model-fails"
"""A call of the model answers with fewer vectors than texts."""
COMMITS_FAIL = "commits-fail"
"""The coordinator answers each commit as one does whose offsets topic has too few copies in sync; everything else works."""
TABLES_STAND = "tables-stand"
"""The broker sends nothing of the changelogs."""
LOOK_SECONDS = 0.05
_vectors, _commit, _getmany = HashingModel.vectors, GroupCoordinator._do_commit_offsets, SafeConsumer._getmany


def _is(fault: str) -> bool:
    return Path(fault).exists()


async def _faulty_vectors(model: HashingModel, texts: Sequence[str]) -> list[Vector]:
    while True:
        if not _is(MODEL_HANGS):
            return (await _vectors(model, texts))[_is(MODEL_FAILS) :]
        await asyncio.sleep(LOOK_SECONDS)


async def _faulty_commit(coordinator: Any, assignment: Any, offsets: Any) -> None:
    if _is(COMMITS_FAIL):
        raise GroupCoordinatorNotAvailableError()
    await _commit(coordinator, assignment, offsets)


async def _faulty_getmany(consumer: Any, active_partitions: Any, timeout: float) -> Any:  # noqa: ASYNC109 - the signature is Faust's
    if _is(TABLES_STAND) and any(consumer._is_changelog_tp(each) for each in active_partitions):
        await asyncio.sleep(LOOK_SECONDS)
        return {}
    return await _getmany(consumer, active_partitions, timeout)


if __name__ == "__main__":
    HashingModel.vectors = _faulty_vectors  # type: ignore[method-assign]
    GroupCoordinator._do_commit_offsets = _faulty_commit
    SafeConsumer._getmany = _faulty_getmany
    sys.exit(main())
