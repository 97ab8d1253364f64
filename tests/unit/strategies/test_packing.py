"""Packing: weakest boundaries merge first, nothing over the limit, nothing over a wall, and edits stay where they are."""

from __future__ import annotations

from itertools import pairwise, product

from hypothesis import given
from hypothesis import strategies as st

from chunking.packing import NO_WALL, in_doubt, merge_order, pack_by_strength, pack_greedily

ATOMS = st.lists(st.tuples(st.integers(1, 40), st.integers(0, 9), st.integers(0, 9)), max_size=40)
WALL = 8


def groups(cuts: list[int], count: int) -> list[range]:
    return [range(first, after) for first, after in zip(cuts, [*cuts[1:], count], strict=True)] if count else []


def order_of(ranks: list[int]) -> list[int]:
    texts = [f"paragraph {index} " for index in range(len(ranks))]
    starts = [sum(map(len, texts[:index])) for index in range(len(ranks))]
    return merge_order("".join(texts), starts, sum(map(len, texts)), ranks)


@given(ATOMS, st.integers(40, 120))
def test_groups_fit_and_respect_walls(atoms: list[tuple[int, int, int]], limit: int) -> None:
    weights, ranks, extras = ([atom[place] for atom in atoms] for place in range(3))
    for cuts in (
        pack_by_strength(weights, extras, ranks, order_of(ranks), limit, WALL),
        pack_greedily(weights, extras, ranks, limit, WALL),
    ):
        assert cuts == sorted(set(cuts))
        assert (cuts[:1] == [0]) == bool(atoms)
        for group in groups(cuts, len(atoms)):
            assert len(group) == 1 or extras[group[0]] + sum(weights[i] for i in group) <= limit
            assert all(ranks[i] < WALL for i in group[1:])


@given(ATOMS, st.integers(40, 120))
def test_strength_leaves_no_weakest_pair_that_would_fit(atoms: list[tuple[int, int, int]], limit: int) -> None:
    weights, ranks, _ = ([atom[place] for atom in atoms] for place in range(3))
    cuts = pack_by_strength(weights, [0] * len(atoms), ranks, order_of(ranks), limit, NO_WALL)
    sums = [sum(weights[i] for i in group) for group in groups(cuts, len(atoms))]
    assert all(a + b > limit for a, b in pairwise(sums))


@given(atoms=ATOMS, limit=st.integers(1, 60), whole=st.integers(1, WALL))
def test_sections_that_fit_need_no_order(atoms: list[tuple[int, int, int]], limit: int, whole: int) -> None:
    weights, ranks, extras = ([atom[place] for atom in atoms] for place in range(3))
    never, doubtful = in_doubt(weights, extras, ranks, limit, WALL, whole)
    order = order_of(ranks)
    needed = [index for index in order if index in doubtful]
    cuts = never + pack_by_strength(weights, extras, ranks, needed, limit, WALL, whole=whole)
    assert sorted(cuts) == pack_by_strength(weights, extras, ranks, order, limit, WALL, whole=whole)


def test_over_a_heading_only_whole_sections_merge() -> None:
    # heading section of 30 in two parts that do not fit together, then a small section.
    weights, ranks = [30, 30, 10], [9, 1, 9]
    cuts = pack_by_strength(weights, [0, 0, 0], ranks, [1, 2], 50, NO_WALL, whole=9)
    assert cuts == [0, 1, 2]
    assert pack_by_strength(weights, [0, 0, 0], ranks, [1, 2], 50, NO_WALL) == [0, 1]


def test_the_order_depends_on_the_text_behind_a_boundary_alone() -> None:
    paragraphs = [f"Paragraph {word}. " for word in ["alpha", "beta", "gamma", "delta", "epsilon", "zeta"]]

    def order(texts: list[str]) -> list[str]:
        starts = [sum(map(len, texts[:index])) for index in range(len(texts))]
        text = "".join(texts)
        return [texts[index] for index in merge_order(text, starts, len(text), [5] * len(texts))]

    before = order(paragraphs)
    after = order([paragraphs[0], "Inserted words. ", *paragraphs[1:]])
    assert [text for text in after if text != "Inserted words. "] == before


def test_equal_texts_merge_from_the_left() -> None:
    assert merge_order("same. " * 4, [0, 6, 12, 18], 24, [5] * 4) == [1, 2, 3]


def test_unlike_texts_whose_hashes_are_equal_merge_from_the_left() -> None:
    """So they did in every release: an output has one version for ever. CRC-32 is equal for each of these pairs."""
    pairs = [("vvekwlpxlsfh", "duxbdagnvvkn"), ("khdqraoweigq", "cjbsvnrxcrir"), ("gwiofokibmsp", "cnmkgepizwst")]
    for (one, other), more in product(pairs, (" and more\n", " and what comes then\n")):
        parts = ["a head\n", one + more, other + " and the rest\n"]
        starts = [0, len(parts[0]), len(parts[0] + parts[1])]
        assert merge_order("".join(parts), starts, sum(map(len, parts)), [0] * 3) == [1, 2]


def test_greedy_prefers_the_stronger_boundary_of_the_last_half() -> None:
    assert pack_greedily([10, 10, 10, 10, 10], [0] * 5, [9, 1, 1, 7, 1], 40, NO_WALL) == [0, 3]
