"""Python's garbage collector in a long-lived process: what stays is not looked through again.

A full collection looks through every object there is, about 0.1 s for a worker with its libraries, and everything waits for it: an
edit that meets one is late by that much. Most of these objects (modules, apps, clients) stay for good.
"""

from __future__ import annotations

import gc


def what_is_here_stays() -> None:
    """Collect once, and leave out of later collections whatever is left. May be called again when more has come, or gone."""
    gc.unfreeze()
    gc.collect()
    gc.freeze()
