"""Claims about reading an index that is away, silent or closed to us: the place named, the right exit code, within ten seconds."""

from __future__ import annotations

import socket
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, HTTPServer

import pytest

from tests.unit.cli.conftest import Run


@pytest.fixture
def silent() -> Iterator[str]:
    """A place that takes connections and never answers."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        yield f"http://127.0.0.1:{server.getsockname()[1]}"


@pytest.fixture
def closed() -> Iterator[str]:
    """An index that refuses every key."""

    class Refusing(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self.send_response(403)
            self.end_headers()
            self.wfile.write(b"Invalid API key or JWT")

        def log_message(self, format: str, *args: object) -> None:
            """Stay silent: the test reads stderr."""

    server = HTTPServer(("127.0.0.1", 0), Refusing)
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    yield f"http://127.0.0.1:{server.server_port}"
    server.shutdown()
    thread.join()
    server.server_close()


@pytest.mark.parametrize(("place", "code"), [("silent", 3), ("closed", 4), ("http://127.0.0.1:1", 3)])
def test_a_search_says_what_is_wrong_with_the_index(
    run: Run, monkeypatch: pytest.MonkeyPatch, request: pytest.FixtureRequest, place: str, code: int
) -> None:
    url = place if "://" in place else request.getfixturevalue(place)
    monkeypatch.setenv("DOCDELTA_QDRANT__URL", url)
    monkeypatch.setenv("DOCDELTA_QDRANT__API_KEY", "s3cret-canary")
    ran = run("search", "x", "-t", "a")
    assert (ran.code, ran.out) == (code, "")
    assert len(ran.err.splitlines()) == 1
    assert (url in ran.err) or ("API_KEY" in ran.err)
    assert "s3cret-canary" not in ran.err


def test_an_index_without_a_batch_says_what_to_run(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DOCDELTA_QDRANT__PATH", "index")
    ran = run("search", "x", "-t", "a")
    assert ran.code == 5
    assert "docdelta init" in ran.err
