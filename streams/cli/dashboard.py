"""`docdelta dashboard`: the operations page."""

from __future__ import annotations

import asyncio
import signal
from typing import Annotated

import typer

from streams.cli import options
from streams.cli.exits import FAILED, OK
from streams.cli.output import note, say
from streams.settings import Settings


def dashboard(
    context: typer.Context,
    host: Annotated[
        str | None,
        typer.Option("--host", help="Where to listen. Default: 127.0.0.1; any other demands a token.", show_default=False),
    ] = None,
    port: Annotated[
        int | None, typer.Option("--port", help="Default: 9465. 0: a free one.", min=0, max=65535, show_default=False)
    ] = None,
    token: Annotated[
        str,
        typer.Option(
            "--token",
            help="What a reader must know; better set as DOCDELTA_DASHBOARD__TOKEN. Off loopback one is made where none is given.",
            show_default=False,
        ),
    ] = "",
    worker: options.Workers = None,
) -> int:
    """Serve the operations page until Ctrl-C: freshness, lag, red states and what mends them, batches, dead letters, tenants.

    On loopback it needs no token. Elsewhere put something that speaks TLS in front of it: the token travels with each request.

    Example:  docdelta dashboard

    Example:  docdelta dashboard --host 0.0.0.0 --worker http://worker-1:9464 --worker http://worker-2:9464
    """
    from streams.kafka.client import cluster_topics, make_admin
    from streams.logs import configure_logs

    settings = options.invocation(context).settings_to_send()
    cluster_topics(make_admin(settings.kafka))  # a wrong address is told here, not on the page
    configure_logs("warning" if settings.log_level == "info" else settings.log_level, settings.log_format)
    own = settings.dashboard
    place = own.host if host is None else host, own.port if port is None else port
    return asyncio.run(_serve(settings, *place, token or own.token.get_secret_value(), worker or []))


async def _serve(settings: Settings, host: str, port: int, token: str, workers: list[str]) -> int:
    from streams.board.scrape import over_http
    from streams.board.server import make_board
    from streams.index.qdrant import open_index

    index = open_index(settings.qdrant) if settings.qdrant.url else None  # an embedded one is its worker's alone
    metrics_port = settings.worker.metrics_port
    here = [f"http://127.0.0.1:{metrics_port}"] if metrics_port else []
    board = make_board(settings, index, over_http(workers or here, sure=bool(workers)), host, token, eager=True)
    stop = asyncio.Event()
    for number in (signal.SIGINT, signal.SIGTERM):
        asyncio.get_running_loop().add_signal_handler(number, stop.set)
    try:
        await board.start(host, port)
        say(f"dashboard: {board.url}")
        note("Ctrl-C stops it. The token is shown this once." if "token=" in board.url else "Ctrl-C stops it.")
        await stop.wait()
    finally:
        await board.stop()
        if index is not None:
            await index.close()
    return OK if board.failure is None else FAILED
