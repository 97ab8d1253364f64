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
from tests.stack.rig import Rig, a_page, rig
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


def said(span: Any) -> dict[str, str]:
    return {attribute.key: attribute.value.string_value for attribute in span.attributes}


def chain(spans: list[Any], document: str, *names: str) -> list[Any]:
    """Return spans of these names of a document, each the parent of the next; none while one is missing."""
    own = [span for span in spans if said(span).get("docdelta.document") == document]
    for first in own:
        found = [first] if first.name == names[0] else []
        for name in names[1:] if found else ():
            found += [span for span in own if span.name == name and span.parent_span_id == found[-1].span_id][:1]
        if [span.name for span in found] == list(names):
            return found
    return []


async def chain_when(got: list[Any], stack: Rig, document: str, *names: str) -> list[Any]:
    deadline = time.monotonic() + PATIENCE
    while not (found := chain(list(got), document, *names)):
        known = sorted({(span.name, said(span).get("docdelta.document", "")) for span in list(got)})
        assert time.monotonic() < deadline, f"only {known}\n{stack.log()[-3000:]}"
        await asyncio.sleep(0.2)
    return found


async def test_one_trace_leads_from_the_sender_to_the_index(tansu_settings: KafkaSettings, tmp_path: Path, fresh: str) -> None:
    """Whoever sends: `put`, a folder's sync through the bulk lane, and a re-index, which goes on with the trace that it found."""
    async with rig(tansu_settings, tmp_path, fresh) as stack:
        with collector() as (url, got):
            on = {"DOCDELTA_OTEL__ENDPOINT": url}
            stack.start(**on)
            (tmp_path / "page.md").write_text(a_page("p") + f"\n\n{SECRET}\n", encoding="utf-8")
            (tmp_path / "docs").mkdir()
            (tmp_path / "docs/q.md").write_text(a_page("q") + f"\n\n{SECRET}\n", encoding="utf-8")
            await done(stack, "put", "page.md", "--tenant", "acme", "--id", "p", "--title", SECRET, **on)
            put = await chain_when(got, stack, "p", "send upsert", "parser", "chunker", "indexer")
            await done(stack, "sync", "docs", "--tenant", "acme", "--lane", "bulk", **on)
            await chain_when(got, stack, "q.md", "send upsert", "feeder", "parser", "chunker", "indexer")
            await done(stack, "reindex", "acme/p", **on)
            await chain_when(got, stack, "p", "send upsert", "send reindex", "parser", "chunker", "indexer")
            assert await stack.stop() == 0, stack.log()
            spans = list(got)
    calls = [span for span in spans if span.parent_span_id == put[-1].span_id]
    assert {"embed", "index: write"} <= {span.name.partition(",")[0] for span in calls}
    assert {span.trace_id for span in [*put, *calls]} == {put[0].trace_id}
    assert said(put[-1])["docdelta.outcome"] == "indexed"
    assert SECRET.encode() not in b"".join(span.SerializeToString() for span in spans), "no text, no title"
    assert "indexed" in stack.log(), "the line of each document is there"
    assert SECRET not in stack.log()


async def done(stack: Rig, *arguments: str, **environment: str) -> None:
    command = await stack.docdelta(*arguments, **environment)
    assert command.returncode == 0, command.stderr
