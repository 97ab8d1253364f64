"""`docdelta policy`: check a policy; see which rule chose which strategy and why each boundary is where it is. Offline."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Annotated, Any

import typer

from chunking.chunk import Chunk
from chunking.document import Document
from chunking.passage import Role
from chunking.policy import ChunkPolicy, Rule, When
from streams.cli import options
from streams.cli.exits import FAILED, OK
from streams.cli.files import FileFacts
from streams.cli.output import note, one_line, print_json, say, stdout, table
from streams.cli.policies import read_policy
from streams.cli.preview import PREVIEW_TENANT, chunks_of, read_document
from streams.words import counted

HELP = """Check a policy, and see what it does to a document and why. Needs no broker and no model.

Example:  docdelta policy lint my-policy.yaml && docdelta policy explain my-policy.yaml manual.md"""
app = typer.Typer(help=HELP, no_args_is_help=True)

PolicyFile = Annotated[str, typer.Argument(help="A policy file, or the name of one in deploy/policies.", show_default=False)]


@app.command()
def lint(policy: PolicyFile, json: options.Json = False) -> int:
    """Check a policy: every fault with line and field, then what in it costs more than it seems. Exit code 1 with a warning.

    Example:  docdelta policy lint my-policy.yaml
    """
    chosen = read_policy(policy)
    warnings = list(warnings_of(chosen.policy))
    if json:
        print_json(
            {
                "batch": chosen.policy.batch_id,
                "fingerprint": chosen.policy.fingerprint,
                "warnings": warnings,
                "source": chosen.source,
            }
        )
    else:
        named = f"{chosen.policy.name} version {chosen.policy.version}"
        say(f"{chosen.source}: {named} is well formed; its batch is {chosen.policy.batch_id}")
        for warning in warnings:
            say(f"warning: {warning}")
    return FAILED if warnings else OK


@app.command()
def explain(
    policy: PolicyFile,
    document: Annotated[Path, typer.Argument(help="Markdown, HTML or plain text file.", show_default=False)],
    media_type: options.MediaType = "",
    title: options.Title = "",
    language: options.Language = "",
    kind: options.Kind = "",
    label: options.Labels = None,
    json: options.Json = False,
) -> None:
    """Show which rule chose which strategy for a document, and for each chunk the rank and the rule of the boundary before it.

    A higher rank is a stronger boundary: chunks are merged over the weakest ones first, while the pair fits.

    Example:  docdelta policy explain default manual.md
    """
    chosen = read_policy(policy).policy
    parsed = read_document(document, FileFacts(media_type, title, language, kind, tuple(label or ())))
    chunks = chunks_of(parsed, document, chosen, tenant=PREVIEW_TENANT, document_id="")
    if json:
        print_json(explanation(chosen, parsed, chunks))
        return
    for line in rule_lines(chosen, parsed):
        say(line)
    lines = table("#", "rank", "boundary before it", "tokens", "role", "begins with", numbers=("#", "rank", "tokens"))
    for each in chunks:
        rank, rule = boundary_of(each)
        lines.add_row(str(each.ordinal), rank, rule, str(each.tokens), str(each.role), one_line(each.text, 60))
    stdout().print(lines)
    body = [each.tokens for each in chunks if each.role is Role.BODY]
    if body:
        mean = counted(sum(body) // len(body), "token")
        note(f"{counted(len(body), 'body chunk')}, {mean} on average, limit {chosen.limits.max_tokens}")


def warnings_of(policy: ChunkPolicy) -> Iterator[str]:
    """Yield what is allowed but costs, or can never happen."""
    if policy.embed.heading_path:
        yield "embed.heading_path: renaming a heading embeds its whole section anew (4.3 chunks instead of 1.1, measured)"
    if policy.embed.title:
        yield "embed.title: renaming a page embeds the whole page anew"
    if policy.identity.startswith("strict"):
        yield "identity strict/1: every revision of a document embeds all of its chunks"
    for index, rule in enumerate(policy.rules[:-1]):
        if rule.when == When():
            yield f"rules.{index} ({_name(rule, index)}) matches every document: the rules behind it are never reached"
            break
    for index, rule in enumerate(policy.rules):
        earlier = next((at for at in range(index) if policy.rules[at].when == rule.when), None)
        if earlier is not None:
            yield f"rules.{index} ({_name(rule, index)}) has the same `when` as rules.{earlier} and is never reached"
        when = rule.when
        if when.max_characters is not None and when.min_characters > when.max_characters:
            yield f"rules.{index} ({_name(rule, index)}): min_characters is above max_characters, no document matches"
    if policy.embedding.max_tokens is None:
        yield "embedding.max_tokens is not given: the model's own limit is only checked when a worker starts to chunk"


def rule_lines(policy: ChunkPolicy, document: Document) -> list[str]:
    """Return a line a rule up to the one that chose: matched or not."""
    lines = []
    for index, rule in enumerate(policy.rules):
        matches = rule.when.matches(document)
        conditions = rule.when.model_dump(exclude_defaults=True, mode="json") or "always"
        lines.append(f"{'→' if matches else ' '} rule {_name(rule, index)}: {conditions} → {rule.use}")
        if matches:
            break
    options_given = policy.pick(document).options.model_dump(mode="json")
    lines.append(f"  options: {options_given}")
    return lines


def boundary_of(chunk: Chunk) -> tuple[str, str]:
    """Return rank and rule of the boundary before a chunk."""
    rank, _, rule = chunk.boundary.partition(":")
    return rank, rule


def explanation(policy: ChunkPolicy, document: Document, chunks: tuple[Chunk, ...]) -> dict[str, Any]:
    """Return what `docdelta policy explain --json` prints."""
    picked = policy.pick(document)
    return {
        "rule": picked.rule,
        "strategy": picked.strategy.versioned_name,
        "options": picked.options.model_dump(mode="json"),
        "chunks": [
            {
                "ordinal": each.ordinal,
                "rank": int(boundary_of(each)[0] or 0),
                "boundary": boundary_of(each)[1],
                "tokens": each.tokens,
                "role": str(each.role),
                "span": {"start": each.span.start, "end": each.span.end},
                "heading_path": list(each.heading_path),
                "clause": each.clause,
            }
            for each in chunks
        ],
    }


def _name(rule: Rule, index: int) -> str:
    return rule.name or f"rules.{index}"
