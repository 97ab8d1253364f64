"""A change is through when each stage in turn is past where its input ended then, and not before."""

from __future__ import annotations

import random

import pytest

from streams.lanes.passed import Chase, Chases, Offsets


def test_a_system_that_has_nothing_left_needs_one_look() -> None:
    assert Chase().look(Offsets((9, 9), (5, 5), (3, 3)))


@pytest.mark.parametrize("behind", range(3))
def test_a_stage_that_does_not_move_is_waited_for(behind: int) -> None:
    stages = [(9, 9)] * 3
    stages[behind] = (8, 9)
    chase = Chase()
    assert not any(chase.look(Offsets(*stages)) for _ in range(10))
    stages[behind] = (9, 30)  # past where it ended then: what has come since is not ours
    assert chase.look(Offsets(*stages))


def test_a_change_is_never_let_go_before_its_stages_are_past_it() -> None:
    """Random histories of a pipeline beside other work, looked at now and then: true only when the change itself is done."""
    for seed in range(300):
        dice = random.Random(seed)
        ends, done, ours = [0, 0, 0], [0, 0, 0], [-1, -1, -1]
        chase = Chase()
        for step in range(400):
            if step == 20:
                ours[0], ends[0] = ends[0], ends[0] + 1
            elif dice.random() < 0.4:
                ends[0] += 1
            stage = dice.randrange(3)
            if done[stage] < ends[stage]:
                if stage < 2:
                    if done[stage] == ours[stage]:
                        ours[stage + 1] = ends[stage + 1]
                    ends[stage + 1] += 1  # published before it is committed
                done[stage] += 1
            if step > 20 and dice.random() < 0.2 and chase.look(Offsets(*zip(done, ends, strict=True))):
                assert -1 < ours[2] < done[2], seed
                break
        else:
            rest = Offsets(*((end, end) for end in ends))
            assert chase.look(rest), "all work is done, and it is not noticed"


def test_only_what_is_overdue_is_chased_and_only_partitions_that_are_known() -> None:
    chases = Chases()
    idle, busy = Offsets((4, 4), (4, 4), (4, 4)), Offsets((3, 4), (4, 4), (4, 4))
    assert chases.look({1: 0, 2: 1, 3: 7}, {0: idle, 1: busy}) == {1}
    assert set(chases.chases) == {2, 3}
    assert chases.look({3: 7}, {0: idle}) == set()
    assert set(chases.chases) == {3}
