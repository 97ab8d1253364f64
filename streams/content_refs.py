"""Fetches what `content.ref` names: a file under an allowed folder, or a URL on an allowed host. Nothing is allowed by default.

A URL that keeps failing is waited for, and its partition with it: for as long as its host is away, but no longer than `patience`
where the host is there for others. The host is there if another of its URLs, or else its front page, could be had since.
"""

from __future__ import annotations

import asyncio
import errno
import os
import stat
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import unquote, urlsplit

import aiohttp

from streams.errors import PoisonRecord, Unavailable
from streams.patience import LONGEST_ASKED_SECONDS

TIMEOUT_SECONDS = 60.0
_ASKED_TO_WAIT = frozenset({408, 425, 429})
"""Answers about the asking, not about what is asked for: waited for, however long."""
_COMES_BACK = frozenset(
    {errno.EIO, errno.EAGAIN, errno.EINTR, errno.EMFILE, errno.ENFILE, errno.ENOMEM, errno.ESTALE, errno.ETIMEDOUT, errno.ENOTCONN}
)
"""Errors of a file system that is in trouble. All others are about this one file."""


class _HostAsksToWait(Unavailable):
    """The host is there and has no time for us."""


@dataclass(slots=True)
class _Trouble:
    """A URL that could not be had: since when, and when it was tried last."""

    since: float
    last: float


class ContentRefs:
    """Reads references within `roots` (folders) and from `hosts` (names, with port where it is not the usual one).

    patience: seconds for which one URL may fail while its host is there. now: a clock that only goes forward, in seconds.
    """

    def __init__(
        self,
        roots: Sequence[Path],
        hosts: Sequence[str],
        patience: float = 600.0,
        now: Callable[[], float] = time.monotonic,
    ) -> None:
        self._roots = [root.resolve() for root in roots]
        self._hosts = frozenset(host.lower() for host in hosts)
        self._patience = patience
        self._now = now
        self._troubles: dict[str, _Trouble] = {}
        """By URL: only those that are being waited for, so no more than records in work."""
        self._answered: dict[str, float] = {}
        """Host to when it last gave an answer that is not its own trouble."""

    async def fetch(self, reference: str, max_bytes: int) -> bytes:
        """Return the bytes behind a reference. Raises PoisonRecord (not allowed, missing, too large, failing for too long) or
        Unavailable.

        Only what may well come back is Unavailable: one event that is waited for holds its partition.
        """
        try:
            parts = urlsplit(reference)
        except ValueError as error:
            raise PoisonRecord(f"content.ref is no address: {error}") from error
        if parts.scheme in ("http", "https"):
            return await self._with_patience(reference, parts.scheme, parts.netloc.lower(), max_bytes)
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

    async def _with_patience(self, reference: str, scheme: str, host: str, max_bytes: int) -> bytes:
        """Return what a URL leads to. PoisonRecord once it has failed for too long while its host is there."""
        try:
            data = await self._from_host(reference, host, max_bytes)
        except PoisonRecord:
            self._troubles.pop(reference, None)
            raise
        except _HostAsksToWait:
            raise
        except Unavailable as error:
            seconds = await self._failing_for(reference, scheme, host)
            if seconds is None:
                raise
            reason = f"{error} for {seconds:.0f} s, while its host is there for others; mend it, then replay this dead letter"
            raise PoisonRecord(reason) from error
        self._troubles.pop(reference, None)
        self._answered[host] = self._now()
        return data

    async def _failing_for(self, reference: str, scheme: str, host: str) -> float | None:
        """Take note of a failure. Returns for how long the URL has failed, if that is too long and its host is there."""
        now = self._now()
        self._forget(now)
        trouble = self._troubles.setdefault(reference, _Trouble(now, now))
        trouble.last = now
        if now - trouble.since < self._patience:
            return None
        if self._answered.get(host, -1.0) <= trouble.since and not await self._has_front_page(f"{scheme}://{host}/"):
            return None
        del self._troubles[reference]
        return now - trouble.since

    def _forget(self, now: float) -> None:
        """Drop URLs that nobody waits for any more: their records went to another worker."""
        for url, trouble in list(self._troubles.items()):
            if now - trouble.last > LONGEST_ASKED_SECONDS + 2 * TIMEOUT_SECONDS:
                del self._troubles[url]

    async def _has_front_page(self, address: str) -> bool:
        """Return whether a host answers at all, and not with trouble of its own."""
        try:
            async with (
                aiohttp.ClientSession(timeout=aiohttp.ClientTimeout(total=TIMEOUT_SECONDS)) as session,
                session.get(address, allow_redirects=False) as answer,
            ):
                return answer.status < 500 and answer.status not in _ASKED_TO_WAIT
        except (aiohttp.ClientError, TimeoutError):
            return False

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
                if 400 <= answer.status < 500 and answer.status not in _ASKED_TO_WAIT:
                    raise PoisonRecord(f"content.ref answers {answer.status}; send the change again once it is there to be read")
                if answer.status != 200:
                    retry_after = _retry_after(answer.headers.get("Retry-After"))
                    family = _HostAsksToWait if answer.status in _ASKED_TO_WAIT else Unavailable
                    raise family(f"content.ref answers {answer.status}", retry_after=retry_after)
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
