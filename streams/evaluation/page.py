"""The report as one HTML file without scripts, fonts or links: it can be mailed, kept, and opened in ten years."""

from __future__ import annotations

from collections.abc import Sequence
from html import escape

from streams.evaluation.golden import Expectation, Golden
from streams.evaluation.plots import SERIES, bars, steps
from streams.evaluation.report import Comparison, comparisons, rows
from streams.evaluation.results import Answer, Evaluation, Judged, Moved
from streams.words import counted

_LIGHT = ("#2a6fdb", "#d9730d", "#2e8b57", "#b83280", "#6b4fbb", "#8a6d00", "#0f8b8d", "#a33b20")
_DARK = ("#6ea8fe", "#ffab5e", "#6fd09a", "#f08cc0", "#b39dfa", "#dcc15a", "#63d2d4", "#f0927a")
_SHOWN_HITS = 3
_SHOWN_CHARACTERS = 240

STYLE = """
:root { color-scheme: light dark; --ground: #fff; --ink: #1d2129; --quiet: #667; --line: #dde1e8; --panel: #f6f7f9; LIGHT }
@media (prefers-color-scheme: dark) {
  :root { --ground: #15181d; --ink: #e6e9ef; --quiet: #99a1b0; --line: #313844; --panel: #1d2229; DARK }
}
body { margin: 0 auto; padding: 2rem 1rem 4rem; max-width: 72rem; background: var(--ground); color: var(--ink);
  font: 15px/1.5 system-ui, "PingFang SC", "Microsoft YaHei", "Noto Sans CJK SC", sans-serif; }
h1 { font-size: 1.5rem; } h2 { font-size: 1.15rem; margin-top: 2.5rem; } p.quiet, td.quiet, .quiet { color: var(--quiet); }
table { border-collapse: collapse; } th, td { padding: .25rem .9rem .25rem 0; text-align: left; vertical-align: top; }
thead th, tbody tr { border-bottom: 1px solid var(--line); } td.number, th.number { text-align: right;
  font-variant-numeric: tabular-nums; } td.best { font-weight: 650; } .wide { overflow-x: auto; }
.plots { display: grid; grid-template-columns: repeat(auto-fit, minmax(min(100%, 28rem), 1fr)); gap: 1rem; }
figure { margin: 0; padding: .75rem; background: var(--panel); border-radius: 8px; } figcaption { font-weight: 600; }
svg { width: 100%; height: auto; } svg line { stroke: var(--line); } svg text { fill: var(--quiet); font-size: 11px; }
svg text.axis { text-anchor: end; } svg text.group, svg text.value { text-anchor: middle; } svg text.value { font-size: 10px; }
svg path { fill: none; stroke-width: 2; } FILLS
.key { display: inline-block; width: .8em; height: .8em; border-radius: 2px; margin-right: .4em; }
details { border-bottom: 1px solid var(--line); padding: .4rem 0; } summary { cursor: pointer; }
blockquote { margin: .3rem 0 .6rem; padding-left: .8rem; border-left: 3px solid var(--line); white-space: pre-wrap; }
"""


def page(golden: Golden, evaluations: Sequence[Evaluation], worst: int = 20) -> str:
    """Return the report as HTML: figures side by side, plots, what moved, and the `worst` questions of each evaluation."""
    title = f"Golden questions: {', '.join(each.name for each in evaluations)}"
    parts = [
        f"<h1>{escape(title)}</h1>",
        f'<p class="quiet">{counted(len(golden.questions), "question")} of {escape(golden.source)}</p>',
        _legend(evaluations),
        _table(evaluations),
        _plots(evaluations),
        *(_comparison(each) for each in comparisons(evaluations)),
        *(_worst(each, worst) for each in evaluations),
    ]
    return (
        '<!doctype html>\n<html lang="en"><head><meta charset="utf-8">'
        '<meta name="viewport" content="width=device-width, initial-scale=1">'
        f"<title>{escape(title)}</title><style>{_style()}</style></head>\n<body>\n" + "\n".join(parts) + "\n</body></html>\n"
    )


def _style() -> str:
    def colours(palette: Sequence[str]) -> str:
        return " ".join(f"--s{number}: {colour};" for number, colour in enumerate(palette))

    fills = " ".join(
        f"svg rect.s{n}, .key.s{n} {{ fill: var(--s{n}); background: var(--s{n}); }} svg path.s{n} {{ stroke: var(--s{n}); }}"
        for n in range(SERIES)
    )
    return STYLE.replace("LIGHT", colours(_LIGHT)).replace("DARK", colours(_DARK)).replace("FILLS", fills)


def _legend(evaluations: Sequence[Evaluation]) -> str:
    keys = (f'<span class="key s{number % SERIES}"></span>{escape(each.name)}' for number, each in enumerate(evaluations))
    return "<p>" + " &emsp; ".join(keys) + "</p>"


