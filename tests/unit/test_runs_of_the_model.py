"""How the texts of one call are shared by the threads that run the network."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from streams.embedders.fastembed import Runs


@given(lengths=st.lists(st.integers(1, 50), min_size=1, max_size=60), size=st.integers(1, 16), threads=st.integers(1, 4))
def test_every_text_is_embedded_once_in_a_run_of_its_like(lengths, size, threads):
    texts = [f"{number:03}" + "x" * length for number, length in enumerate(lengths)]
    asked: list[list[str]] = []

    def run(some: list[str]) -> list[np.ndarray]:
        asked.append(some)
        return [np.array([len(text)], np.float32) for text in some]

    runs = Runs(texts, size)
    with ThreadPoolExecutor(threads) as pool:
        for share in [pool.submit(runs.share, run) for _ in range(threads)]:
            share.result()
    assert sorted(text for some in asked for text in some) == texts
    assert [int(runs.found[position][0]) for position in range(len(texts))] == [len(text) for text in texts]
    assert all(1 <= len(some) <= size for some in asked)
    by_length = sorted(asked, key=lambda some: (-len(some[0]), -len(some[-1])))
    assert all(len(before[-1]) >= len(after[0]) for before, after in pairwise(by_length)), "like with like"


def test_a_run_that_fails_is_told_and_what_is_left_is_not_begun_after_the_call_gave_up():
    runs = Runs(["a", "b", "c"], 1)

    def fails(some: list[str]) -> list[np.ndarray]:
        raise RuntimeError("no memory")

    with pytest.raises(RuntimeError, match="no memory"):
        runs.share(fails)
    runs.give_up()
    runs.share(fails)
    assert runs.found == {}
