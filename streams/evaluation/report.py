"""The report on one or more evaluations, as values: the rows that the terminal and the page both show, and JSON."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from streams.evaluation.golden import Golden
from streams.evaluation.results import Evaluation, Moved, moved


@dataclass(frozen=True, slots=True)
class Row:
    """One figure over all evaluations. `better` is what the reader should wish for."""

    figure: str
    values: tuple[str, ...]
    better: str
    meaning: str


def rows(evaluations: Sequence[Evaluation]) -> list[Row]:
    """Return the table of figures: ks of the first evaluation (all have the same)."""
    ks = evaluations[0].ks
    depth = ks[-1]

    def row(figure: str, value: Callable[[Evaluation], str], better: str, meaning: str) -> Row:
        return Row(figure, tuple(value(each) for each in evaluations), better, meaning)

    table = [
        row(f"Recall@{k}", lambda each, k=k: _share(each.recall(k)), "higher", f"places found among the first {k} hits")  # type: ignore[misc]
        for k in ks
    ]
    table.append(row("MRR", lambda each: _share(each.mrr()), "higher", "1 / rank of the first right hit"))
    table += [
        row(f"nDCG@{k}", lambda each, k=k: _share(each.ndcg(k)), "higher", "places found, early ones counting more")  # type: ignore[misc]
        for k in ks
        if k > 1
    ]
    table += [
        row("Citations right", lambda each: _of(each.citations.right, each.citations.of), "higher", "heading path and clause"),
        row("  heading path", lambda each: _of(*each.citations.heading_paths), "higher", "of answered questions that name one"),
        row("  clause", lambda each: _of(*each.citations.clauses), "higher", "of answered questions that name one"),
    ]
    for k in dict.fromkeys((ks[0], depth)):
        meaning = f"of the tokens in {k} hits, those asked for"
        table.append(row(f"Token precision@{k}", lambda each, k=k: _share(each.token_precision(k)), "higher", meaning))  # type: ignore[misc]
    table.append(
        row(f"Duplicate evidence@{depth}", lambda each: _share(each.duplicates(depth)), "lower", "text that an earlier hit holds")
    )
    if all(each.sizes for each in evaluations):
        table.append(row("Chunks", lambda each: str(len(each.sizes.tokens)) if each.sizes else "", "", "body chunks"))
        for share, name in ((0.05, "p5"), (0.5, "median"), (0.95, "p95"), (1.0, "largest")):
            table.append(
                row(f"  tokens, {name}", lambda each, s=share: str(each.sizes.at(s)) if each.sizes else "", "", "of a body chunk")  # type: ignore[misc]
            )
    return table


@dataclass(frozen=True, slots=True)
class Comparison:
    """How the questions moved from one evaluation to another."""

    before: str
    after: str
    risen: tuple[Moved, ...]
    fallen: tuple[Moved, ...]


def comparisons(evaluations: Sequence[Evaluation]) -> list[Comparison]:
    """Return each further evaluation set against the first."""
    found = []
    before = evaluations[0]
    for after in evaluations[1:]:
        risen, fallen = moved(before, after)
        found.append(Comparison(before.name, after.name, tuple(risen), tuple(fallen)))
    return found


def as_json(golden: Golden, evaluations: Sequence[Evaluation]) -> dict[str, Any]:
    """Return the report for programs, with every question and what was found."""
    return {
        "golden": {"source": golden.source, "questions": len(golden.questions)},
        "k": list(evaluations[0].ks),
        "evaluations": [each.as_json() for each in evaluations],
        "comparisons": [
            {
                "before": each.before,
                "after": each.after,
                "risen": [_moved_json(change) for change in each.risen],
                "fallen": [_moved_json(change) for change in each.fallen],
            }
            for each in comparisons(evaluations)
        ],
    }


def _moved_json(change: Moved) -> dict[str, Any]:
    return {
        "question": change.question.question,
        "tenant_id": change.question.tenant,
        "before": change.before,
        "after": change.after,
    }


def _share(value: float) -> str:
    return f"{value:.3f}"


def _of(right: int, of: int) -> str:
    return f"{right}/{of}" if of else "-"
