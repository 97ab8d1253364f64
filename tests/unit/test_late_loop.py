"""A machine that is busy makes the app's loop late. Nobody is told that a thread had died of it."""

from __future__ import annotations

import asyncio
import logging

import pytest

from streams.faustio.recovery import _ConsumerThread


class LateLoop(_ConsumerThread):
    """A consumer's thread whose loop comes back long after it was due, three times, and then ends."""

    log = logging.getLogger("late-loop")

    def __init__(self) -> None:
        self.parent_loop = asyncio.get_running_loop()
        self.last_wakeup_at = -1e9
        self.rounds = 0

    @property
    def should_stop(self) -> bool:
        return self.rounds == 3

    async def sleep(self, seconds: float) -> None:
        self.rounds += seconds > 0
        self.last_wakeup_at = -1e9


async def test_a_late_loop_is_woken_and_no_error(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.DEBUG):
        thread = LateLoop()
        await thread._keepalive2()
    assert thread.rounds == 3
    assert [record.message for record in caplog.records if record.levelno >= logging.WARNING] == []
