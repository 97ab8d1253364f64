"""Decoding validates values as they are; its outcomes, refusals to the word, are those of validating the JSON text itself."""

from __future__ import annotations

import json
from collections.abc import Iterator
from copy import deepcopy
from pathlib import Path
from typing import Any

import pytest
from pydantic import ValidationError

from schemas.codec import RECORDS, UndecodableRecord, _in_words, decode
from schemas.record import Record

SAMPLES = Path(__file__).parents[2] / "contracts" / "samples"
HALF = "\ud83d"
ODD: tuple[Any, ...] = (
    *(None, True, False, 0, 1, -1, 1.0, 1.5, float("nan"), float("inf"), 10**30, 1e20, 1_700_000_000),
    *("", "5", "1.0", "true", "2026-01-01T00:00:00Z", "2026-01-01T00:00:00", "2026-01-01", "中 é", HALF, "a\x00b"),
    *([], {}, [1], ["a"], [None, True, 1.0], [["a"]], [{}], {"a": 1}, {HALF: 1}),
)


@pytest.mark.parametrize("name", sorted(RECORDS))
def test_any_value_in_any_field_has_the_outcome_of_its_json(name: str) -> None:
    record = RECORDS[name]
    sample = json.loads((SAMPLES / f"{name}.v{record.record_version}.json").read_bytes())
    tried = 0
    for place in _places({**dict.fromkeys(record.model_fields), **sample}):
        for odd in ODD:
            for escaped in (True, False):
                value = json.dumps(_with(sample, place, odd), ensure_ascii=escaped).encode("utf-8", "surrogatepass")
                assert repr(_decoded(value, record)) == repr(_by_json(value, record)), (place, odd)
                tried += 1
    assert tried > len(ODD) * len(record.model_fields)


def _decoded(value: bytes, record: type[Record]) -> Record | str:
    try:
        return decode(value, record)
    except UndecodableRecord as error:
        return str(error)


def _by_json(value: bytes, record: type[Record]) -> Record | str:
    fields = json.loads(value)
    del fields["schema"]
    try:
        return record.model_validate_json(json.dumps(fields, ensure_ascii=False).encode("utf-8"))
    except UnicodeEncodeError:
        return "text holds half of a surrogate pair; send whole characters"
    except ValidationError as error:
        return _in_words(error)


def _places(value: Any, place: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    if place and place[0] != "schema":
        yield place
    children = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for step, child in children:
        yield from _places(child, (*place, step))


def _with(sample: Any, place: tuple[Any, ...], odd: Any) -> Any:
    changed = deepcopy(sample)
    holder = changed
    for step in place[:-1]:
        holder = holder[step]
    holder[place[-1]] = odd
    return changed
