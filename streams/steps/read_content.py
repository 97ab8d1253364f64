"""Content of a change to bytes or text: base64 decoded, size and SHA-256 checked. References are fetched by the edge first."""

from __future__ import annotations

import base64
import binascii
import hashlib

from schemas.document_change import Content
from streams.errors import PoisonRecord


def read_content(content: Content, max_bytes: int, fetched: bytes | None = None) -> bytes | str:
    """Return the body: text as it is, other content as bytes. `fetched` is what `content.ref` led to.

    Raises PoisonRecord: wrong base64, wrong sha256, too large.
    """
    if content.text is not None:
        _check_size(len(content.text.encode("utf-8")), max_bytes)
        if content.sha256 is not None:
            _check_digest(content.text.encode("utf-8"), content.sha256, "content.text")
        return content.text
    if content.base64 is not None:
        _check_size(len(content.base64) * 3 // 4, max_bytes)
        try:
            data = base64.b64decode(content.base64, validate=True)
        except (binascii.Error, ValueError) as error:
            raise PoisonRecord(f"content.base64 is not base64: {error}; send RFC 4648 with padding") from error
        place = "content.base64"
    else:
        assert fetched is not None, "a reference must be fetched before it is read"
        data, place = fetched, "content.ref"
    _check_size(len(data), max_bytes)
    if content.sha256 is not None:
        _check_digest(data, content.sha256, place)
    return data


def _check_size(size: int, max_bytes: int) -> None:
    if size > max_bytes:
        raise PoisonRecord(f"content has {size} bytes, above parser.max_document_bytes {max_bytes}; split it or raise the limit")


def _check_digest(data: bytes, expected: str, place: str) -> None:
    actual = hashlib.sha256(data).hexdigest()
    if actual != expected:
        raise PoisonRecord(f"{place} has sha256 {actual[:12]}…, but {expected[:12]}… was announced; send what you meant again")
