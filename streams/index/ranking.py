"""Which points a reader may see, and in what order: shared by every index, so that all answer alike."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from streams.index.client import models
from streams.ports import Fusion, Hit, Query

_SMALLEST_WEIGHT = 1e-6


def query_filter(query: Query) -> models.Filter:
    """Return the filter of a query: always the tenant, never a parent, and the reader's groups and languages where given."""
    must: list[models.Condition] = [_is("tenant_id", query.tenant_id)]
    if query.languages:
        must.append(models.FieldCondition(key="language", match=models.MatchAny(any=list(query.languages))))
    should: list[models.Condition] = []
    if query.groups is not None:
        should.append(models.IsNullCondition(is_null=models.PayloadField(key="acl")))
    if query.groups:
        should.append(models.FieldCondition(key="acl", match=models.MatchAny(any=list(query.groups))))
    return models.Filter(must=must, must_not=[_is("role", "parent")], should=should or None)


def visible(payload: Mapping[str, Any], query: Query) -> bool:
    """Return what `query_filter` says of one payload. A payload without tenant is seen by nobody."""
    if not query.tenant_id or payload.get("tenant_id") != query.tenant_id or payload.get("role") == "parent":
        return False
    if query.languages and payload.get("language") not in query.languages:
        return False
    if query.groups is None:
        return True
    if "acl" in payload and payload["acl"] is None:
        return True
    return bool(set(payload.get("acl") or ()) & set(query.groups))


def _is(key: str, value: str) -> models.FieldCondition:
    return models.FieldCondition(key=key, match=models.MatchValue(value=value))


def ranked(raw: Sequence[Hit], limit: int) -> tuple[list[Hit], bool]:
    """Return the best `limit` of `raw` (best first, as the index gave them), and whether more raw hits could change the answer.

    Of each document only the highest revision among the hits stays, so that no list mixes two generations while one is being
    written. A declared overlap scales its chunk's score by its weight, never upwards in rank.
    """
    if not raw:
        return [], False
    ascending = raw[0].score < raw[-1].score  # euclid: smaller is better
    newest: dict[str, int] = {}
    for hit in raw:
        document = hit.payload["document_id"]
        newest[document] = max(newest.get(document, 0), hit.payload["revision"])
    current = [
        Hit(hit.chunk_id, _weighed(hit, ascending), hit.payload)
        for hit in raw
        if hit.payload["revision"] == newest[hit.payload["document_id"]]
    ]
    current.sort(key=lambda hit: (hit.score if ascending else -hit.score, hit.chunk_id))
    best = current[:limit]
    worst_seen = raw[-1].score
    settled = len(best) == limit and (best[-1].score <= worst_seen if ascending else best[-1].score >= worst_seen)
    return best, not settled


def fused(dense: Sequence[Hit], sparse: Sequence[Hit], fusion: Fusion) -> list[Hit]:
    """Return two lists (best first) as one by reciprocal rank fusion, as Qdrant does it: `Fusion` says how. Ties: dense first."""
    scores: dict[str, float] = {}
    by_id: dict[str, Hit] = {}
    for hits, weight in ((dense, fusion.dense_weight), (sparse, fusion.sparse_weight)):
        for rank, hit in enumerate(hits[: fusion.depth], start=1):
            scores[hit.chunk_id] = scores.get(hit.chunk_id, 0.0) + 1 / (rank / weight + fusion.k - 1)
            by_id.setdefault(hit.chunk_id, hit)
    best = sorted(scores, key=lambda chunk_id: -scores[chunk_id])
    return [Hit(chunk_id, scores[chunk_id], by_id[chunk_id].payload) for chunk_id in best]


def _weighed(hit: Hit, ascending: bool) -> float:
    overlap = hit.payload.get("overlap")
    if hit.payload.get("role") != "context" or not isinstance(overlap, Mapping):
        return hit.score
    weight = min(1.0, max(_SMALLEST_WEIGHT, float(overlap.get("weight", 1.0))))
    return hit.score / weight if ascending or hit.score < 0 else hit.score * weight
