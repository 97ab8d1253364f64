"""A sample of points, read in full: is the payload the one of its hash, is the vector that of its text?

Marks can't see either: a payload edited by hand keeps its digest, a vector has none. A vector is made anew from the text that the
payload amounts to (proved by its embed_hash) and compared by its direction. The same text gives the same direction up to the last
digits of float32; with one word of a long passage changed, the USE model gave 0.9985 at most (measured on the sample site). Integer
models may round otherwise on another processor, so the limit leaves them room.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np

from chunking.identity import embed_hash, payload_hash
from chunking.policy import ChunkPolicy
from streams.index.marks import MARKS
from streams.ports import Vector

LEAST_COSINE = 0.999
LENGTH_TOLERANCE = 0.01
"""How much the lengths of two vectors may differ, as a share, where the collection's distance is not cosine."""
PLACEMENT = frozenset({"revision", "order_key", "payload_hash", *MARKS})
"""Fields that a payload's hash leaves out."""


def is_edited(payload: Mapping[str, Any]) -> bool:
    """Return whether a payload is not the one that its own hash was made of."""
    said = {name: value for name, value in payload.items() if name not in PLACEMENT}
    return payload_hash(said) != payload.get("payload_hash")


def embed_text_of(payload: Mapping[str, Any], policy: ChunkPolicy) -> str | None:
    """Return the exact string that was embedded for a point, or None where the payload does not tell it."""
    for text in _candidates(payload, policy):
        if embed_hash(policy.embedding.spec, text) == payload.get("embed_hash"):
            return text
    return None


def _candidates(payload: Mapping[str, Any], policy: ChunkPolicy) -> Iterator[str]:
    """Yield what chunking/chunker.py may have made of it: context shortened from the outside in until it fitted."""
    body = str(payload.get("repeat", "")) + str(payload.get("rendering", payload.get("text", "")))
    context = [str(payload["title"])] if policy.embed.title and payload.get("title") else []
    context += [str(heading) for heading in payload.get("heading_path") or ()] if policy.embed.heading_path else []
    prefix = policy.embedding.document_prefix
    for start in range(len(context)):
        yield prefix + " > ".join(context[start:]) + "\n\n" + body
    yield prefix + body
    yield ""  # a parent


def differs(stored: Vector | None, fresh: Vector, distance: str) -> str:
    """Return in words how a stored vector differs from the one made anew; empty when it does not."""
    if stored is None:
        return "no vector"
    if stored.shape != fresh.shape:
        return f"{stored.size} dimensions, the model gives {fresh.size}"
    lengths = float(np.linalg.norm(stored)), float(np.linalg.norm(fresh))
    if not np.isfinite(lengths[0]) or min(lengths) == 0:
        return "no direction"
    cosine = float(np.dot(stored.astype(np.float64), fresh.astype(np.float64))) / (lengths[0] * lengths[1])
    if cosine < LEAST_COSINE:
        return f"cosine {cosine:.4f} to that of its text"
    if distance != "cosine" and abs(lengths[0] / lengths[1] - 1) > LENGTH_TOLERANCE:
        return f"length {lengths[0]:.4g}, that of its text has {lengths[1]:.4g}"
    return ""
