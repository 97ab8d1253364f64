"""What a chunk looks like as a point: its id, its payload, its vector checks, and how a plan is cut into requests.

Pure: nothing here talks to an index. `checked` is the gate that every plan passes before anything is sent; `requests_of` cuts what
passed.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from itertools import groupby
from typing import Any, Literal

import numpy as np
import orjson
from pydantic import BaseModel

from chunking.identity import point_id
from schemas.record import REVISION_LIMIT
from streams.errors import InvariantBroken, PoisonRecord
from streams.index.client import models
from streams.index.marks import marks_of
from streams.ports import CollectionSpec, IndexPlan, NewPoint, SparseVector, Vector

DENSE = "dense"
"""Name of the dense vector. Vectors are named so that a point may have none (PARENT chunks) or a sparse one beside it."""
SPARSE = "sparse"
"""Name of the sparse vector, where the policy has one."""
REQUEST_BYTES = 8 << 20
"""Requests stay below this estimate. The server refuses 32 MiB."""
REQUEST_POINTS = 256
POINT_BYTES = 30 << 20
"""A point above this fits into no request."""
_FLOAT_BYTES = 15
"""A float32 as its shortest text, with its comma."""
_TERM_BYTES = 33
"""An index and a value of a sparse vector as JSON."""
_POINT_FRAME_BYTES = 160
_PLACEMENT = frozenset({"revision", "order_key", "payload_hash"})
_SHORTEST_NORM_SQUARED = float(np.finfo(np.float32).eps)
"""Below this Qdrant's cosine does not normalise: the point would score as if it had no direction."""


def checked(plan: IndexPlan, spec: CollectionSpec) -> IndexPlan:
    """Return the plan with equal ids made one (the last wins), ready to be sent to a collection of this spec.

    Raises InvariantBroken where we made the mistake: another tenant's or document's payload, a payload without the fields that
    fences and readers need, an id both written and deleted, a vector of the wrong length (the model is not the collection's:
    every document would fail, so the worker must stop). Raises PoisonRecord where this one text is at fault: a vector that is
    not finite or has no direction (the same text gives the same vector again, so waiting would not help), a payload that is no
    JSON, a point too large. Nothing of the plan may have been sent before.
    """
    if not 0 <= plan.revision < REVISION_LIMIT:
        raise InvariantBroken("revision is outside 0..2^53", document_id=plan.document_id, revision=plan.revision)
    upserts = {point.chunk_id: point for point in plan.upserts}
    payloads = dict(plan.payloads)
    deletes = tuple(dict.fromkeys(plan.deletes))
    clash = next((chunk_id for chunk_id in deletes if chunk_id in upserts or chunk_id in payloads), None)
    if clash is not None:
        raise InvariantBroken("plan writes and deletes one chunk", document_id=plan.document_id, chunk_id=clash)
    for chunk_id, payload in [*((point.chunk_id, point.payload) for point in upserts.values()), *payloads.items()]:
        _check_payload(plan, chunk_id, payload)
    _check_vectors(tuple(upserts.values()), plan, spec)
    return replace(
        plan,
        upserts=tuple(upserts.values()),
        payloads=tuple(payloads.items()),
        stamps=tuple(dict.fromkeys(plan.stamps)),
        deletes=deletes,
    )


def _check_payload(plan: IndexPlan, chunk_id: str, payload: Mapping[str, Any]) -> None:
    expected = {"tenant_id": plan.tenant_id, "document_id": plan.document_id, "revision": plan.revision}
    for name, value in expected.items():
        if payload.get(name) != value:
            raise InvariantBroken(
                f"payload field {name} is {payload.get(name)!r}, the plan says {value!r}",
                document_id=plan.document_id,
                chunk_id=chunk_id,
            )
    order_key = payload.get("order_key")
    if type(order_key) is not int or not 0 <= order_key < REVISION_LIMIT:
        raise InvariantBroken(f"payload field order_key is {order_key!r}", document_id=plan.document_id, chunk_id=chunk_id)


def _check_vectors(points: Sequence[NewPoint], plan: IndexPlan, spec: CollectionSpec) -> None:
    """Check length, finiteness and direction of all vectors in one pass over one matrix; sparse ones one by one."""
    for point in points:
        _check_sparse(point, plan, spec)
    given = [(point.chunk_id, point.vector) for point in points if point.vector is not None]
    for chunk_id, vector in given:
        if vector.shape != (spec.dimensions,):
            raise InvariantBroken(
                f"vector has shape {vector.shape}, collection of batch {spec.batch} takes {spec.dimensions} dimensions: "
                "the running model is not the one the batch was made for",
                document_id=plan.document_id,
                chunk_id=chunk_id,
            )
    if not given:
        return
    unusable = np.flatnonzero(~has_direction(np.stack([vector for _, vector in given])))
    if unusable.size:
        raise PoisonRecord(
            "embedding is not finite or has no direction: the model can't embed this text; change the passage or the model",
            document_id=plan.document_id,
            chunk_id=given[int(unusable[0])][0],
            unusable=int(unusable.size),
        )


