"""Documents against manifests, and a source's inventory against documents. Pure."""

from __future__ import annotations

import csv
import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path

from chunking.manifest import Manifest
from schemas.record import REVISION_LIMIT, document_key, split_document_key
from streams.audit.findings import Finding
from streams.errors import UsageError
from streams.repair.newest import Newest
from streams.words import unreadable


def judge_document(key: bytes, newest: Newest | None, manifest: Manifest | None) -> Finding | None:
    """Return what is wrong between the newest event of a document and its manifest.

    Whether it is there is compared, not under which revision: one that says nothing new passes no batch.
    """
    there = manifest is not None and not manifest.deleted
    if newest is None:
        if not there or manifest is None:
            return None
        return Finding("manifest_without_document", key, "", f"manifest of revision {manifest.revision}", manifest.revision)
    if newest.op == "upsert" and not there:
        state = "no manifest" if manifest is None else f"manifest says deleted at revision {manifest.revision}"
        return Finding("document_without_manifest", key, "", f"event of revision {newest.revision}, {state}", newest.revision)
    if newest.op == "delete" and there and manifest is not None:
        said = f"deleted at revision {newest.revision}, manifest of revision {manifest.revision}"
        return Finding("deleted_but_present", key, "", said, newest.revision)
    return None


@dataclass(frozen=True, slots=True)
class Listed:
    """One document as its source has it."""

    key: bytes
    revision: int | None


def read_inventory(file: Path) -> list[Listed]:
    """Return what a source says it has: JSONL objects or CSV rows with tenant, document and, if known, revision.

    ``tenant_id`` and ``document_id`` are taken as well. UsageError naming the line that can't be used.
    """
    try:
        text = file.read_text(encoding="utf-8-sig")
    except (OSError, UnicodeDecodeError) as error:
        raise UsageError(f"--inventory {file} can't be read: {unreadable(error)}") from error
    lines = [line for line in text.split("\n") if line.strip()]
    is_json = bool(lines) and lines[0].lstrip().startswith("{")
    rows: Iterable[object] = map(_json, lines) if is_json else csv.DictReader(lines)
    return [_listed(row, f"{file}, entry {number}") for number, row in enumerate(rows, start=1)]


def _json(line: str) -> object:
    try:
        return json.loads(line)
    except ValueError:
        return None


def _listed(row: object, place: str) -> Listed:
    fields = {str(name).strip(): value for name, value in row.items() if name is not None} if isinstance(row, dict) else {}
    tenant, document = (fields.get(name) or fields.get(f"{name}_id") for name in ("tenant", "document"))
    if not isinstance(tenant, str) or not isinstance(document, str):
        raise UsageError(f"--inventory {place}: needs the fields tenant and document")
    key = document_key(tenant, document)
    try:
        split_document_key(key)
        given = fields.get("revision")
        revision = None if given is None or given == "" else int(given)
    except (ValueError, TypeError) as error:
        raise UsageError(f"--inventory {place}: {error}") from error
    if revision is not None and not 0 <= revision < REVISION_LIMIT:
        raise UsageError(f"--inventory {place}: revision {revision} is outside 0..2^53")
    return Listed(key, revision)


def compare_inventory(listed: Iterable[Listed], newest: Mapping[bytes, Newest], tenant: str = "") -> list[Finding]:
    """Return what differs between a source and the log, for the tenants that the inventory names (or one of them)."""
    at_source = {each.key: each for each in listed if not tenant or split_document_key(each.key)[0] == tenant}
    tenants = {split_document_key(key)[0] for key in at_source} | ({tenant} if tenant else set())
    found: list[Finding] = []
    for key, each in at_source.items():
        ours = newest.get(key)
        if ours is None or ours.op == "delete":
            said = "no event of it" if ours is None else f"deleted at revision {ours.revision}"
            found.append(Finding("missing_here", key, "", said))
        elif each.revision is not None and ours.revision < each.revision:
            said = f"revision {ours.revision}, the source has {each.revision}"
            found.append(Finding("older_than_source", key, "", said, ours.revision))
    for key, ours in newest.items():
        if key not in at_source and ours.op == "upsert" and key.partition(b"/")[0].decode("utf-8", "replace") in tenants:
            found.append(Finding("unknown_at_source", key, "", f"revision {ours.revision}", ours.revision))
    return found
