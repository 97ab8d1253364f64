"""Bytes of a file to the content of a DocumentChange: as text where they are clean UTF-8, as base64 where not, or by reference."""

from __future__ import annotations

import base64
import hashlib
import os
import stat
from pathlib import Path
from typing import Any

from pydantic import ValidationError

from schemas.codec import encode
from schemas.document_change import Content, DocumentChange
from streams.errors import UsageError
from streams.topics import MAX_EVENT_BYTES

_ROOM = 1024
"""Bytes left free for the record's key, headers and framing."""


def read_file(path: Path, most_bytes: int = -1) -> bytes:
    """Return the bytes of a file, or only its first `most_bytes`. Raises OSError, also where a device, pipe or socket has the name:
    a folder that is watched may hold a link to anything, and reading some of them never ends."""
    with open(os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC), "rb") as file:
        if not stat.S_ISREG(os.fstat(file.fileno()).st_mode):
            raise OSError(None, "it is no file but a folder, device, pipe or socket")
        return file.read(most_bytes)


def change_of(**fields: Any) -> DocumentChange:
    """Return a change of what a person said. Raises UsageError naming the first field that can't stand in an event."""
    try:
        return DocumentChange(**fields)
    except ValidationError as error:
        fault = error.errors(include_url=False, include_input=False)[0]
        place = ".".join(str(step) for step in fault["loc"]) or "event"
        raise UsageError(f"{place}: {fault['msg'].removeprefix('Value error, ')}") from error


def content_of(data: bytes, media_type: str) -> Content:
    """Return the bytes as `text` where nothing is lost by it, else as `base64`. The sha256 is over the bytes either way."""
    digest = hashlib.sha256(data).hexdigest()
    if media_type.startswith("text/") and b"\x00" not in data:
        try:
            return Content(text=data.decode("utf-8"), sha256=digest)
        except UnicodeDecodeError:
            pass
    return Content(base64=base64.b64encode(data).decode("ascii"), sha256=digest)


def reference_to(path: Path, data: bytes) -> Content:
    """Return a ``file:`` reference that a worker on this machine may read, if `parser.ref_roots` names a folder above it."""
    return Content(ref=path.resolve().as_uri(), sha256=hashlib.sha256(data).hexdigest())


def fits(change: DocumentChange) -> bool:
    """Return whether a change is small enough for the documents topic."""
    return len(encode(change)) + _ROOM <= MAX_EVENT_BYTES


def too_large(path: Path, size: int) -> str:
    """Return what to tell a person whose file is over the limit."""
    return (
        f"{path} has {size:,} bytes, too large for one event ({MAX_EVENT_BYTES:,} bytes): send it with --ref "
        "(the worker then reads the file itself; allow its folder in parser.ref_roots), or split the page"
    )