def _check_sparse(point: NewPoint, plan: IndexPlan, spec: CollectionSpec) -> None:
    wanted = bool(spec.sparse_spec) and point.vector is not None
    sparse = point.sparse
    if (sparse is not None) != wanted:
        raise InvariantBroken(
            f"point {'lacks a' if wanted else 'has a'} sparse vector, collection of batch {spec.batch} "
            f"{'has' if spec.sparse_spec else 'has no'} sparse vectors: one of them is of another policy",
            document_id=plan.document_id,
            chunk_id=point.chunk_id,
        )
    if sparse is not None and not (
        len(set(sparse.indices)) == len(sparse.indices) == len(sparse.values) and np.isfinite(sparse.values).all()
    ):
        raise InvariantBroken(
            "sparse vector repeats an index or is not finite", document_id=plan.document_id, chunk_id=point.chunk_id
        )


def has_direction(vectors: np.ndarray[Any, np.dtype[Any]]) -> np.ndarray[Any, np.dtype[np.bool_]]:
    """Return, for each row of a (n, dimensions) matrix, whether it is finite as float32, as is its squared length, and not ~0."""
    with np.errstate(over="ignore", invalid="ignore"):
        rows = vectors.astype(np.float32, copy=False)
        squared = np.einsum("ij,ij->i", rows, rows, dtype=np.float32)
    fit: np.ndarray[Any, np.dtype[np.bool_]] = np.isfinite(squared) & (squared >= _SHORTEST_NORM_SQUARED)
    fit &= np.isfinite(rows).all(axis=1)
    return fit


def stored_payload(chunk_id: str, payload: Mapping[str, Any], partition: int) -> dict[str, Any]:
    """Return the payload as it is stored: with the whole chunk id, since the point id holds only half of its digest, and marks."""
    return {**payload, "chunk_id": chunk_id, **marks_of(chunk_id, payload, partition)}


def patch_of(seen: Mapping[str, Any] | None, payload: Mapping[str, Any]) -> dict[str, Any] | None:
    """Return the fields to be set so that a stored payload becomes `payload`, or None where the whole payload must be sent.

    It must where the stored one is not known, or is newer: then the fence of a whole payload refuses it.
    A field that goes away needs the whole payload, and so does one that becomes null: a server takes that for "remove it".
    Placement is always among them: the revision that was read settles all else, but two owners may have placed it differently.
    """
    if seen is None or seen["revision"] > payload["revision"] or not payload.keys() >= seen.keys():
        return None
    patch = {name: value for name, value in payload.items() if name in _PLACEMENT or not _equal(seen, name, value)}
    return None if None in patch.values() else patch


def _equal(seen: Mapping[str, Any], name: str, value: Any) -> bool:
    if name not in seen:
        return False
    return seen[name] == value and (isinstance(value, str) or repr(seen[name]) == repr(value))  # 1, 1.0 and True are equal


def payload_bytes(payload: Mapping[str, Any], document_id: str, chunk_id: str) -> int:
    """Return the length of a payload as UTF-8 JSON. Raises PoisonRecord when it is none (NaN, half a surrogate pair)."""
    try:
        return len(json.dumps(payload, ensure_ascii=False, allow_nan=False).encode("utf-8"))
    except (ValueError, TypeError) as error:
        raise PoisonRecord(f"payload is not JSON: {error}", document_id=document_id, chunk_id=chunk_id) from error


@dataclass(frozen=True, slots=True)
class Share:
    """One point's share of a request: `size` is the estimate of its JSON in bytes."""

    kind: Literal["upsert", "payload", "patch", "stamp", "delete"]
    chunk_id: str
    size: int
    payload: dict[str, Any] | None = None
    """The whole payload; of a patch the fields to be set."""
    revision: int = -1
    """Of a patch: the revision that the point must still have."""
    vector: Vector | None = None
    sparse: SparseVector | None = None


def requests_of(plan: IndexPlan, max_bytes: int = REQUEST_BYTES, max_points: int = REQUEST_POINTS) -> list[list[Share]]:
    """Return the requests of a checked plan, to be sent one after the other, each confirmed before the next.

    Shares stand in the plan's order, so deletes come last. Each request holds at most `max_points` points and, unless one
    point alone is larger, at most `max_bytes`. Raises PoisonRecord for a point above POINT_BYTES or a payload that is no JSON.
    """
    requests: list[list[Share]] = []
    size = max_bytes
    for share in _shares(plan):
        if size + share.size > max_bytes or len(requests[-1]) >= max_points:
            requests.append([])
            size = 0
        requests[-1].append(share)
        size += share.size
    return requests


