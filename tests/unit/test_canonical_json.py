"""The bytes under every fingerprint are those of Python's own json, whoever writes them."""

from __future__ import annotations

import json
from enum import StrEnum
from typing import Any

from hypothesis import example, given
from hypothesis import strategies as st

from chunking.identity import canonical_json


class Kind(StrEnum):
    ONE = "one"


SCALARS = st.none() | st.booleans() | st.integers() | st.floats() | st.text(st.characters()) | st.just(Kind.ONE)
VALUES = st.recursive(
    SCALARS, lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3), max_leaves=8
)


@given(st.dictionaries(st.text(st.characters(), max_size=6), VALUES, max_size=4))
@example({"half": "\ud83d", "whole": "\U0001f600"})
@example({"large": 1 << 70, "deep": {"list": [{"float": 1e16, "tuple": (1, 2.5)}]}})
@example({"\uffff": 1, "\U00010000": 2, "é": 3, "e\u0301": 4, "\x7f\u2028\u0000": "\x7f\u2028\u0000"})
@example({"set": frozenset({"alone"})})
@example({"numbers": {1: "a", 2: "b"}})
def test_canonical_json_is_what_pythons_own_json_writes(value: dict[str, Any]) -> None:
    text = json.dumps(value, ensure_ascii=False, sort_keys=True, separators=(",", ":"), default=list)
    assert canonical_json(value) == text.encode("utf-8", "surrogatepass")
