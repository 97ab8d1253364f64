"""`docdelta evaluate`: golden questions against one or more batches, side by side."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import typer

from streams.cli import options
from streams.cli.output import note, one_line, print_json, progress_bar, say, stdout, table
from streams.cli.reading_index import reading_index
from streams.errors import UsageError
from streams.settings import Settings
from streams.words import counted

if TYPE_CHECKING:
    from streams.evaluation.golden import Golden
    from streams.evaluation.results import Answer, Evaluation
    from streams.ports import Embedder

Way = Literal["dense", "hybrid"]


def evaluate(
    context: typer.Context,
    golden: Annotated[Path, typer.Option("--golden", "-g", help="Golden questions: YAML or JSONL.", show_default=False)],
    batch: Annotated[
        list[str] | None,
        typer.Option("--batch", "-b", help="Batch; may be given several times. Default: the served one.", show_default=False),
    ] = None,
    mode: Annotated[
        list[str] | None,
        typer.Option(
            "--mode", "-m", help="dense or hybrid; both may be given. Default: what the batch is made for.", show_default=False
        ),
    ] = None,
    k: Annotated[str, typer.Option("-k", help="At which numbers of hits.")] = "1,3,5,10",
    neighbours: Annotated[
        int, typer.Option("--neighbours", "-n", help="Passages around each hit that count as found with it.")
    ] = 0,
    worst: Annotated[int, typer.Option("--worst", help="How many of the worst questions to show.")] = 5,
    html: Annotated[Path | None, typer.Option("--html", help="Write a page with plots to this file.", show_default=False)] = None,
    json: options.Json = False,
) -> None:
    """Ask golden questions and measure what is found: recall, order, citations, chunk sizes; several batches side by side.

    Example:  docdelta evaluate --golden golden.yaml

    Example:  docdelta evaluate --golden golden.yaml --batch cms-v1-1a2b3c4d --batch cms-v2-5e6f7a8b --html report.html
    """
    from streams.evaluation.golden import load_golden
    from streams.evaluation.page import page
    from streams.evaluation.report import as_json

    ks = _numbers(k)
    questions = load_golden(golden)
    settings = options.invocation(context).settings()
    evaluations = asyncio.run(_evaluate(settings, questions, batch or [settings.qdrant.alias], _ways(mode or []), ks, neighbours))
    if html is not None:
        try:
            html.write_text(page(questions, evaluations), encoding="utf-8")
        except OSError as error:
            raise UsageError(f"--html {html} can't be written: {error.strerror}") from error
        note(f"wrote {html}")
    if json:
        print_json(as_json(questions, evaluations))
        return
    tell(questions, evaluations, worst)


async def _evaluate(
    settings: Settings, golden: Golden, batches: list[str], ways: list[Way | None], ks: tuple[int, ...], neighbours: int
) -> list[Evaluation]:
    from streams.embedders import open_embedder
    from streams.evaluation.run import evaluate as run
    from streams.reading.search import searchable

    embedders: dict[str, Embedder] = {}
    found = []
    async with reading_index(settings) as index:
        with progress_bar("evaluating", len(batches) * len(ways)) as bar:
            for name in batches:
                target = await searchable(index, name)
                spec = target.spec.embedding_spec
                if spec not in embedders:
                    embedders[spec] = await asyncio.to_thread(open_embedder, settings.embedder, target.embedding)
                for way in ways:
                    found.append(await run(index, name, embedders[spec], golden, ks, way, neighbours=neighbours))
                    bar.advance()
    return found


def tell(golden: Golden, evaluations: list[Evaluation], worst: int) -> None:
    """Print the figures of all evaluations side by side, and the `worst` so many questions of each."""
    from streams.evaluation.report import comparisons, rows

    say(f"{counted(len(golden.questions), 'question')} of {golden.source}")
    names = [each.name for each in evaluations]
    figures = table("", *names, "", numbers=tuple(names))
    for row in rows(evaluations):
        figures.add_row(row.figure, *row.values, row.meaning)
    stdout().print(figures)
    for each in comparisons(evaluations):
        say(f"\n{each.before} → {each.after}: {counted(len(each.risen), 'question')} rose, {len(each.fallen)} fell")
        for change in each.fallen[:worst]:
            say(f"  fell from rank {change.before} to {change.after or 'not found'}: {change.question.question}")
    for evaluation in evaluations:
        _tell_worst(evaluation, worst)


def _tell_worst(evaluation: Evaluation, limit: int) -> None:
    worst = evaluation.worst(limit)
    if worst:
        say(f"\nWorst questions of {evaluation.name}")
    for answer in worst:
        say(f"  {answer.question.question}  ({_rank(answer)}, line {answer.question.line})")
        for place in answer.question.expected:
            where = ", ".join(part for part in (place.document, " > ".join(place.heading_path), place.clause) if part)
            say(f"    wanted  {where}: {one_line(place.fragment, 80)}")
        if answer.hits:
            first = answer.hits[0]
            where = ", ".join(part for part in (first.document_id, " > ".join(first.heading_path), first.clause) if part)
            say(f"    found   {where}: {one_line(first.evidence, 80)}")


def _rank(answer: Answer) -> str:
    return f"rank {answer.rank}" if answer.rank else "not found"


def _numbers(text: str) -> tuple[int, ...]:
    try:
        return tuple(int(part) for part in text.split(","))
    except ValueError as error:
        raise UsageError(f"-k {text}: give numbers with commas between them, such as 1,3,5,10") from error


def _ways(asked: list[str]) -> list[Way | None]:
    ways: list[Way | None] = []
    for each in asked:
        if each not in ("dense", "hybrid"):
            raise UsageError(f"--mode {each}: it is dense or hybrid")
        ways.append("dense" if each == "dense" else "hybrid")
    return ways or [None]
