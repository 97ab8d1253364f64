"""Chunk ids and the three fingerprints. An id is a promise: nothing enters it that can change while the passage stays.

Two recipes, named by the policy:
  content/1  scheme, tenant, document, policy fingerprint, embed string, number among equals. Moves keep the id.
  strict/1   scheme, tenant, document, revision, policy version, ordinal, heading path, text. Every revision is new.
"""

from __future__ import annotations

import hashlib
import json
import uuid
from collections.abc import Mapping
from typing import Any

import orjson

from chunking.document import DocumentKey

CONTENT = "content/1"
STRICT = "strict/1"
RECIPES = (CONTENT, STRICT)
_PREFIX = "chk_"


def length_prefixed(*fields: str) -> bytes:
    """Return an unambiguous encoding of fields: each as its UTF-8 length, a colon, its bytes. ("ab","c") != ("a","bc")."""
    parts = []
    for text in fields:
        data = text.replace("\r\n", "\n").replace("\r", "\n").encode("utf-8", "surrogatepass")
        parts.append(b"%d:" % len(data) + data)
    return b"".join(parts)


def digest(*fields: str) -> str:
    """Return SHA-256 over length-prefixed fields as 64 hex digits."""
    return hashlib.sha256(length_prefixed(*fields)).hexdigest()


def content_id(key: DocumentKey, policy_fingerprint: str, embed_text: str, twin: int) -> str:
    """Return the id of a passage: same document, policy and embedded words give the same id on every machine.

    `twin` numbers equal passages within the document, from 0, in document order.
    """
    return _PREFIX + digest(CONTENT, key.tenant, key.document, policy_fingerprint, embed_text, str(twin))


def strict_id(key: DocumentKey, revision: int, policy_version: str, ordinal: int, heading_path: tuple[str, ...], text: str) -> str:
    """Return the id of a passage of one revision: fully determined by it, new with every revision."""
    path = json.dumps(heading_path, ensure_ascii=False)
    return _PREFIX + digest(STRICT, key.tenant, key.document, str(revision), policy_version, str(ordinal), path, text)


def parent_id(key: DocumentKey, policy_fingerprint: str, text: str, twin: int) -> str:
    """Return the id of a PARENT chunk, which has no embed string: the same promise, over its text."""
    return _PREFIX + digest("parent/1", key.tenant, key.document, policy_fingerprint, text, str(twin))


def embed_hash(embedding_spec: str, embed_text: str) -> str:
    """Return the fingerprint that decides whether a vector is needed: embedding spec and the exact embedded string."""
    return digest("embed/1", embedding_spec, embed_text)


def payload_hash(payload: Mapping[str, Any]) -> str:
    """Return the fingerprint that decides whether a payload write is needed (32 hex digits, key order does not matter)."""
    return hashlib.sha256(canonical_json(payload)).hexdigest()[:32]


def canonical_json(value: Mapping[str, Any]) -> bytes:
    """Return JSON in UTF-8 with sorted keys and no spaces, as Python's own json writes it; sets and the like become lists.

    What is fingerprinted over it stands in every index and manifest, so the bytes are for ever. orjson writes the same in a tenth
    of the time, but for floats, and refuses half surrogates and integers over 64 bits.
    """
    if not _may_hold_float(dict(value)):
        try:
            return orjson.dumps(value, default=list, option=orjson.OPT_SORT_KEYS)
        except orjson.JSONEncodeError:
            pass
    text = json.dumps(value, ensure_ascii=False, sort_keys=True, separators=(",", ":"), default=list)
    return text.encode("utf-8", "surrogatepass")


def _may_hold_float(value: object) -> bool:
    if value is None or isinstance(value, str | int):
        return False
    if isinstance(value, dict):
        return any(map(_may_hold_float, value.values()))
    return not isinstance(value, list | tuple) or any(map(_may_hold_float, value))


def point_id(chunk_id: str) -> str:
    """Return the Qdrant point id of a chunk: a UUID of the first 128 bits of its digest. Raises ValueError on other text."""
    if not chunk_id.startswith(_PREFIX) or len(chunk_id) != len(_PREFIX) + 64:
        raise ValueError(f"not a chunk id: {chunk_id[:80]!r}")
    return str(uuid.UUID(hex=chunk_id[len(_PREFIX) : len(_PREFIX) + 32]))
