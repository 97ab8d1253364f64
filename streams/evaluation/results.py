"""Evaluation: what became of every golden question in one collection, and the figures over them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from streams.evaluation import metrics
from streams.evaluation.golden import GoldenQuestion
from streams.reading.search import Mode

_SHOWN_CHARACTERS = 160


@dataclass(frozen=True, slots=True)
class Citation:
    """Whether a hit names the place rightly. None: the golden file does not say."""

    heading_path: bool | None
    clause: bool | None

    @property
    def right(self) -> bool:
        """True when nothing that the golden file names is wrong."""
        return self.heading_path is not False and self.clause is not False


@dataclass(frozen=True, slots=True)
class Judged:
    """One hit. `met` numbers the expectations it is the first to meet; `evidence` is what a reader gets to see."""

    rank: int
    score: float
    chunk_id: str
    document_id: str
    revision: int
    heading_path: tuple[str, ...]
    clause: str
    evidence: str
    met: tuple[int, ...]
    wanted_tokens: int
    given_tokens: int

    def as_json(self) -> dict[str, Any]:
        """Return the hit for the report, its text shortened."""
        text = " ".join(self.evidence.split())
        return {
            "rank": self.rank,
            "score": self.score,
            "document_id": self.document_id,
            "revision": self.revision,
            "heading_path": list(self.heading_path),
            "clause": self.clause,
            "chunk_id": self.chunk_id,
            "meets": list(self.met),
            "text": text[:_SHOWN_CHARACTERS] + ("…" if len(text) > _SHOWN_CHARACTERS else ""),
        }


@dataclass(frozen=True, slots=True)
class Answer:
    """What became of one question. `citation` is that of the first hit that met an expectation."""

    question: GoldenQuestion
    hits: tuple[Judged, ...]
    citation: Citation | None

    @property
    def gains(self) -> tuple[int, ...]:
        """How many expectations each rank meets for the first time."""
        return tuple(len(hit.met) for hit in self.hits)

    @property
    def rank(self) -> int | None:
        """Rank of the first hit that meets an expectation, from 1; None for none."""
        return next((hit.rank for hit in self.hits if hit.met), None)

    def recall(self, k: int) -> float:
        """Return the share of this question's expectations that the first k hits meet."""
        return metrics.recall(self.gains, len(self.question.expected), k)

    def as_json(self) -> dict[str, Any]:
        """Return the question with its hits."""
        return {
            "question": self.question.question,
            "tenant_id": self.question.tenant,
            "line": self.question.line,
            "expected": [place.model_dump(mode="json", exclude_defaults=True) for place in self.question.expected],
            "rank": self.rank,
            "citation_right": self.citation.right if self.citation else None,
            "found": [hit.as_json() for hit in self.hits],
        }


@dataclass(frozen=True, slots=True)
class Citations:
    """How many answered questions had which part of their citation right, of how many where the golden file names it."""

    right: int
    of: int
    heading_paths: tuple[int, int]
    clauses: tuple[int, int]

    @property
    def share(self) -> float:
        """Share of answered questions whose citation is right; 1 where none is asked for."""
        return self.right / self.of if self.of else 1.0


@dataclass(frozen=True, slots=True)
class Sizes:
    """Tokens of every body chunk of a collection, ascending."""

    tokens: tuple[int, ...]

    def at(self, share: float) -> int:
        """Return the size that `share` of the chunks do not exceed; 0 for an empty collection."""
        return metrics.quantile(self.tokens, share) if self.tokens else 0

    def as_json(self) -> dict[str, Any]:
        """Return count, quantiles and mean."""
        mean = round(sum(self.tokens) / len(self.tokens), 1) if self.tokens else 0.0
        marks = {f"p{round(share * 100)}": self.at(share) for share in (0.05, 0.25, 0.5, 0.75, 0.95)}
        return {"chunks": len(self.tokens), "mean": mean, **marks, "max": self.at(1.0)}


