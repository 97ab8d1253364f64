"""Bytes to record by name and version, and back. Old versions are upcast; unknown ones are refused with a reason."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping
from typing import Any, TypeVar

from pydantic import ValidationError

from schemas.batch import BatchRecord
from schemas.chunk_changes import ChunkChanges
from schemas.control import Control
from schemas.dead_letter import DeadLetter
from schemas.document_change import DocumentChange
from schemas.held_change import HeldChange
from schemas.letter_index import LetterCheckpoint, LetterClosing, LetterEntry
from schemas.parsed_document import ParsedDocument
from schemas.receipt import Receipt
from schemas.record import Record

RECORDS: Mapping[str, type[Record]] = {
    record.record_name: record
    for record in (
        DocumentChange,
        ParsedDocument,
        ChunkChanges,
        BatchRecord,
        Receipt,
        DeadLetter,
        Control,
        HeldChange,
        LetterEntry,
        LetterClosing,
        LetterCheckpoint,
    )
}

UPCASTS: Mapping[tuple[str, int], Callable[[dict[str, Any]], dict[str, Any]]] = {}
"""(name, version) to a function that returns the fields of version + 1. Empty while every record is at version 1."""

AnyRecord = TypeVar("AnyRecord", bound=Record)
_NAME = re.compile(r"[A-Za-z][A-Za-z0-9_-]{0,39}")


class UndecodableRecord(ValueError):
    """The bytes are not a record this version knows. The message names the field and what to do; it quotes no content."""


def schema_name(record: type[Record]) -> str:
    """Return the name and version as they stand on the wire: ``docdelta.document_change/1``."""
    return f"docdelta.{record.record_name}/{record.record_version}"


def encode(record: Record) -> bytes:
    """Return UTF-8 JSON of a record with its schema name first. Fields at their default are left out."""
    body = record.model_dump_json(exclude_defaults=True)
    head = f'{{"schema":"{schema_name(type(record))}"'
    return (head + ("}" if body == "{}" else "," + body[1:])).encode("utf-8")


def decode(value: bytes, expected: type[AnyRecord]) -> AnyRecord:
    """Return the record in `value`. Raises UndecodableRecord: not JSON, other record, unknown version, wrong field."""
    fields = _json_object(value)
    schema = fields.pop("schema", None)
    wanted = schema_name(expected)
    if not isinstance(schema, str):
        raise UndecodableRecord(f"field 'schema' is missing; this topic takes {wanted!r}")
    name, _, version_text = schema.removeprefix("docdelta.").partition("/")
    if not schema.startswith("docdelta.") or name != expected.record_name:
        raise UndecodableRecord(f"schema {schema[:80]!a} does not belong here; this topic takes {wanted!r}")
    if not re.fullmatch("[0-9]{1,6}", version_text) or not 1 <= int(version_text) <= expected.record_version:
        raise UndecodableRecord(f"schema version {schema[:80]!a} is unknown here; this release reads up to {wanted!r}")
    for version in range(int(version_text), expected.record_version):
        fields = UPCASTS[name, version](fields)
    if not _may_hold_half_a_pair(value):
        try:
            return expected.model_validate(fields)
        except ValidationError:
            pass  # said below in JSON's words: array, object
    try:
        return expected.model_validate_json(json.dumps(fields, ensure_ascii=False).encode("utf-8"))
    except UnicodeEncodeError as error:
        raise UndecodableRecord("text holds half of a surrogate pair; send whole characters") from error
    except ValidationError as error:
        raise UndecodableRecord(_in_words(error)) from error


def _may_hold_half_a_pair(value: bytes) -> bool:
    """Return whether half a surrogate pair could hide in JSON: behind an escape, as its own three bytes, or in UTF-16 or UTF-32.
    What is sure to hold none need not be written and read once more to find out."""
    return b"\\u" in value or b"\xed" in value or not value.startswith(b"{") or b"\x00" in value[:4]


def _json_object(value: bytes) -> dict[str, Any]:
    try:
        fields = json.loads(value)
    except UnicodeDecodeError as error:
        raise UndecodableRecord(f"not UTF-8 at byte {error.start}") from error
    except RecursionError as error:
        raise UndecodableRecord("JSON is nested too deeply") from error
    except ValueError as error:
        if not isinstance(error, json.JSONDecodeError):
            raise UndecodableRecord("not JSON that can be used: it holds a number of thousands of digits") from error
        raise UndecodableRecord(f"not JSON: {error.msg} at character {error.pos}") from error
    if not isinstance(fields, dict):
        raise UndecodableRecord(f"not a JSON object but {type(fields).__name__}")
    return fields


def _step(step: int | str) -> str:
    """Return a step on the way to a field. In a damaged record any text can stand where a name should, so only names are quoted."""
    return str(step) if isinstance(step, int) or _NAME.fullmatch(step) else "(no name)"


def _in_words(error: ValidationError) -> str:
    """Return up to three faults as "field: what is wrong". Inputs are left out: content never reaches a log."""
    faults = error.errors(include_url=False, include_input=False, include_context=False)
    parts = []
    for fault in faults[:3]:
        place = ".".join(_step(step) for step in fault["loc"]) or "record"
        words = "unknown field; remove it" if fault["type"] == "extra_forbidden" else fault["msg"].removeprefix("Value error, ")
        parts.append(f"{place[:120]}: {words}")
    more = f" (and {len(faults) - 3} more)" if len(faults) > 3 else ""
    return "; ".join(parts) + more
