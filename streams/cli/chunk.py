"""`docdelta chunk`: what a policy makes of a file. Offline."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Annotated

import typer
from rich.text import Text

from chunking.chunk import Chunk
from streams.cli import options
from streams.cli.files import FileFacts
from streams.cli.output import note, one_line, print_json_line, stdout, table
from streams.cli.policies import DEFAULT_POLICY, read_policy
from streams.cli.preview import PREVIEW_TENANT, chunk_json, chunks_of, read_document
from streams.words import counted

COLOURS = ("cyan", "green", "yellow", "magenta", "blue", "red")
"""Colours of sections, in turn."""


def chunk(
    file: Annotated[Path, typer.Argument(help="Markdown, HTML or plain text file.", show_default=False)],
    policy: options.Policy = DEFAULT_POLICY,
    tenant: options.PreviewTenant = PREVIEW_TENANT,
    document_id: options.PreviewId = "",
    media_type: options.MediaType = "",
    title: options.Title = "",
    language: options.Language = "",
    kind: options.Kind = "",
    label: options.Labels = None,
    view: Annotated[bool, typer.Option("--view", help="Show the chunks' whole text, coloured by section, sizes beside.")] = False,
    json: options.Json = False,
) -> None:
    """Show the chunks that a policy makes of a file. Needs no broker and no model.

    With --json: one object a line, one line a chunk. Spans are characters of the normalised source.

    Example:  docdelta chunk manual.md --policy default

    Example:  docdelta chunk manual.md --view | less -R

    Example:  docdelta chunk rules.md --policy my-policy.yaml --kind policy --json | jq .embed_text
    """
    chosen = read_policy(policy).policy
    document = read_document(file, FileFacts(media_type, title, language, kind, tuple(label or ())))
    chunks = chunks_of(document, file, chosen, tenant=tenant, document_id=document_id)
    if json:
        for each in chunks:
            print_json_line(chunk_json(each))
        return
    if view:
        _view(chunks)
        return
    lines = table("#", "chunk", "kind", "role", "tokens", "place", "text", numbers=("#", "tokens"), fold=("text", "place"))
    for each in chunks:
        place = each.clause or " > ".join(each.heading_path)
        text = one_line(each.text, 90)
        lines.add_row(str(each.ordinal), each.chunk_id[:12], str(each.kind), str(each.role), str(each.tokens), place, text)
    stdout().print(lines)
    picked = chosen.pick(document)
    total = sum(each.tokens for each in chunks)
    how = f"strategy {picked.strategy.versioned_name} by rule {picked.rule} of {chosen.batch_id}"
    note(f"{counted(len(chunks), 'chunk')}, {counted(total, 'token')}, {how}")


def _view(chunks: Sequence[Chunk]) -> None:
    """Print every chunk's text between rules; one colour a section, what is repeated in grey."""
    console = stdout()
    sections: dict[tuple[str, ...], str] = {}
    for each in chunks:
        colour = sections.setdefault(each.heading_path, COLOURS[len(sections) % len(COLOURS)])
        place = " > ".join(each.heading_path) or "(no heading)"
        size = f"{counted(each.tokens, 'token')}  {counted(len(each.text), 'character')}"
        head = f" {each.ordinal}  {size}  {each.role}  {place} {each.clause}"
        console.print(Text("─" * 3 + head, style=f"bold {colour}"), soft_wrap=True)
        console.print(Text(each.repeat, style="bright_black") + Text(each.text, style=colour), soft_wrap=True)
