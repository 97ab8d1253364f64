"""200,000 inputs: every outcome is a document or a named error, within bounds of time and memory. The campaign can fail, too."""

from __future__ import annotations

import os

import pytest

from tests.fuzz import campaign as under_test
from tests.fuzz.campaign import campaign, shares, try_one
from tests.fuzz.inputs import Inputs
from tests.fuzz.targets import TARGETS, Outcome

INPUTS = 200_000


@pytest.mark.parametrize("name", TARGETS)
def test_every_outcome_is_a_document_or_a_named_error(name: str) -> None:
    tally = campaign({name: shares(INPUTS)[name]})
    print(tally)
    assert tally.inputs.total() >= TARGETS[name][1]
    assert tally.findings == [], f"{tally}\nagain: python -m tests.fuzz --target {name} --number N"
    assert len(tally.outcomes) > 1 or name == "normaliser", "one outcome only: the inputs are not varied"


def test_all_targets_together_are_200_000_inputs() -> None:
    assert sum(shares(INPUTS).values()) == INPUTS


def _fails_in_every_way(inputs: Inputs) -> Outcome:
    match inputs.dice.randrange(1_000_000) % 4:
        case 0:
            raise KeyError("a fault")
        case 1:
            bytearray(4 << 30)
        case 2:
            os._exit(3)
    return "fine", 1


def test_an_error_a_memory_hog_and_a_crash_are_found_and_the_rest_goes_on(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(TARGETS, "broken", (_fails_in_every_way, 1))
    tally = campaign({"broken": 40})
    words = "\n".join(tally.findings)
    assert tally.inputs.total() == 40
    assert all(sign in words for sign in ("KeyError", "MemoryError", "exit code 3"))


def _never_ends(inputs: Inputs) -> Outcome:
    while inputs:
        pass
    return "never", 0


def test_an_input_that_never_ends_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(TARGETS, "endless", (_never_ends, 1))
    monkeypatch.setattr(under_test, "KILL_CPU_SECONDS", 0.2)
    assert campaign({"endless": 2}).findings == [f"endless {number}: the process died (SIGPROF)" for number in range(2)]


FOUND = [
    pytest.param("codec", 27087, id="an-error-quoted-content-that-stood-where-a-field-name-should"),
    pytest.param("codec", 701_004_340, id="an-error-quoted-the-name-of-an-unknown-schema-in-its-letters"),
    pytest.param("parse-bytes", 701_006_725, id="a-row-within-foreign-markup-of-a-cell-took-its-text"),
    pytest.param("parse-text", 754, id="a-joiner-was-left-beside-a-blank-that-the-parser-cut-off"),
]


@pytest.mark.parametrize(("name", "number"), FOUND)
def test_what_was_found_stays_mended(name: str, number: int) -> None:
    assert try_one(name, number) == ""
