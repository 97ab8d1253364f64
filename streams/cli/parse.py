"""`docdelta parse`: how a file is read, block by block. Offline."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from streams.cli import options
from streams.cli.files import FileFacts
from streams.cli.output import note, one_line, print_json, stdout, table
from streams.cli.preview import block_json, read_document
from streams.words import counted


def parse(
    file: Annotated[Path, typer.Argument(help="Markdown, HTML or plain text file.", show_default=False)],
    media_type: options.MediaType = "",
    title: options.Title = "",
    language: options.Language = "",
    kind: options.Kind = "",
    label: options.Labels = None,
    json: options.Json = False,
) -> None:
    """Show how a file is read: its blocks, their kinds and where they stand. Needs no broker and no model.

    Example:  docdelta parse manual.md

    Example:  docdelta parse page.html --json | jq '.blocks[].kind'
    """
    document = read_document(file, FileFacts(media_type, title, language, kind, tuple(label or ())))
    if json:
        print_json(
            {
                "parser": document.parser,
                "media_type": document.media_type,
                "title": document.title,
                "language": document.language,
                "kind": document.kind,
                "labels": sorted(document.labels),
                "text": document.text,
                "blocks": [block_json(document, block) for block in document.blocks],
            }
        )
        return
    lines = table("kind", "level", "clause", "group", "span", "text", numbers=("level", "group"), fold=("text",))
    for block in document.blocks:
        span = f"{block.span.start}-{block.span.end}"
        text = one_line(document.text_of(block), 90)
        lines.add_row(str(block.kind), str(block.level or ""), block.clause, str(block.group or ""), span, text)
    stdout().print(lines)
    parser = document.parser or document.media_type
    sizes = f"{counted(len(document.blocks), 'block')}, {counted(len(document.text), 'character')}"
    note(f"{sizes}, {parser}: {document.title or 'no title'}")
