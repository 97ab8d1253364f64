"""Laws of the window, by a queue that is reckoned and not timed: everybody is kept busy, and a live edit finds little before it."""

from __future__ import annotations

import heapq
import random
from dataclasses import dataclass, field

import pytest

from streams.lanes.window import LEAST, MOST, START, Window


@dataclass
class Queue:
    """One server: each change takes `service` seconds of it, one after the other, and `base` seconds of nobody's time besides.

    `noise`: how unequal changes are. `cheap`: share of changes that the parser settles, 20 ms after they were passed on.
    """

    service: float
    base: float
    noise: float = 0.0
    cheap: float = 0.0
    window: Window = field(default_factory=Window)
    now: float = 0.0
    free: float = 0.0
    waits: list[float] = field(default_factory=list)
    sizes: list[float] = field(default_factory=list)
    worked: float = 0.0

    def run(self, changes: int) -> Queue:
        """Pass on so many changes, as many at once as the window allows."""
        dice = random.Random(changes)
        coming: list[tuple[float, int, str, float]] = []
        left = changes
        while left or coming:
            while left and not self.window.full:
                left -= 1
                number = self.window.send(self.now, "b", 0)
                if dice.random() < self.cheap:
                    heapq.heappush(coming, (self.now + 0.02, number, "parser", self.now))
                    continue
                seconds = self.service * (1 + self.noise * dice.uniform(-1, 1))
                self.worked += seconds
                self.free = max(self.now + self.base / 2, self.free) + seconds
                heapq.heappush(coming, (self.free + self.base / 2, number, "indexer", self.now))
            self.now, number, stage, sent = heapq.heappop(coming)
            assert self.window.settle(number, stage, self.now)
            self.sizes.append(self.window.size)
            if stage == "indexer":
                self.waits.append(self.now - sent)
        return self

    @property
    def late_wait(self) -> float:
        """Mean wait of the later half."""
        later = self.waits[len(self.waits) // 2 :]
        return sum(later) / len(later)


SERVERS = [
    pytest.param(0.02, 0.1, id="a-worker"),
    pytest.param(0.2, 1.0, id="a-machine-ten-times-slower"),
    pytest.param(0.0006, 0.02, id="changes-that-are-only-looked-at"),
    pytest.param(0.1, 0.1, id="a-slow-model"),
    pytest.param(0.02, 1.0, id="an-index-far-away"),
]


@pytest.mark.parametrize("noise", [0.0, 0.8])
@pytest.mark.parametrize(("service", "base"), SERVERS)
def test_the_server_is_kept_busy(service: float, base: float, noise: float) -> None:
    queue = Queue(service, base, noise).run(4000)
    assert queue.worked / queue.now >= 0.8


@pytest.mark.parametrize("noise", [0.0, 0.8])
@pytest.mark.parametrize(("service", "base"), SERVERS)
def test_what_stands_before_a_live_edit_is_short(service: float, base: float, noise: float) -> None:
    alone = base + service
    queue = Queue(service, base, noise).run(4000)
    assert queue.late_wait <= alone + max(0.1, alone / 2) + 2 * service


def test_many_that_cost_nothing_do_not_hide_the_queue_of_those_that_do() -> None:
    queue = Queue(0.02, 0.1, cheap=0.9).run(8000)
    assert queue.late_wait <= 0.12 + 0.1 + 0.05
    assert queue.worked / queue.now >= 0.8


def test_a_server_that_live_work_slows_down_gets_less() -> None:
    queue = Queue(0.005, 0.1).run(2000)
    before = queue.window.size
    queue.service = 0.03
    queue.run(2000)
    assert queue.window.size < before / 2


def test_one_that_stays_slow_is_taken_as_it_is() -> None:
    """The index has moved far away: at the least window what it takes is no queue, and bulk does not creep for ever."""
    queue = Queue(0.01, 0.1).run(500)
    queue.window.send(queue.now, "b", 0)  # never quite empty: the least is not measured anew
    queue.base = 3.0
    queue.run(3000)
    assert queue.sizes[-1] > 4 * LEAST


def test_the_window_keeps_its_bounds_whatever_comes() -> None:
    dice = random.Random(5)
    window, now, numbers = Window(), 0.0, [0]
    numbers.clear()
    for _ in range(20_000):
        now += dice.expovariate(100)
        if numbers and (window.full or dice.random() < 0.5):
            number = numbers.pop(dice.randrange(len(numbers)))
            assert window.settle(number, dice.choice(("parser", "chunker", "indexer")), now)
        elif not window.full:
            numbers.append(window.send(now, "b", 0))
        assert LEAST <= window.size <= MOST
        assert len(window.under_way) == len(numbers)


def test_an_outcome_counts_once() -> None:
    window = Window()
    number = window.send(0.0, "b", 0)
    assert window.settle(number, "indexer", 0.1)
    assert not window.settle(number, "indexer", 0.2)
    assert not window.drop(number)


def test_a_window_that_is_not_used_does_not_grow() -> None:
    window = Window()
    for step in range(100):
        window.settle(window.send(float(step), "b", 0), "indexer", step + 0.1)
    assert window.size == START
