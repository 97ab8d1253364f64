"""Golden: questions with the places of their answers, read from YAML or JSONL and checked by line.

YAML: ``tenant`` (for all questions that name none) and ``questions``, a list. JSONL: a question a line. A question names one place
beside itself (``document``, ``fragment``, …) or several under ``expected``. All of them are wanted: a question with two places is
half answered by one.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml
from pydantic import BaseModel, ConfigDict, Field, ValidationError, field_validator

from chunking.policy import line_of
from schemas.record import REVISION_LIMIT
from streams.errors import UsageError
from streams.words import unreadable

_SHOWN_FAULTS = 5


class _Closed(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")


class Expectation(_Closed):
    """Where an answer stands. A hit meets it when it is of the document (and revision), and holds the fragment.

    Without a fragment, heading path and clause decide instead, where given. With one, they are what a citation must name.
    """

    document: str = Field(min_length=1)
    revision: int | None = Field(default=None, ge=0, lt=REVISION_LIMIT)
    heading_path: tuple[str, ...] = ()
    clause: str = ""
    fragment: str = ""
    """Words of the document, whitespace aside."""


class GoldenQuestion(_Closed):
    """A question, who asks it, and all places of its answer. `line` is where it stands in its file, from 1."""

    question: str
    tenant: str = Field(min_length=1)
    groups: tuple[str, ...] | None = None
    """Groups of the reader who asks; None: readers' rights are not looked at."""
    languages: tuple[str, ...] = ()
    expected: tuple[Expectation, ...]
    line: int = 0

    @field_validator("question")
    @classmethod
    def _asks(cls, value: str) -> str:
        if not value.strip():
            raise ValueError("the question is blank")
        return value

    @field_validator("expected")
    @classmethod
    def _has_a_place(cls, value: tuple[Expectation, ...]) -> tuple[Expectation, ...]:
        if not value:
            raise ValueError("name one place at least")
        return value


@dataclass(frozen=True, slots=True)
class Golden:
    """A checked golden file. `source` is its name, for messages and reports."""

    questions: tuple[GoldenQuestion, ...]
    source: str = "golden"


def load_golden(path: Path) -> Golden:
    """Return the golden file: JSONL by its suffix (.jsonl, .ndjson), else YAML. UsageError names file, line and field."""
    try:
        text = path.read_text(encoding="utf-8-sig")
    except (OSError, UnicodeDecodeError) as error:
        raise UsageError(f"golden file {path} can't be read: {unreadable(error)}") from error
    return parse_golden(text, str(path), jsonl=path.suffix.lower() in (".jsonl", ".ndjson"))


def parse_golden(text: str, source: str, jsonl: bool = False) -> Golden:
    """Return the questions in a text. UsageError names `source`, line and field of up to five faults."""
    placed = _jsonl(text, source) if jsonl else _yaml(text, source)
    questions: list[GoldenQuestion] = []
    faults: list[str] = []
    for raw, lines in placed:
        try:
            questions.append(GoldenQuestion.model_validate({**_with_places(raw), "line": lines(())}))
        except ValidationError as error:
            faults += [_words(fault, source, raw, lines) for fault in error.errors(include_url=False)]
    if not faults:
        faults = _repeated(questions, source)
    if faults:
        more = [f"… and {len(faults) - _SHOWN_FAULTS} more"] if len(faults) > _SHOWN_FAULTS else []
        raise UsageError("\n".join([*faults[:_SHOWN_FAULTS], *more]))
    if not questions:
        raise UsageError(f"{source}: there is no question in it")
    return Golden(tuple(questions), source)


class _Lines:
    """Gives the line of a field of one question."""

    def __init__(self, first: int, node: yaml.Node | None = None) -> None:
        self._first = first
        self._node = node

    def __call__(self, path: Sequence[int | str]) -> int:
        return max(self._first, line_of(self._node, tuple(path))) if self._node is not None else self._first


def _yaml(text: str, source: str) -> list[tuple[Mapping[str, Any], _Lines]]:
    try:
        root = yaml.compose(text, Loader=yaml.SafeLoader)
        content = yaml.safe_load(text)
    except yaml.YAMLError as error:
        mark = getattr(error, "problem_mark", None)
        line = f":{mark.line + 1}" if mark else ""
        raise UsageError(f"{source}{line}: not YAML: {getattr(error, 'problem', error)}") from error
    questions = content.get("questions") if isinstance(content, Mapping) else None
    if not isinstance(content, Mapping) or not isinstance(questions, list):
        raise UsageError(f"{source}: a golden file is a mapping with `questions`, a list, and perhaps `tenant`")
    unknown = next((key for key in content if key not in ("tenant", "questions")), None)
    if unknown is not None:
        raise UsageError(f"{source}:{line_of(root, (str(unknown),))}: {unknown}: unknown key; there are tenant and questions")
    assert isinstance(root, yaml.MappingNode)
    nodes = next(node for key, node in root.value if key.value == "questions").value
    placed: list[tuple[Mapping[str, Any], _Lines]] = []
    for raw, node in zip(questions, nodes, strict=True):
        line = node.start_mark.line + 1
        if not isinstance(raw, Mapping):
            raise UsageError(f"{source}:{line}: a question is a mapping with `question` and `document`")
        placed.append(({"tenant": content.get("tenant", ""), **raw}, _Lines(line, node)))
    return placed


def _jsonl(text: str, source: str) -> list[tuple[Mapping[str, Any], _Lines]]:
    placed = []
    for number, line in enumerate(text.split("\n"), start=1):
        if not line.strip():
            continue
        try:
            raw = json.loads(line)
        except ValueError as error:
            raise UsageError(f"{source}:{number}: not JSON: {error}") from error
        if not isinstance(raw, Mapping):
            raise UsageError(f"{source}:{number}: a line is an object with `question`, `tenant` and `document`")
        placed.append((raw, _Lines(number)))
    return placed


def _with_places(raw: Mapping[str, Any]) -> dict[str, Any]:
    """Return a question whose places stand under `expected`, also where it names its one place beside itself."""
    fields = {str(key): value for key, value in raw.items()}
    place = {name: fields.pop(name) for name in Expectation.model_fields if name in fields}
    if "expected" not in fields:
        fields["expected"] = [place]
    elif place:
        fields |= place  # both at once: refused as unknown keys
    return fields


def _words(fault: Any, source: str, raw: Mapping[str, Any], lines: _Lines) -> str:
    path: tuple[int | str, ...] = fault["loc"]
    if "expected" not in raw and path[:2] == ("expected", 0):
        path = path[2:]
    words = {"extra_forbidden": "unknown key", "string_type": "must be text; put it in quotes"}.get(fault["type"])
    if words == "unknown key" and len(path) == 1 and path[0] in Expectation.model_fields:
        words = "stands beside `expected`; give one or the other"
    place = ".".join(map(str, path)) or "question"
    return f"{source}:{lines(path)}: {place}: {words or fault['msg'].removeprefix('Value error, ')}"


def _repeated(questions: Sequence[GoldenQuestion], source: str) -> list[str]:
    seen: dict[tuple[str, str, tuple[str, ...] | None], int] = {}
    faults = []
    for each in questions:
        first = seen.setdefault((each.tenant, each.question, each.groups), each.line)
        if first != each.line:
            faults.append(
                f"{source}:{each.line}: question: already asked in line {first}; put its places together under `expected`"
            )
    return faults
