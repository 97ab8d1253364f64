"""Which hit meets which expectation, and what its citation is worth. Pure."""

from __future__ import annotations

import unicodedata
from collections.abc import Callable, Sequence

from streams.evaluation.golden import Expectation, GoldenQuestion
from streams.evaluation.results import Answer, Citation, Judged
from streams.ports import Hit

Count = Callable[[str], int]


def judge(question: GoldenQuestion, hits: Sequence[tuple[Hit, str]], count: Count) -> Answer:
    """Return the verdict on a ranked list. hits: each with its evidence, which is what a reader gets to see of it."""
    open_places = dict(enumerate(question.expected))
    judged, citation = [], None
    for rank, (hit, evidence) in enumerate(hits, start=1):
        met = tuple(number for number, place in open_places.items() if meets(hit, evidence, place))
        if met and citation is None:
            citation = cited(hit, open_places[met[0]])
        wanted = sum(count(open_places.pop(number).fragment) for number in met)
        payload = hit.payload
        judged.append(
            Judged(
                rank=rank,
                score=hit.score,
                chunk_id=hit.chunk_id,
                document_id=payload["document_id"],
                revision=payload["revision"],
                heading_path=tuple(payload.get("heading_path", ())),
                clause=payload.get("clause", ""),
                evidence=evidence,
                met=met,
                wanted_tokens=wanted,
                given_tokens=count(evidence),
            )
        )
    return Answer(question, tuple(judged), citation)


def meets(hit: Hit, evidence: str, place: Expectation) -> bool:
    """Return whether a hit is what an expectation asks for (see `Expectation`)."""
    payload = hit.payload
    if payload["document_id"] != place.document or place.revision not in (None, payload["revision"]):
        return False
    if place.fragment:
        return bare(place.fragment) in bare(evidence)
    verdict = cited(hit, place)
    return verdict is None or verdict.right


def cited(hit: Hit, place: Expectation) -> Citation | None:
    """Return whether heading path and clause are those expected; None where the expectation names neither."""
    if not place.heading_path and not place.clause:
        return None
    path = tuple(hit.payload.get("heading_path", ()))
    clause = str(hit.payload.get("clause", ""))
    return Citation(
        heading_path=[bare(title) for title in path] == [bare(title) for title in place.heading_path]
        if place.heading_path
        else None,
        clause=bare(clause) == bare(place.clause) if place.clause else None,
    )


def bare(text: str) -> str:
    """Return a text without whitespace, composed: lines are broken differently in a file and in a chunk."""
    return "".join(unicodedata.normalize("NFC", text).split())
