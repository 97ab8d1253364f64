"""Fetches what `content.ref` names: a file under an allowed folder, or a URL on an allowed host. Nothing is allowed by default."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from pathlib import Path
from urllib.parse import unquote, urlsplit

import aiohttp

from streams.errors import PoisonRecord, Unavailable

TIMEOUT_SECONDS = 60.0


class ContentRefs:
    """Reads references within `roots` (folders) and from `hosts` (names, with port where it is not the usual one)."""

    def __init__(self, roots: Sequence[Path], hosts: Sequence[str]) -> None:
        self._roots = [root.resolve() for root in roots]
        self._hosts = frozenset(host.lower() for host in hosts)

    async def fetch(self, reference: str, max_bytes: int) -> bytes:
        """Return the bytes behind a reference. Raises PoisonRecord (not allowed, missing, too large) or Unavailable."""
        parts = urlsplit(reference)
        if parts.scheme in ("http", "https"):
            return await self._from_host(reference, parts.netloc.lower(), max_bytes)
        if parts.scheme in ("file", ""):
            return await asyncio.to_thread(self._from_folder, Path(unquote(parts.path)), max_bytes)
        raise PoisonRecord(f"content.ref has scheme {parts.scheme!r}; use file, http or https")

    def _from_folder(self, path: Path, max_bytes: int) -> bytes:
        target = path.resolve()
        if not any(target.is_relative_to(root) for root in self._roots):
            raise PoisonRecord("content.ref is outside the folders of parser.ref_roots; add its folder there or send the content")
        try:
            if target.stat().st_size > max_bytes:
                raise PoisonRecord(f"content.ref has {target.stat().st_size} bytes, above parser.max_document_bytes {max_bytes}")
            return target.read_bytes()
        except (FileNotFoundError, IsADirectoryError, NotADirectoryError) as error:
            raise PoisonRecord("content.ref names no file; send the change again once it is there") from error
        except OSError as error:
            raise Unavailable(f"content.ref can't be read: {error.strerror}") from error

    async def _from_host(self, reference: str, host: str, max_bytes: int) -> bytes:
        if host not in self._hosts:
            raise PoisonRecord(f"host {host!r} of content.ref is not in parser.ref_hosts; add it there or send the content")
        try:
            async with (
                aiohttp.ClientSession(timeout=aiohttp.ClientTimeout(total=TIMEOUT_SECONDS)) as session,
                session.get(reference, allow_redirects=False) as answer,
            ):
                if answer.status in (404, 410):
                    raise PoisonRecord(f"content.ref answers {answer.status}; send the change again once it is there")
                if answer.status != 200:
                    raise Unavailable(f"content.ref answers {answer.status}", retry_after=_retry_after(answer.headers.get("Retry-After")))
                data = await answer.content.read(max_bytes + 1)
                while len(data) <= max_bytes and not answer.content.at_eof():
                    data += await answer.content.read(max_bytes + 1 - len(data))
        except (aiohttp.ClientError, TimeoutError) as error:
            raise Unavailable(f"content.ref can't be fetched: {type(error).__name__}") from error
        if len(data) > max_bytes:
            raise PoisonRecord(f"content.ref has more than {max_bytes} bytes (parser.max_document_bytes)")
        return data


def _retry_after(header: str | None) -> float | None:
    return float(header) if header is not None and header.isdecimal() else None
