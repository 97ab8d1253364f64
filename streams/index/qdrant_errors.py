"""What an error of Qdrant means for us. One table for a server (HTTP) and for local mode (Python errors).

| what came                                             | while writing            | while reading            |
|-------------------------------------------------------|--------------------------|--------------------------|
| 429 (with or without Retry-After)                     | Unavailable(retry_after) | the same                 |
| 408, 5xx, timeout, connection, unreadable answer      | Unavailable              | the same                 |
| 500 or local "no space left" / "disk is full"         | Unavailable(disk_full)   | the same                 |
| 401, 403                                              | NotAuthorised            | the same                 |
| 404 collection                                        | InvariantBroken          | NotPrepared              |
| 400 dimension, vector name, missing index             | InvariantBroken          | NotPrepared              |
| other 400, 413, 422                                   | PoisonRecord             | NotPrepared              |
| any other status not in Qdrant's words (a proxy's)    | Unavailable              | the same                 |
| anything else                                         | InvariantBroken          | InvariantBroken          |
"""

from __future__ import annotations

import json
import re
import sqlite3
from collections.abc import Iterator
from contextlib import contextmanager

from streams import metrics, telemetry
from streams.errors import DocdeltaError, InvariantBroken, NotAuthorised, NotPrepared, PoisonRecord, Unavailable
from streams.index.client import (
    ApiException,
    QdrantException,
    ResourceExhaustedResponse,
    ResponseHandlingException,
    UnexpectedResponse,
)

KNOWN = (ApiException, QdrantException, sqlite3.Error, OSError, ValueError, KeyError, RuntimeError, AssertionError)
_NO_ANSWER = (ApiException, QdrantException, json.JSONDecodeError, UnicodeDecodeError, AssertionError)
"""Nothing came, or nothing that the client can read: a 200 from a proxy is a JSONDecodeError, one without result an assertion."""
_NO_SPACE = re.compile(r"no space left|disk is full|disk quota", re.IGNORECASE)
_NO_COLLECTION = re.compile(r"collection\b.*(doesn't exist|not found)", re.IGNORECASE | re.DOTALL)
_OTHER_SHAPE = re.compile(r"dimension error|vector name|index required", re.IGNORECASE)
_QUOTE = 300


@contextmanager
def translated(action: str, collection: str, writing: bool = False, **facts: object) -> Iterator[None]:
    """Turn any known error of the block into one of ours, naming the action (one of `metrics.INDEX_ACTIONS`) and the collection."""
    try:
        with (
            metrics.index_action(action),
            telemetry.call(f"index: {action}", **{"db.system.name": "qdrant", "db.collection.name": collection}),
        ):
            yield
    except DocdeltaError:
        raise
    except KNOWN as error:
        metrics.index_failed(action, status_of(error), bool(_NO_SPACE.search(words_of(error))))
        raise _translate(error, action, collection, writing, facts) from error


def status_of(error: Exception) -> int | None:
    """Return the HTTP status that a server gives (or, for a local error, would give); None for no answer at all."""
    if isinstance(error, UnexpectedResponse):
        return error.status_code
    if isinstance(error, ResourceExhaustedResponse):
        return 429
    words = words_of(error)
    if isinstance(error, _NO_ANSWER):
        return None
    if isinstance(error, (sqlite3.Error, OSError)):
        return 500
    if isinstance(error, KeyError) or _NO_COLLECTION.search(words):
        return 404
    if isinstance(error, ValueError):
        return 400 if "already exists" not in words or words.startswith("Alias") else 409
    return 500


def words_of(error: Exception) -> str:
    """Return what the other side said, shortened."""
    if isinstance(error, UnexpectedResponse):
        try:
            words = str(json.loads(error.content)["status"]["error"])
        except (ValueError, KeyError, TypeError):
            words = error.content[:_QUOTE].decode("utf-8", "replace") or error.reason_phrase
    elif isinstance(error, ResponseHandlingException):
        words = f"{type(error.source).__name__}: {error.source}"
    else:
        words = str(error) or type(error).__name__
    return words[:_QUOTE]


def _translate(error: Exception, action: str, collection: str, writing: bool, facts: dict[str, object]) -> DocdeltaError:
    status, words = status_of(error), words_of(error)
    facts = {"collection": collection, **facts}
    retry_after: float | None = None
    if isinstance(error, ResourceExhaustedResponse):
        retry_after = float(error.retry_after_s)
    if status == 429:
        return Unavailable(f"index limits the rate at {action}: {words}", retry_after, **facts)
    if _NO_SPACE.search(words):
        return Unavailable(f"index has no disk space at {action}: {words}", None, disk_full=True, **facts)
    if isinstance(error, RuntimeError) and ("closed" in words or "shutdown" in words):
        return InvariantBroken(f"index was used after it was closed, at {action}", **facts)
    if status is None or status == 408 or status >= 500:
        return Unavailable(f"index did not answer at {action}: {words}", None, **facts)
    if status in (401, 403):
        return NotAuthorised(f"index refuses the key at {action}: {words}; check DOCDELTA_QDRANT__API_KEY", **facts)
    if status == 404 and _NO_COLLECTION.search(words):
        lost = f"collection {collection} does not exist"
        if writing:
            return InvariantBroken(f"{lost}: it was removed while its batch is live", **facts)
        return NotPrepared(f"{lost}: create it with docdelta init --policy FILE, or check DOCDELTA_QDRANT__ALIAS", **facts)
    if status in (400, 413, 422):
        if not writing:
            return NotPrepared(f"index refuses {action}: {words}", **facts)
        if _OTHER_SHAPE.search(words):
            return InvariantBroken(f"collection does not fit its batch at {action}: {words}", **facts)
        return PoisonRecord(f"index refuses {action}: {words}", **facts)
    if not in_qdrants_words(error):
        elsewhere = f"something else than Qdrant answers {status} at {action}: {words}; check DOCDELTA_QDRANT__URL"
        return Unavailable(elsewhere, None, **facts)
    return InvariantBroken(f"index answered {status} at {action}: {words}", **facts)


def in_qdrants_words(error: Exception) -> bool:
    """Return whether an answer is in Qdrant's words. A proxy whose backend is away answers 404 or a redirect in its own."""
    if not isinstance(error, UnexpectedResponse):
        return True
    try:
        return "status" in json.loads(error.content)
    except (ValueError, TypeError):
        return False
