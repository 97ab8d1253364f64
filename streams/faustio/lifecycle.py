"""Start and stop apps at run time, several in one event loop. A crash is told, once, and neither ends the process nor hangs it."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Coroutine
from typing import Any

from faust.exceptions import ConsistencyError
from mode import Service

from streams.errors import InvariantBroken
from streams.faustio.app import SafeApp
from streams.faustio.readiness import wait_ready
from streams.faustio.runner import CANCEL_SECONDS

log = logging.getLogger(__name__)

OnCrash = Callable[[SafeApp, BaseException], None]
ABANDON_SECONDS = 1.0
ABANDON_ROUNDS = 4
LEAVE_SECONDS = 3.0
"""Kept of the time to stop for commit, flush, leaving the group, and giving up on all that."""


async def start_app(app: SafeApp, on_crash: OnCrash, ready_seconds: float = 600) -> bool:
    """Start an app and return True when its tables are recovered, its partitions assigned (perhaps none) and records flow.

    `on_crash(app, reason)` is called exactly once if the app crashes, now or later, also when it can't even be started; it should
    have the worker stop and exit non-zero. The app stays as it is: `stop_app` cleans up. Returns False when the app crashed or was
    stopped before it was ready, or is not ready within `ready_seconds` (it goes on trying).
    """
    _keep(_watch(app, on_crash))
    _keep(_start(app))
    return await wait_ready(app, ready_seconds)


async def stop_app(app: SafeApp, drain_seconds: float) -> bool:
    """Stop an app within `drain_seconds`: end the handlers, commit, leave the group. True when all of it was done.

    Handlers may finish, then those that wait see `app.leaving`, then they are cancelled (`SafeApp.drain`). What is not acknowledged
    comes again. False: the app had crashed, the broker did not answer in time, or something hangs; its tasks are
    ended by force then, daemon threads may stay, and the process should end.
    """
    loop = asyncio.get_running_loop()
    until = loop.time() + drain_seconds
    app.stopping = True
    app.drain_seconds = max(0.0, drain_seconds - LEAVE_SECONDS - CANCEL_SECONDS)
    await app.drain()
    stopped = _keep(app.stop())
    await asyncio.wait({stopped}, timeout=max(0.1, until - loop.time() - ABANDON_SECONDS))
    app.gone.set()
    if not stopped.done():
        log.warning("app %s did not stop within %.1f s: abandoned, nothing more is committed", app.conf.id, drain_seconds)
        await _abandon(app, stopped)
        return False
    if (error := stopped.exception()) is not None:
        log.warning("app %s stopped with an error: %r", app.conf.id, error)
        return False
    return not app.crashed


_KEPT: set[asyncio.Task[Any]] = set()
"""Tasks that outlive their caller: the loop alone keeps only weak references."""


async def _abandon(app: SafeApp, stopping: asyncio.Task[Any]) -> None:
    """End the app's tasks by force. Faust's own swallow a cancellation, wait for a broker that is away, or are restarted by their
    supervisor: left alone they keep `asyncio.run` from returning."""
    tasks: set[asyncio.Future[Any]] = {stopping}
    for node in app.beacon.traverse():
        service = getattr(node, "data", node)
        if isinstance(service, Service):
            service._stopped_set()
            tasks |= service._futures
    for agent in app.agents.values():
        tasks |= {actor.actor_task for actor in agent._actors if actor.actor_task is not None}
    for _ in range(ABANDON_ROUNDS):
        for task in tasks:
            task.cancel()
        _, tasks = await asyncio.wait(tasks, timeout=ABANDON_SECONDS / ABANDON_ROUNDS)
        if not tasks:
            return


def _keep(work: Coroutine[Any, Any, Any]) -> asyncio.Task[Any]:
    task = asyncio.get_running_loop().create_task(work)
    _KEPT.add(task)
    task.add_done_callback(_KEPT.discard)
    return task


async def _start(app: SafeApp) -> None:
    try:
        await app.start()
    except Exception as error:  # noqa: BLE001 - told through on_crash
        await app.crash(error)


async def _watch(app: SafeApp, on_crash: OnCrash) -> None:
    # Polls as well: the consumer's thread crashes the app from outside of this loop, which wakes nobody here.
    while not app.crashed:
        if app.gone.is_set():
            return
        try:
            await asyncio.wait_for(app._crashed.wait(), 0.5)
        except TimeoutError:
            continue
    app.ready.clear()
    app.leaving.set()
    app.gone.set()
    on_crash(app, _reason(app))


def _reason(app: SafeApp) -> BaseException:
    reason: BaseException = app.crash_reason or InvariantBroken("app crashed without a reason", app=app.conf.id)
    if isinstance(reason, ConsistencyError):
        return InvariantBroken(
            "local table state is ahead of the broker's changelog: the broker has lost records, or is another one; "
            "delete the state folder while the worker is down, and check the broker",
            folder=str(app.conf.datadir),
            reason=str(reason).splitlines()[0],
        )
    return reason
