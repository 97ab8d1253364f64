"""The simulator can fail: every broken order of effects is found within its budget, and its history is shrunk to a few lines."""

from __future__ import annotations

import pytest

from tests.crash.simulation.campaign import first_failure
from tests.crash.simulation.letter_mutations import LETTER_MUTATIONS
from tests.crash.simulation.mutations import MUTATIONS
from tests.crash.simulation.shrinking import shrunk

ALL = {**MUTATIONS, **LETTER_MUTATIONS}


@pytest.mark.parametrize("name", sorted(ALL))
def test_a_broken_order_of_effects_is_found(name: str) -> None:
    broken = ALL[name]
    assert first_failure(broken.seeds, broken.parts, broken.bend, broken.histories, broken.simulation) is not None


def test_a_failing_history_is_shrunk_to_what_it_takes() -> None:
    parts = MUTATIONS["a-delete-is-missing"].parts
    failing = first_failure(range(50), parts)
    assert failing is not None
    finding = shrunk(failing, parts)
    assert len(finding.history.events) <= 2
    assert not finding.history.faults
    assert finding.complaints
    assert "left over chunk" in str(finding)
    assert "owns the partition" in str(finding)
