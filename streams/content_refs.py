"""Fetches what `content.ref` names: a file under an allowed folder, or a URL on an allowed host. Nothing is allowed by default."""

from __future__ import annotations

import asyncio
import errno
import os
import stat
from collections.abc import Sequence
from pathlib import Path
from urllib.parse import unquote, urlsplit

import aiohttp

from streams.errors import PoisonRecord, Unavailable

TIMEOUT_SECONDS = 60.0
_COMES_BACK = frozenset(
    {errno.EIO, errno.EAGAIN, errno.EINTR, errno.EMFILE, errno.ENFILE, errno.ENOMEM, errno.ESTALE, errno.ETIMEDOUT, errno.ENOTCONN}
)
"""Errors of a file system that is in trouble. All others are about this one file."""


class ContentRefs:
    """Reads references within `roots` (folders) and from `hosts` (names, with port where it is not the usual one)."""

    def __init__(self, roots: Sequence[Path], hosts: Sequence[str]) -> None:
        self._roots = [root.resolve() for root in roots]
        self._hosts = frozenset(host.lower() for host in hosts)

    async def fetch(self, reference: str, max_bytes: int) -> bytes:
        """Return the bytes behind a reference. Raises PoisonRecord (not allowed, missing, too large) or Unavailable.

        Only what may well come back is Unavailable: one event that is waited for holds its partition.
        """
        try:
            parts = urlsplit(reference)
        except ValueError as error:
            raise PoisonRecord(f"content.ref is no address: {error}") from error
        if parts.scheme in ("http", "https"):
            return await self._from_host(reference, parts.netloc.lower(), max_bytes)
        if parts.scheme not in ("file", ""):
            raise PoisonRecord(f"content.ref has scheme {parts.scheme!r}; use file, http or https")
        if parts.netloc not in ("", "localhost"):
            raise PoisonRecord(
                f"content.ref names a file on host {parts.netloc!r}; name one that this worker has: file:///folder/file"
            )
        return await asyncio.to_thread(self._from_folder, unquote(parts.path), max_bytes)

    def _from_folder(self, name: str, max_bytes: int) -> bytes:
        try:
            target = Path(name).resolve()
            if not any(target.is_relative_to(root) for root in self._roots):
                raise PoisonRecord(
                    "content.ref is outside the folders of parser.ref_roots; add its folder there or send the content"
                )
            # Opened without waiting for a writer: a named pipe would hold this thread for ever.
            with open(os.open(target, os.O_RDONLY | os.O_NONBLOCK | os.O_NOFOLLOW | os.O_CLOEXEC), "rb") as file:
                if not stat.S_ISREG(os.fstat(file.fileno()).st_mode):
                    raise PoisonRecord("content.ref names no file; send the change again once it is there")
                data = file.read(max_bytes + 1)
        except OSError as error:
            if error.errno in _COMES_BACK:
                raise Unavailable(f"content.ref can't be read: {error.strerror}") from error
            raise PoisonRecord(
                f"content.ref names no file that can be read: {error.strerror}; send the change again then"
            ) from error
        except (ValueError, RuntimeError) as error:  # a NUL in the name, a circle of links
            raise PoisonRecord(f"content.ref names no file: {error}") from error
        return _within(data, max_bytes)

    async def _from_host(self, reference: str, host: str, max_bytes: int) -> bytes:
        if host not in self._hosts:
            raise PoisonRecord(f"host {host!r} of content.ref is not in parser.ref_hosts; add it there or send the content")
        try:
            async with (
                aiohttp.ClientSession(timeout=aiohttp.ClientTimeout(total=TIMEOUT_SECONDS)) as session,
                session.get(reference, allow_redirects=False) as answer,
            ):
                if 300 <= answer.status < 400:
                    raise PoisonRecord(f"content.ref answers {answer.status}: redirects are not followed; send where it leads")
                if 400 <= answer.status < 500 and answer.status not in (408, 425, 429):
                    raise PoisonRecord(f"content.ref answers {answer.status}; send the change again once it is there to be read")
                if answer.status != 200:
                    retry_after = _retry_after(answer.headers.get("Retry-After"))
                    raise Unavailable(f"content.ref answers {answer.status}", retry_after=retry_after)
                data = await answer.content.read(max_bytes + 1)
                while len(data) <= max_bytes and not answer.content.at_eof():
                    data += await answer.content.read(max_bytes + 1 - len(data))
        except (aiohttp.InvalidURL, ValueError) as error:
            raise PoisonRecord(f"content.ref is no address: {error}") from error
        except (aiohttp.ClientError, TimeoutError) as error:
            raise Unavailable(f"content.ref can't be fetched: {type(error).__name__}") from error
        return _within(data, max_bytes)


def _within(data: bytes, max_bytes: int) -> bytes:
    if len(data) > max_bytes:
        raise PoisonRecord(f"content.ref has more than {max_bytes} bytes (parser.max_document_bytes); split it or raise the limit")
    return data


def _retry_after(header: str | None) -> float | None:
    return float(header) if header is not None and header.isdecimal() else None
