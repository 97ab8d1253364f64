"""How many bulk changes may be under way at once, so that a live edit finds little before it: a window that sizes itself.

Clocked by outcomes. What counts is how long a change takes from being passed on to its outcome, beside the least it took while
little else was under way: the rest is queue, and queue is what a live edit stands behind. The window grows while it is
used up and the queue is short, and shrinks when the queue is long (the idea of LEDBAT, RFC 6817). So everybody is kept busy and
no more: by 40 changes a moment where they are only looked at, by 2 where a model takes its time.
"""

from __future__ import annotations

from dataclasses import dataclass, field

START = 4.0
LEAST = 2.0
MOST = 256.0
QUEUE_SECONDS = 0.1
"""Queue that bulk may make; half of what an outcome takes without any, where that is longer."""
GROWTH = 2.0
"""Changes by which the window may grow while as many as it holds are settled."""
SHRINKAGE = 0.25
"""Changes by which it may shrink with each that is settled: a quarter of it while as many as it holds are."""
SMOOTHING = 0.125
SETTLED_AT_LEAST = 16
"""So many settled while the window is at its least, and what they take is no queue of bulk."""
RECENT_SECONDS = 2.0
"""A stage whose last outcome is older has no say."""


@dataclass(slots=True)
class Sent:
    """One change under way. `at` is of a monotonic clock, in seconds; `batch` the one that was served then."""

    at: float
    batch: str
    partition: int


@dataclass(slots=True)
class StageDelay:
    """How long changes take that are settled by one stage, in seconds."""

    least: float
    """The least that `smooth` was: a single quick one says nothing."""
    smooth: float
    """An average that forgets."""
    seen: float
    """When the last one was settled."""

    @property
    def limit(self) -> float:
        """Queue that is allowed."""
        return max(QUEUE_SECONDS, self.least / 2)

    @property
    def room(self) -> float:
        """1: no queue; 0: as much as is allowed; -1: twice as much or more."""
        return max(-1.0, min(1.0, (self.limit - (self.smooth - self.least)) / self.limit))


@dataclass(slots=True)
class Window:
    """The changes under way, by number. All times are of one monotonic clock, passed in."""

    size: float = START
    under_way: dict[int, Sent] = field(default_factory=dict)
    delays: dict[str, StageDelay] = field(default_factory=dict)
    _next: int = 0
    _at_least: int = 0

    @property
    def full(self) -> bool:
        """True when nothing more may be passed on."""
        return len(self.under_way) >= int(self.size)

    def send(self, now: float, batch: str, partition: int) -> int:
        """Take note of a change that is being passed on; return its number."""
        if not self.under_way:
            self.delays.clear()  # nothing of ours is in the way: the least is measured anew
        number = self._next
        self._next += 1
        self.under_way[number] = Sent(now, batch, partition)
        return number

    def settle(self, number: int, stage: str, now: float) -> bool:
        """Take note of a change's outcome at a stage, and size the window by it. False: it was not under way (any more)."""
        was_used = len(self.under_way) * 2 >= self.size
        sent = self.under_way.pop(number, None)
        if sent is None:
            return False
        self._measure(stage, now - sent.at, now)
        recent = [delay for delay in self.delays.values() if now - delay.seen <= RECENT_SECONDS]
        delay = min(recent, key=lambda each: each.room)
        if delay is self.delays[stage] and (was_used or delay.room < 0):  # the stage with the longest queue decides
            self._resize(delay)
        return True

    def drop(self, number: int) -> bool:
        """Forget a change that will have no outcome here. False: it was not under way."""
        return self.under_way.pop(number, None) is not None

    def _resize(self, delay: StageDelay) -> None:
        step = GROWTH * delay.room / self.size if delay.room > 0 else SHRINKAGE * delay.room
        self.size = max(LEAST, min(MOST, self.size + step))
        self._at_least = self._at_least + 1 if self.size == LEAST else 0
        if self._at_least >= SETTLED_AT_LEAST:
            delay.least = delay.smooth  # it is what it takes now, with others at work

    def _measure(self, stage: str, seconds: float, now: float) -> None:
        delay = self.delays.get(stage)
        if delay is None:
            self.delays[stage] = StageDelay(seconds, seconds, now)
            return
        delay.smooth += SMOOTHING * (seconds - delay.smooth)
        delay.least = min(delay.least, delay.smooth)
        delay.seen = now
