"""Minutes: what was settled in each minute of the last hour, and how long it took. Fixed size, whatever passes."""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass, field

MINUTES = 60
STEPS_A_DECADE = 20
"""Times are kept in classes that grow by 12 %: so exact is a median."""
_LEAST_SECONDS = 0.001
_CLASSES = 8 * STEPS_A_DECADE
"""From a millisecond to three years."""


def time_class(seconds: float) -> int:
    """Return the class of a time."""
    if seconds <= _LEAST_SECONDS:
        return 0
    return min(_CLASSES, math.ceil(math.log10(seconds / _LEAST_SECONDS) * STEPS_A_DECADE))


def class_limit(number: int) -> float:
    """Return the longest time of a class, in seconds."""
    return float(_LEAST_SECONDS * 10 ** (number / STEPS_A_DECADE))


@dataclass(slots=True)
class Minute:
    """One minute. `settled` events of any outcome; `times` counts those that became searchable, by class; `longest` is exact."""

    number: int = -1
    """Minutes since 1970; -1: never used."""
    settled: int = 0
    timed: int = 0
    longest: float = 0.0
    times: dict[int, int] = field(default_factory=dict)

    def quantile(self, share: float) -> float | None:
        """Return the time that `share` of the events stay within; None where there were none."""
        return quantile([self], share)


def quantile(minutes: Iterable[Minute], share: float) -> float | None:
    """Return the time that `share` of all events of these minutes stay within: the limit of its class, at most the longest."""
    counted: dict[int, int] = {}
    total, longest = 0, 0.0
    for minute in minutes:
        total += minute.timed
        longest = max(longest, minute.longest)
        for number, count in minute.times.items():
            counted[number] = counted.get(number, 0) + count
    if not total:
        return None
    wanted, passed = share * total, 0
    for number in sorted(counted):
        passed += counted[number]
        if passed >= wanted:
            return min(class_limit(number), longest)
    return longest


class Hour:
    """The last 60 minutes, a ring. Records come nearly in order; what is older than what its place holds is dropped."""

    __slots__ = ("_ring",)

    def __init__(self) -> None:
        self._ring = [Minute() for _ in range(MINUTES)]

    def take(self, at: float, seconds: float | None) -> None:
        """Count an event settled at `at` (seconds since 1970); `seconds`: how long until it was searchable, where it was."""
        number = int(at // 60)
        minute = self._ring[number % MINUTES]
        if number < minute.number:
            return
        if number > minute.number:
            minute.number, minute.settled, minute.timed, minute.longest = number, 0, 0, 0.0
            minute.times.clear()
        minute.settled += 1
        if seconds is not None:
            minute.timed += 1
            minute.longest = max(minute.longest, seconds)
            place = time_class(seconds)
            minute.times[place] = minute.times.get(place, 0) + 1

    def last(self, now: float, count: int = MINUTES) -> list[Minute]:
        """Return the last `count` minutes up to and with that of `now`, oldest first; empty ones where nothing happened."""
        newest = int(now // 60)
        wanted = range(newest - count + 1, newest + 1)
        return [found if (found := self._ring[number % MINUTES]).number == number else Minute(number) for number in wanted]
