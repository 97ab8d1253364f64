"""Probes of a worker over HTTP: `/metrics` for Prometheus, `/livez` and `/readyz` for whoever starts and stops workers.

On loopback unless told otherwise; no authentication: figures and names of batches and tenants, never documents.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import structlog
from aiohttp import web
from prometheus_client import CONTENT_TYPE_LATEST, generate_latest

from streams import metrics
from streams.faustio.readiness import is_ready
from streams.vitals import Vitals

log = structlog.get_logger(__name__)
SHUTDOWN_SECONDS = 0.5


class Probes:
    """The server. `expected` returns name → app (None: not made yet) of all that must be ready; `failure` what ended the worker."""

    def __init__(
        self,
        vitals: Vitals,
        expected: Callable[[], Mapping[str, Any | None]],
        failure: Callable[[], BaseException | None],
    ) -> None:
        self._vitals = vitals
        self._expected = expected
        self._failure = failure
        self._runner: web.AppRunner | None = None
        self.port = 0

    async def start(self, host: str, port: int) -> bool:
        """Listen (port 0: a free one). False when the port is taken: said in the log, and the worker goes on without."""
        application = web.Application()
        application.router.add_get("/metrics", self._metrics)
        application.router.add_get("/livez", self._livez)
        application.router.add_get("/readyz", self._readyz)
        runner = web.AppRunner(application, access_log=None, shutdown_timeout=SHUTDOWN_SECONDS)
        await runner.setup()
        try:
            await web.TCPSite(runner, host, port).start()
        except OSError as error:
            await runner.cleanup()
            log.error(
                "metrics are off: their port can't be opened; set DOCDELTA_WORKER__METRICS_PORT to another one",
                host=host,
                port=port,
                reason=error.strerror,
            )
            return False
        self._runner = runner
        self.port = int(runner.addresses[0][1])
        log.info("metrics are served", url=f"http://{host}:{self.port}/metrics")
        return True

    async def stop(self) -> None:
        """Stop listening."""
        if self._runner is not None:
            await self._runner.cleanup()
            self._runner = None

    async def _metrics(self, _: web.Request) -> web.Response:
        self._vitals.look()
        return web.Response(body=generate_latest(metrics.REGISTRY), headers={"Content-Type": CONTENT_TYPE_LATEST})

    async def _livez(self, _: web.Request) -> web.Response:
        return answer(alive(self._vitals, self._failure()))

    async def _readyz(self, _: web.Request) -> web.Response:
        return answer(unready(self._expected(), self._failure()))


def alive(vitals: Vitals, failure: BaseException | None) -> list[str]:
    """Return why the worker should be started anew; empty when it is alive."""
    faults = [f"worker failed: {failure}"] if failure is not None else []
    stalled = vitals.stalled().items()
    faults += [f"app {name}: offsets have not moved for {seconds:.0f} s with records in hand" for name, seconds in stalled]
    return faults


def unready(expected: Mapping[str, Any | None], failure: BaseException | None) -> list[str]:
    """Return why the worker is not ready; empty when every app has its tables and records flow."""
    faults = [f"worker failed: {failure}"] if failure is not None else []
    for name, app in expected.items():
        if app is None:
            faults.append(f"app {name} is not started")
        elif not is_ready(app):
            faults.append(f"app {name} is recovering its tables, or partitions are moving")
    return faults


def answer(faults: list[str]) -> web.Response:
    """Return 200 `ok`, or 503 with a fault a line."""
    return web.Response(text="\n".join(faults or ["ok"]) + "\n", status=503 if faults else 200)
