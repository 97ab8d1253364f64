"""`docdelta diff`: what an edit would cost under a policy. Offline."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Annotated

import typer

from chunking.chunk import Chunk
from chunking.diff import Delta
from chunking.diff import diff as diff_chunks
from chunking.passage import Role
from streams.cli import options
from streams.cli.files import FileFacts
from streams.cli.output import note, one_line, print_json, stdout, table
from streams.cli.policies import DEFAULT_POLICY, read_policy
from streams.cli.preview import PREVIEW_TENANT, chunks_of, read_document
from streams.words import counted


def diff(
    old: Annotated[Path, typer.Argument(help="The file as it was.", show_default=False)],
    new: Annotated[Path, typer.Argument(help="The file as it is.", show_default=False)],
    policy: options.Policy = DEFAULT_POLICY,
    tenant: options.PreviewTenant = PREVIEW_TENANT,
    document_id: options.PreviewId = "",
    media_type: options.MediaType = "",
    title: options.Title = "",
    language: options.Language = "",
    kind: options.Kind = "",
    label: options.Labels = None,
    json: options.Json = False,
) -> None:
    """Show which chunks an edit keeps, adds, updates and removes, and how many texts it would embed.

    Both files stand for the same document. *updated* means a payload write without an embedding: a moved chunk, another heading.

    Example:  docdelta diff manual.v1.md manual.v2.md --policy default
    """
    chosen = read_policy(policy).policy
    facts = FileFacts(media_type, title, language, kind, tuple(label or ()))
    identity = document_id or old.name
    before = chunks_of(read_document(old, facts), old, chosen, tenant=tenant, document_id=identity)
    after = chunks_of(read_document(new, facts), new, chosen, tenant=tenant, document_id=identity)
    _, manifest = diff_chunks(None, before, 0)
    delta, _ = diff_chunks(manifest, after, 1)
    embeddings = embeddings_of(delta)
    if json:
        print_json(
            {
                "kept": list(delta.kept),
                "added": [placed.chunk.chunk_id for placed in delta.added],
                "updated": [placed.chunk.chunk_id for placed in delta.updated],
                "removed": list(delta.removed),
                "embeddings": embeddings,
            }
        )
        return
    lines = table("change", "chunk", "place", "text", fold=("place", "text"))
    for change, chunk in _in_order(delta, {each.chunk_id: each for each in before}):
        lines.add_row(change, chunk.chunk_id[:12], chunk.clause or " > ".join(chunk.heading_path), one_line(chunk.text, 90))
    if lines.row_count:
        stdout().print(lines)
    note(
        f"{len(delta.kept)} kept, {len(delta.added)} added, {len(delta.updated)} updated, {len(delta.removed)} removed; "
        f"{embeddings} of {counted(len(after), 'chunk')} to embed"
    )


def embeddings_of(delta: Delta) -> int:
    """Return how many texts a delta gives to the embedder: added chunks that get a vector. PARENT chunks get none."""
    return sum(placed.chunk.role is not Role.PARENT and bool(placed.chunk.embed_text.strip()) for placed in delta.added)


def _in_order(delta: Delta, before: Mapping[str, Chunk]) -> list[tuple[str, Chunk]]:
    """Return what changes: removed chunks first, then the others as they stand in the new document."""
    changed = [("removed", before[chunk_id]) for chunk_id in delta.removed]
    rest = [("added", placed.chunk) for placed in delta.added] + [("updated", placed.chunk) for placed in delta.updated]
    return changed + sorted(rest, key=lambda pair: pair[1].ordinal)
