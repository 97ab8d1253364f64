"""Claim about `docdelta dev`: a broker that ended by itself is told in words, with its log and what to do."""

from __future__ import annotations

from pathlib import Path

import pytest

from streams.cli.dev_session import DevSession
from streams.embedded.process import FolderProcess
from streams.errors import NotReachable
from tests.support.patience import PATIENCE


class Stack:
    """The part of a stack that is asked: its broker, here any process."""

    def __init__(self, folder: Path) -> None:
        self.broker = FolderProcess("broker", folder)

    def check_broker(self) -> None:
        self.broker.check_alive()


def test_a_broker_that_ended_ends_dev_with_its_log_and_the_way_on(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    session, stack = DevSession.__new__(DevSession), Stack(tmp_path / "broker")
    session._stack = stack  # type: ignore[assignment]
    try:
        stack.broker.start(["sleep", "3600"])
        session._check_broker()  # while it runs, nothing is said
        stack.broker.stop()
        stack.broker.start(["sh", "-c", "echo out of memory; exit 3"])
        assert stack.broker._child is not None
        stack.broker._child.wait(PATIENCE)
        with pytest.raises(NotReachable, match=r"(?s)broker ended with status 3.*out of memory.*run docdelta dev again"):
            session._check_broker()
    finally:
        stack.broker.stop()
    assert "the broker has ended" in capsys.readouterr().err
