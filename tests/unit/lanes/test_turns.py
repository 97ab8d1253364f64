"""Laws of turns: nobody is lost, each tenant's order stands, and nobody waits for more than one of each other tenant."""

from __future__ import annotations

from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st

from streams.lanes.turns import Turns

WAITERS = st.lists(st.sampled_from("abcd"), max_size=60)


def filled(tenants: list[str]) -> Turns[tuple[str, int]]:
    turns: Turns[tuple[str, int]] = Turns()
    for number, tenant in enumerate(tenants):
        turns.add(tenant, (tenant, number))
    return turns


@given(WAITERS)
def test_everybody_gets_a_turn_and_each_tenant_in_order(tenants: list[str]) -> None:
    turns = filled(tenants)
    taken = [turns.take() for _ in range(len(turns))]
    assert sorted(taken) == sorted((tenant, number) for number, tenant in enumerate(tenants))
    assert not turns
    for tenant in "abcd":
        numbers = [number for name, number in taken if name == tenant]
        assert numbers == sorted(numbers)


@given(WAITERS)
def test_between_two_turns_of_a_tenant_each_other_that_waits_has_one(tenants: list[str]) -> None:
    turns, left = filled(tenants), Counter(tenants)
    round_: set[str] = set()
    while turns:
        tenant, _ = turns.take()
        if tenant in round_:
            assert all(name in round_ for name, count in left.items() if count), "somebody was passed over"
            round_.clear()
        round_.add(tenant)
        left[tenant] -= 1


def test_a_thousand_of_one_do_not_stand_before_one_of_another() -> None:
    turns = filled(["big"] * 1000 + ["small"])
    assert [turns.take()[0] for _ in range(2)] == ["big", "small"]


@given(WAITERS, st.data())
def test_one_that_leaves_is_not_served_and_nobody_else_is_lost(tenants: list[str], data: st.DataObject) -> None:
    turns = filled(tenants)
    gone = set()
    for number, tenant in enumerate(tenants):
        if data.draw(st.booleans()):
            turns.remove(tenant, (tenant, number))
            turns.remove(tenant, (tenant, number))  # twice is once
            gone.add((tenant, number))
    taken = {turns.take() for _ in range(len(turns))}
    assert taken == set(enumerate_by(tenants)) - gone
    with pytest.raises(LookupError):
        turns.take()


def enumerate_by(tenants: list[str]) -> list[tuple[str, int]]:
    return [(tenant, number) for number, tenant in enumerate(tenants)]
