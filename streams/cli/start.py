"""The entry point: Ctrl-C ends it with one line from its first moment on, while the rest is still being imported."""

from __future__ import annotations

import os
import signal
import sys
from types import FrameType


def _stopped(number: int, frame: FrameType | None) -> None:
    os.write(2, b"stopped\n")
    os._exit(130)  # nothing is open yet


def run() -> None:
    """Run `docdelta`."""
    ours = signal.getsignal(signal.SIGINT) is signal.default_int_handler  # a shell may have had it ignored
    if ours:
        signal.signal(signal.SIGINT, _stopped)
    from streams.cli import main

    if ours:
        signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        main.run()
    except KeyboardInterrupt:  # between here and its own
        os.write(2, b"stopped\n")
        sys.exit(130)
