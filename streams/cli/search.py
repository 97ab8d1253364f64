"""`docdelta search`: ask the index."""

from __future__ import annotations

import asyncio
from typing import Annotated, Literal

import typer

from streams.cli import options
from streams.cli.output import note, one_line, print_json, say, stderr
from streams.cli.reading_index import reading_index
from streams.cli.sending import tenant_of
from streams.reading.search import Found, Question
from streams.settings import Settings


def search(
    context: typer.Context,
    query: Annotated[str, typer.Argument(help="What to look for, in any language the model reads.", show_default=False)],
    tenant: options.Tenant = "",
    limit: Annotated[int, typer.Option("-k", "--limit", help="How many passages.")] = 5,
    neighbours: Annotated[int, typer.Option("--neighbours", "-n", help="Passages to show before and after each hit.")] = 0,
    group: Annotated[
        list[str] | None,
        typer.Option("--group", "-g", help="Group the reader is in; finds only what these groups may read.", show_default=False),
    ] = None,
    language: Annotated[
        list[str] | None, typer.Option("--language", help="Only documents of this language tag.", show_default=False)
    ] = None,
    mode: Annotated[
        Literal["dense", "hybrid"] | None,
        typer.Option(
            "--mode", help="By meaning, or by meaning and words. Default: what the policy is made for.", show_default=False
        ),
    ] = None,
    json: options.Json = False,
) -> None:
    """Find the passages nearest in meaning, with what a citation needs. Goes through the alias, so it reads the batch being served.

    Example:  docdelta search "how long do refunds take" --tenant acme

    Example:  docdelta search "退款需要多久" --tenant acme -k 3 --neighbours 1 --mode hybrid --json
    """
    invocation = options.invocation(context)
    groups = tuple(group) if group else None
    question = Question(tenant_of(tenant, invocation), query, limit, neighbours, groups, tuple(language or ()), mode)
    found = asyncio.run(_ask(invocation.settings(), question))
    if json:
        print_json({"query": query, "tenant_id": question.tenant_id, "hits": [hit.as_json() for hit in found]})
        return
    for number, hit in enumerate(found, start=1):
        _tell(number, hit)
    if not found:
        note(f"nothing found for tenant {question.tenant_id}")


async def _ask(settings: Settings, question: Question) -> list[Found]:
    from streams.embedders import open_embedder
    from streams.reading.search import search as ask

    async with reading_index(settings) as index:
        with stderr().status("searching"):
            return await ask(index, lambda embedding: open_embedder(settings.embedder, embedding), settings.qdrant.alias, question)


def _tell(number: int, hit: Found) -> None:
    page = f"p. {hit.page}" if hit.page is not None else ""
    title = "" if hit.heading_path[:1] == (hit.title,) else hit.title
    place = ", ".join(part for part in (title, " > ".join(hit.heading_path), _clauses(hit.clauses), page) if part)
    say(f"{number}. {hit.score:.3f}  {place}")
    for passage in hit.before:
        say(_indented(passage.text, "   | "))
    say(_indented(hit.text, "   "))
    for passage in hit.after:
        say(_indented(passage.text, "   | "))
    if hit.parent_text:
        say(f"   within: {one_line(hit.parent_text, 120)}")
    say(f"   {hit.source_uri or hit.document_id}  revision {hit.revision}, chunk {hit.ordinal} ({hit.chunk_id[:12]})\n")


def _clauses(numbers: tuple[str, ...]) -> str:
    """Return the clauses of a hit in a few characters."""
    return "、".join(numbers) if len(numbers) < 3 else f"{numbers[0]} … {numbers[-1]}"


def _indented(text: str, mark: str) -> str:
    return "\n".join(mark + line for line in text.splitlines() if line.strip())