def _shares(plan: IndexPlan) -> Iterator[Share]:
    for point in plan.upserts:
        payload = stored_payload(point.chunk_id, point.payload, plan.partition)
        size = _size(payload, point.vector, plan, point.chunk_id) + len(point.sparse or ()) * _TERM_BYTES
        yield Share("upsert", point.chunk_id, size, payload, vector=point.vector, sparse=point.sparse)
    for chunk_id, fields in plan.payloads:
        payload = stored_payload(chunk_id, fields, plan.partition)
        seen = plan.seen.get(chunk_id)
        patch = patch_of(seen, payload)
        if seen is not None and patch is not None:
            yield Share("patch", chunk_id, _size(patch, None, plan, chunk_id), patch, int(seen["revision"]))
        else:
            yield Share("payload", chunk_id, _size(payload, None, plan, chunk_id), payload)
    for chunk_id in plan.stamps:
        yield Share("stamp", chunk_id, _POINT_FRAME_BYTES)
    for chunk_id in plan.deletes:
        yield Share("delete", chunk_id, _POINT_FRAME_BYTES)


def _size(payload: dict[str, Any], vector: Vector | None, plan: IndexPlan, chunk_id: str) -> int:
    size = payload_bytes(payload, plan.document_id, chunk_id) + _POINT_FRAME_BYTES
    size += 0 if vector is None else vector.size * _FLOAT_BYTES
    if size > POINT_BYTES:
        raise PoisonRecord(
            f"chunk needs {size} bytes as a point, above the index's limit of {POINT_BYTES}: cut it smaller",
            document_id=plan.document_id,
            chunk_id=chunk_id,
            bytes=size,
        )
    return size


def operations_of(shares: Sequence[Share], revision: int) -> list[models.UpdateOperation]:
    """Return the operations of one request: neighbours of one kind become one operation where the API allows it.

    Without the client's own validation, which would walk every field once more. Vectors stay arrays: `wire` writes them.
    """
    operations: list[models.UpdateOperation] = []
    for kind, group in groupby(shares, key=lambda share: share.kind):
        members = list(group)
        ids = [point_id(share.chunk_id) for share in members]
        if kind == "upsert":
            points = [_point(identity, share) for identity, share in zip(ids, members, strict=True)]
            fence = models.Filter(must=[_not_newer(revision)])
            upsert = models.PointsList.model_construct(points=points, update_filter=fence)
            operations.append(models.UpsertOperation.model_construct(upsert=upsert))
        elif kind == "payload":
            operations += [
                models.OverwritePayloadOperation.model_construct(
                    overwrite_payload=models.SetPayload.model_construct(
                        payload=share.payload or {}, filter=among([identity], _not_newer(revision))
                    )
                )
                for identity, share in zip(ids, members, strict=True)
            ]
        elif kind == "patch":
            operations += [
                models.SetPayloadOperation.model_construct(
                    set_payload=models.SetPayload.model_construct(
                        payload=share.payload or {}, filter=among([identity], _exactly(share.revision))
                    )
                )
                for identity, share in zip(ids, members, strict=True)
            ]
        elif kind == "stamp":
            older = models.FieldCondition(key="revision", range=models.Range(lt=revision))
            stamp = models.SetPayload(payload={"revision": revision}, filter=among(ids, older))
            operations.append(models.SetPayloadOperation(set_payload=stamp))
        else:
            operations.append(models.DeleteOperation(delete=models.PointIdsList(points=list(ids))))
    return operations


def _point(identity: str, share: Share) -> models.PointStruct:
    vector: dict[str, Any] = {}
    if share.vector is not None:
        vector[DENSE] = np.ascontiguousarray(share.vector, dtype=np.float32)
    if share.sparse:
        vector[SPARSE] = models.SparseVector.model_construct(indices=list(share.sparse.indices), values=list(share.sparse.values))
    return models.PointStruct.model_construct(id=identity, vector=vector, payload=share.payload)


@lru_cache(maxsize=64)
def _not_newer(revision: int) -> models.FieldCondition:
    """Return the fence: an equal revision may be written again (repair), a newer one is never touched."""
    return models.FieldCondition(key="revision", range=models.Range(lte=revision))


@lru_cache(maxsize=64)
def _exactly(revision: int) -> models.FieldCondition:
    return models.FieldCondition.model_construct(key="revision", match=models.MatchValue.model_construct(value=revision))


def among(ids: Sequence[str], *conditions: models.FieldCondition) -> models.Filter:
    """Return a filter over point ids. A filter skips ids that are not there; a call by ids would fail with 404 half done."""
    return models.Filter.model_construct(must=[models.HasIdCondition.model_construct(has_id=list(ids)), *conditions])


def wire(body: object) -> bytes:
    """Return a request's body as JSON: models without what is not set, vectors as the shortest text of each float32.

    The client's own writer takes float32 for float64, which makes a vector twice as long, and walks all of it in pydantic.
    """
    try:
        return orjson.dumps(body, default=_plain, option=orjson.OPT_SERIALIZE_NUMPY)
    except TypeError:  # an integer above 64 bits in an attribute
        return json.dumps(body, default=_plain, ensure_ascii=False, allow_nan=False).encode("utf-8")


def _plain(value: Any) -> Any:
    if isinstance(value, BaseModel):
        return {name: field for name, field in value.__dict__.items() if field is not None}
    if isinstance(value, np.ndarray):
        return value.tolist()
    raise TypeError(f"{type(value).__name__} is no part of a request")
