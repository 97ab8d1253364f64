"""A delete says whether there was anything to remove, where the index can be asked. What answers instead never keeps it back."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest

from streams.cli.delete import _searchable
from streams.settings import QdrantSettings, Settings


@contextmanager
def answering(status: int, body: bytes) -> Iterator[str]:
    """Serve one answer to whatever is asked, and give the address."""

    class Handler(BaseHTTPRequestHandler):
        def _answer(self) -> None:
            self.rfile.read(int(self.headers.get("content-length", 0)))
            self.send_response(status)
            self.send_header("content-type", "application/json")
            self.send_header("content-length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        do_GET = do_POST = _answer

        def log_message(self, *_: object) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_port}"
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


ALIAS = b'{"result":{"aliases":[{"alias_name":"docdelta","collection_name":"c"}],"points":%s}}'


@pytest.mark.parametrize(
    ("status", "body"),
    [
        pytest.param(200, b"<html>", id="a-page"),
        pytest.param(200, b"[]", id="another-service"),
        pytest.param(200, ALIAS % b"7", id="points-that-are-none"),
        pytest.param(200, ALIAS % b"[1]", id="points-without-fields"),
        pytest.param(403, b"{}", id="refused"),
        pytest.param(500, b"", id="broken"),
    ],
)
def test_whatever_answers_in_place_of_the_index_is_no_answer(status: int, body: bytes) -> None:
    with answering(status, body) as url:
        settings = Settings(qdrant=QdrantSettings(url=url))
        assert asyncio.run(_searchable(settings, "acme", ["a"])) == {}