@dataclass(frozen=True, slots=True)
class Evaluation:
    """A golden file against one collection. `name` tells it from others in a report; `ks` ascend. Means are over questions."""

    name: str
    collection: str
    mode: Mode
    ks: tuple[int, ...]
    answers: tuple[Answer, ...]
    sizes: Sizes | None = None

    @property
    def depth(self) -> int:
        """How many hits were asked for: the largest k."""
        return self.ks[-1]

    def recall(self, k: int) -> float:
        """Return the mean Recall@k. k is at most `depth`."""
        return self._mean(lambda answer: answer.recall(self._within(k)))

    def mrr(self) -> float:
        """Return the mean reciprocal rank within `depth`."""
        return self._mean(lambda answer: metrics.reciprocal_rank(answer.gains, self.depth))

    def ndcg(self, k: int) -> float:
        """Return the mean nDCG@k."""
        return self._mean(lambda answer: metrics.ndcg(answer.gains, len(answer.question.expected), self._within(k)))

    def token_precision(self, k: int) -> float:
        """Return the mean share of tokens in the first k hits that were asked for, over questions with a fragment."""
        asked = [answer for answer in self.answers if any(place.fragment for place in answer.question.expected)]
        shares = [
            metrics.token_precision(
                [hit.wanted_tokens for hit in answer.hits], [hit.given_tokens for hit in answer.hits], self._within(k)
            )
            for answer in asked
        ]
        return sum(shares) / len(shares) if shares else 0.0

    def duplicates(self, k: int) -> float:
        """Return the mean share of the first k hits' text that an earlier hit holds already."""
        return self._mean(lambda answer: metrics.duplicate_share([hit.evidence for hit in answer.hits], self._within(k)))

    @property
    def citations(self) -> Citations:
        """Return how many of the answered questions are cited rightly."""
        found = [answer.citation for answer in self.answers if answer.citation is not None]
        paths = [each.heading_path for each in found if each.heading_path is not None]
        clauses = [each.clause for each in found if each.clause is not None]
        return Citations(sum(each.right for each in found), len(found), (sum(paths), len(paths)), (sum(clauses), len(clauses)))

    def worst(self, limit: int) -> list[Answer]:
        """Return the questions that fare worst, worst first: those not found at all, then by rank. Those at rank 1 are left out."""
        lost = [answer for answer in self.answers if answer.rank != 1 or answer.recall(self.depth) < 1]
        return sorted(lost, key=lambda answer: (answer.recall(self.depth), -(answer.rank or self.depth + 1)))[:limit]

    def as_json(self, worst: int | None = None) -> dict[str, Any]:
        """Return all figures, and the questions: all, or the `worst` so many."""

        def by_k(figure: Callable[[int], float]) -> dict[str, float]:
            return {str(k): round(figure(k), 4) for k in self.ks}

        citations = self.citations
        return {
            "name": self.name,
            "collection": self.collection,
            "mode": self.mode,
            "questions": len(self.answers),
            "recall": by_k(self.recall),
            "mrr": round(self.mrr(), 4),
            "ndcg": by_k(self.ndcg),
            "token_precision": by_k(self.token_precision),
            "duplicate_evidence": by_k(self.duplicates),
            "citations": {
                "right": citations.right,
                "of": citations.of,
                "heading_paths": dict(zip(("right", "of"), citations.heading_paths, strict=True)),
                "clauses": dict(zip(("right", "of"), citations.clauses, strict=True)),
            },
            "chunk_tokens": self.sizes.as_json() if self.sizes else None,
            "answers": [answer.as_json() for answer in (self.answers if worst is None else self.worst(worst))],
        }

    def _mean(self, figure: Callable[[Answer], float]) -> float:
        return sum(figure(answer) for answer in self.answers) / len(self.answers)

    def _within(self, k: int) -> int:
        if not 1 <= k <= self.depth:
            raise ValueError(f"k {k} is outside 1..{self.depth}, which is how many hits were asked for")
        return k


@dataclass(frozen=True, slots=True)
class Moved:
    """A question whose first right hit stands at another rank in `after` than in `before`. None: not found."""

    question: GoldenQuestion
    before: int | None
    after: int | None


def moved(before: Evaluation, after: Evaluation) -> tuple[list[Moved], list[Moved]]:
    """Return the questions that rose and those that fell between two evaluations of one golden file, the largest moves first."""
    at = {_identity(answer): answer.rank for answer in after.answers}
    changes = [Moved(answer.question, answer.rank, at[_identity(answer)]) for answer in before.answers if _identity(answer) in at]

    def worth(rank: int | None) -> float:
        return 1 / rank if rank else 0.0

    def gain(change: Moved) -> float:
        return worth(change.after) - worth(change.before)

    risen = sorted((change for change in changes if gain(change) > 0), key=gain, reverse=True)
    fallen = sorted((change for change in changes if gain(change) < 0), key=gain)
    return risen, fallen


def _identity(answer: Answer) -> tuple[str, str, Sequence[str] | None]:
    return answer.question.tenant, answer.question.question, answer.question.groups