def _table(evaluations: Sequence[Evaluation]) -> str:
    head = "".join(f'<th class="number">{escape(each.name)}</th>' for each in evaluations)
    lines = []
    for row in rows(evaluations):
        best = _best(row.values, row.better)
        cells = "".join(
            f'<td class="number{" best" if len(row.values) > 1 and value == best else ""}">{escape(value)}</td>'
            for value in row.values
        )
        figure = escape(row.figure.strip())
        name = f"&emsp;{figure}" if row.figure.startswith(" ") else figure
        lines.append(f'<tr><td>{name}</td>{cells}<td class="quiet">{escape(row.meaning)}</td></tr>')
    return f'<div class="wide"><table><thead><tr><th></th>{head}<th></th></tr></thead><tbody>{"".join(lines)}</tbody></table></div>'


def _best(values: Sequence[str], better: str) -> str | None:
    if not better or any(value == "-" for value in values):
        return None

    def number(value: str) -> float:
        right, _, of = value.partition("/")
        return float(right) / float(of) if of else float(right)

    return (max if better == "higher" else min)(values, key=number)


def _plots(evaluations: Sequence[Evaluation]) -> str:
    ks = evaluations[0].ks
    depth = ks[-1]
    recalls = bars("Recall@k", [f"@{k}" for k in ks], [(each.name, [each.recall(k) for k in ks]) for each in evaluations])
    figures = ["MRR", f"nDCG@{depth}", "citations", f"precision@{ks[0]}", f"duplicates@{depth}"]
    others = bars(
        "Other figures",
        figures,
        [
            (
                each.name,
                [each.mrr(), each.ndcg(depth), each.citations.share, each.token_precision(ks[0]), each.duplicates(depth)],
            )
            for each in evaluations
        ],
    )
    plots = [("Recall@k: places found among the first k hits", recalls), ("Order, citations, and how much of it is wanted", others)]
    if all(each.sizes for each in evaluations):
        sizes = [(each.name, each.sizes.tokens) for each in evaluations if each.sizes]
        plots.append(("Chunk sizes: share of body chunks", steps("Chunk sizes", "tokens (cl100k_base)", sizes)))
    ranks = [f"{rank}" for rank in range(1, min(depth, 10) + 1)] + ["not found"]
    plots.append(
        (
            "Rank of the first right hit: share of questions",
            bars("Ranks", ranks, [(e.name, _ranks(e, len(ranks))) for e in evaluations]),
        )
    )
    figures_html = (f"<figure><figcaption>{escape(caption)}</figcaption>{plot}</figure>" for caption, plot in plots)
    return f'<h2>Plots</h2><div class="plots">{"".join(figures_html)}</div>'


def _ranks(evaluation: Evaluation, slots: int) -> list[float]:
    """Return the share of questions by rank of their first right hit; the last slot holds all that are behind or not found."""
    tally = [0] * slots
    for answer in evaluation.answers:
        tally[min(answer.rank or slots, slots) - 1] += 1
    return [number / len(evaluation.answers) for number in tally]


def _comparison(each: Comparison) -> str:
    def lines(changes: Sequence[Moved]) -> str:
        return "".join(
            f'<tr><td>{escape(change.question.question)}</td><td class="number">{_rank(change.before)}</td>'
            f'<td class="number">{_rank(change.after)}</td></tr>'
            for change in changes
        )

    def table(changes: Sequence[Moved], what: str) -> str:
        if not changes:
            return f"<p>No question {what}.</p>"
        head = '<tr><th>question</th><th class="number">rank before</th><th class="number">after</th></tr>'
        body = f"<table><thead>{head}</thead><tbody>{lines(changes)}</tbody></table>"
        return f"<details><summary>{len(changes)} {what}</summary>{body}</details>"

    return (
        f"<h2>{escape(each.before)} → {escape(each.after)}</h2>"
        + table(each.fallen, "fell" if each.fallen else "falls")
        + table(each.risen, "rose" if each.risen else "rises")
    )


def _worst(evaluation: Evaluation, limit: int) -> str:
    worst = evaluation.worst(limit)
    heading = f"<h2>Worst questions of {escape(evaluation.name)}</h2>"
    if not worst:
        return heading + "<p>Every question has all its places, the first of them at rank 1.</p>"
    return heading + "".join(_answer(answer) for answer in worst)


def _answer(answer: Answer) -> str:
    wanted = "; ".join(_place(place) for place in answer.question.expected)
    hits = "".join(_hit(hit) for hit in answer.hits[:_SHOWN_HITS])
    return (
        f"<details><summary>{escape(answer.question.question)} "
        f'<span class="quiet">rank {_rank(answer.rank)}, line {answer.question.line}</span></summary>'
        f"<p>Wanted: {wanted}</p><p>Found:</p>{hits or '<p>nothing</p>'}</details>"
    )


def _place(place: Expectation) -> str:
    where = ", ".join(part for part in (place.document, " > ".join(place.heading_path), place.clause) if part)
    return escape(where) + (f" “{escape(place.fragment)}”" if place.fragment else "")


def _hit(hit: Judged) -> str:
    where = ", ".join(part for part in (hit.document_id, " > ".join(hit.heading_path), hit.clause) if part)
    text = hit.evidence[:_SHOWN_CHARACTERS] + ("…" if len(hit.evidence) > _SHOWN_CHARACTERS else "")
    right = " (right)" if hit.met else ""
    return f"<div>{hit.rank}. {hit.score:.3f} {escape(where)}{right}<blockquote>{escape(text)}</blockquote></div>"


def _rank(rank: int | None) -> str:
    return str(rank) if rank else "not found"
