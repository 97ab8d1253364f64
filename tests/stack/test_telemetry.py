"""One trace from the sender to the index: spans of `docdelta put` and of a worker, as a collector receives them (OTLP over HTTP).

About 25 s on two quiet cores.
"""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest

from streams.settings import KafkaSettings
from tests.stack.rig import a_page, rig
from tests.support.patience import PATIENCE

proto = pytest.importorskip("opentelemetry.proto.collector.trace.v1.trace_service_pb2", reason="needs the extra docdelta[otel]")
SECRET = "the depot's safe stands open"


@contextmanager
def collector() -> Iterator[tuple[str, list[Any]]]:
    """Give the URL of a receiver, and the spans that it has got so far."""
    got: list[Any] = []

    class Receiver(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            import gzip

            body = self.rfile.read(int(self.headers["Content-Length"]))
            if self.headers.get("Content-Encoding") == "gzip":
                body = gzip.decompress(body)
            request = proto.ExportTraceServiceRequest.FromString(body)
            got.extend(span for resource in request.resource_spans for scope in resource.scope_spans for span in scope.spans)
            self.send_response(200)
            self.send_header("Content-Length", "0")
            self.end_headers()

        def log_message(self, *arguments: object) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Receiver)
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_address[1]}/v1/traces", got
    finally:
        server.shutdown()
        server.server_close()


async def test_one_trace_leads_from_the_sender_to_the_index(tansu_settings: KafkaSettings, tmp_path: Path, fresh: str) -> None:
    async with rig(tansu_settings, tmp_path, fresh) as stack:
        with collector() as (url, got):
            on = {"DOCDELTA_OTEL__ENDPOINT": url}
            stack.start(**on)
            (tmp_path / "page.md").write_text(a_page("p") + f"\n\n{SECRET}\n", encoding="utf-8")
            put = await stack.docdelta("put", "page.md", "--tenant", "acme", "--id", "p", "--title", SECRET, **on)
            assert put.returncode == 0, put.stderr
            deadline = time.monotonic() + PATIENCE
            while True:
                names = {span.name for span in got}
                if {"send upsert", "parser", "chunker", "indexer", "embed"} <= names and any(
                    n.startswith("index: write") for n in names
                ):
                    break
                assert time.monotonic() < deadline, f"only {sorted(names)}\n{stack.log()[-3000:]}"
                await asyncio.sleep(0.2)
            spans = list(got)
            code = await stack.stop()
            assert code == 0, stack.log()
    sent = next(span for span in spans if span.name == "send upsert")
    ours = [span for span in spans if span.trace_id == sent.trace_id]
    by_name = {span.name: span for span in ours}
    chain = [by_name[name] for name in ("send upsert", "parser", "chunker", "indexer")]
    assert [child.parent_span_id for child in chain[1:]] == [parent.span_id for parent in chain[:-1]]
    calls = [span for span in ours if span.name == "embed" or span.name.startswith("index: write")]
    assert {span.parent_span_id for span in calls} == {chain[-1].span_id}
    said = {attribute.key: attribute.value.string_value for attribute in chain[-1].attributes}
    assert (said["docdelta.document"], said["docdelta.outcome"]) == ("p", "indexed")
    assert SECRET.encode() not in b"".join(span.SerializeToString() for span in spans), "no text, no title"
