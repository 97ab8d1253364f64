"""Marks: two small payload fields of every point, by which an audit finds what is wrong without reading points.

`bucket` says which group of documents a point belongs to: its partition of Kafka in the high bits, a hash of tenant and document
in the low ones. So a range of buckets holds whole documents of one partition, and its owner can audit it alone. `digest` is a hash
of all that a manifest says of the point: id, payload hash, order key. One facet over `digest` within a range of buckets tells how
often each digest stands there: what is missing, left over or written otherwise shows as a count that differs.

The marks stay in the index: readers of `VectorIndex` never see them, no fingerprint knows them. A point written before there were
marks has none and is read in full. Marks choose what is looked at; the verdict is made from the points themselves.
"""

from __future__ import annotations

from collections.abc import Mapping
from hashlib import blake2b
from typing import Any

BUCKET = "bucket"
DIGEST = "digest"
MARKS = (BUCKET, DIGEST)
BUCKETS = 1 << 16
"""Buckets of one partition."""
DIGESTS = 1 << 20
"""Values of a digest. A wrong point has the digest of a right one of its range with a chance of about one in a million."""


def bucket_of(partition: int, tenant_id: str, document_id: str) -> int:
    """Return the bucket of a document that travels in this partition."""
    return partition * BUCKETS + _hashed(f"{tenant_id}/{document_id}") % BUCKETS


def digest_of(chunk_id: str, payload_hash: str, order_key: int) -> int:
    """Return the digest of a point."""
    return _hashed(f"{chunk_id} {payload_hash} {order_key}") % DIGESTS


def marks_of(chunk_id: str, payload: Mapping[str, Any], partition: int) -> dict[str, int]:
    """Return the marks of a point with this payload. Any payload has some, so that nothing that is written goes unseen."""
    order_key = payload.get("order_key")
    return {
        BUCKET: bucket_of(partition, str(payload.get("tenant_id")), str(payload.get("document_id"))),
        DIGEST: digest_of(chunk_id, str(payload.get("payload_hash")), order_key if isinstance(order_key, int) else -1),
    }


def unmarked(payload: Mapping[str, Any] | None) -> dict[str, Any]:
    """Return a payload as readers see it: without marks."""
    return {name: value for name, value in (payload or {}).items() if name not in MARKS}


def _hashed(text: str) -> int:
    return int.from_bytes(blake2b(text.encode("utf-8", "surrogatepass"), digest_size=8).digest(), "big")
