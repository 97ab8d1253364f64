"""The three calls that carry nearly all of the traffic, straight over HTTP: a batch of writes, points by id, a page of points.

The client's own transport takes a third of an indexer's processor time: it looks over all its connections at every request, and
walks every vector in pydantic. Answers and errors are the client's: `qdrant_errors` sorts both the same way.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any
from urllib.parse import quote

import aiohttp
import httpx
import orjson

from streams.index.client import ResourceExhaustedResponse, ResponseHandlingException, UnexpectedResponse, models
from streams.index.points import wire

CONNECTIONS = 128
IDLE_SECONDS = 3.0
"""Idle connections are closed before the server closes them, which it does after 5 s."""


class Rest:
    """A session of one event loop, opened at the first request."""

    def __init__(self, base: str, api_key: str, timeout_seconds: float) -> None:
        self._base = base.rstrip("/")
        self._headers = {"Content-Type": "application/json", **({"api-key": api_key} if api_key else {})}
        self._timeout = aiohttp.ClientTimeout(total=None, connect=timeout_seconds, sock_read=timeout_seconds)
        self._session: aiohttp.ClientSession | None = None

    async def post(self, collection: str, call: str, body: Mapping[str, Any], **params: str) -> Any:
        """Return what stands under `result` in the answer to ``POST /collections/<collection>/<call>``.

        Raises as the client does: ResponseHandlingException for no answer, UnexpectedResponse, ResourceExhaustedResponse for a 429
        with a time; JSONDecodeError or AssertionError for an answer that is none of Qdrant's.
        """
        url = f"{self._base}/collections/{quote(collection, safe='')}/{call}"
        try:
            async with self._opened().post(url, data=wire(body), params=params, allow_redirects=False) as answer:
                content = await answer.read()
        except (aiohttp.ClientError, TimeoutError, OSError) as error:
            raise ResponseHandlingException(error) from error
        if answer.status not in (200, 201, 202):
            refusal = UnexpectedResponse(answer.status, answer.reason or "", content, httpx.Headers(dict(answer.headers)))
            if answer.status == 429 and (seconds := answer.headers.get("Retry-After")):
                raise ResourceExhaustedResponse(_words(content), seconds) from refusal  # type: ignore[arg-type]
            raise refusal
        told = orjson.loads(content)
        assert isinstance(told, dict), "answer is no object"
        assert "result" in told, "answer has no result"
        return told["result"]

    def _opened(self) -> aiohttp.ClientSession:
        if self._session is None:
            # The client's own certificates and environment (proxies, SSL_CERT_FILE) hold here too.
            tls = httpx.create_ssl_context() if self._base.startswith("https") else True
            connector = aiohttp.TCPConnector(limit=CONNECTIONS, keepalive_timeout=IDLE_SECONDS, ssl=tls)
            self._session = aiohttp.ClientSession(
                connector=connector,
                headers=self._headers,
                timeout=self._timeout,
                trust_env=True,
            )
        return self._session

    async def close(self) -> None:
        """Close the connections."""
        if self._session is not None:
            await self._session.close()


def record(told: Mapping[str, Any]) -> models.Record:
    """Return a point of an answer as the client gives it."""
    vectors = told.get("vector")
    if isinstance(vectors, dict):
        vectors = {
            name: models.SparseVector.model_construct(**value) if isinstance(value, dict) else value
            for name, value in vectors.items()
        }
    return models.Record.model_construct(id=told["id"], payload=told.get("payload"), vector=vectors)


def _words(content: bytes) -> str:
    try:
        return str(orjson.loads(content)["status"]["error"])
    except (ValueError, KeyError, TypeError):
        return ""
