"""Which hit meets which expectation, and what its citation is worth. Pure."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from streams.evaluation.golden import Expectation, GoldenQuestion
from streams.evaluation.results import Answer, Citation, Judged
from streams.ports import Hit
from streams.reading.citation import bare, part_with, parts_of

Count = Callable[[str], int]


def judge(question: GoldenQuestion, hits: Sequence[tuple[Hit, str]], count: Count) -> Answer:
    """Return the verdict on a ranked list. hits: each with its evidence, which is what a reader gets to see of it."""
    open_places = dict(enumerate(question.expected))
    judged, citation = [], None
    for rank, (hit, evidence) in enumerate(hits, start=1):
        met = tuple(number for number, place in open_places.items() if meets(hit, evidence, place))
        if met and citation is None:
            citation = cited(hit, open_places[met[0]])
        payload = hit.payload
        quoted = part_with(payload, open_places[met[0]].fragment) if met else None
        wanted = sum(count(open_places.pop(number).fragment) for number in met)
        judged.append(
            Judged(
                rank=rank,
                score=hit.score,
                chunk_id=hit.chunk_id,
                document_id=payload["document_id"],
                revision=payload["revision"],
                heading_path=quoted.heading_path if quoted else tuple(payload.get("heading_path", ())),
                clause=quoted.clause if quoted else payload.get("clause", ""),
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
    """Return whether heading path and clause are those expected; None where the expectation names neither.

    With a fragment, that part of the chunk is meant in which it stands; without one, any part that fits best.
    """
    if not place.heading_path and not place.clause:
        return None
    quoted = part_with(hit.payload, place.fragment)
    parts = [quoted] if quoted else parts_of(hit.payload)
    verdicts = [
        Citation(
            heading_path=[*map(bare, part.heading_path)] == [*map(bare, place.heading_path)] if place.heading_path else None,
            clause=_names(bare(part.clause), bare(place.clause)) if place.clause else None,
        )
        for part in parts
    ]
    return max(verdicts, key=lambda verdict: (verdict.right, verdict.heading_path is True, verdict.clause is True))


def _names(cited: str, wanted: str) -> bool:
    """Return whether a citation names a clause: itself, or an item of it (第三条（二） for 第三条, but not 第三条之一)."""
    return cited == wanted or cited.startswith((wanted + "（", wanted + "("))
