"""Which lane changes take. The rule: more than a handful at once is bulk, unless a sender says otherwise.

Live: straight to [documents]. Bulk: to [bulk], whose feeder (`streams/lanes/feeder.py`) passes them on while few are under way.
"""

from __future__ import annotations

from typing import Literal

from streams.errors import UsageError
from streams.topics import TopicNames

Lane = Literal["live", "bulk"]
LANES: tuple[Lane, ...] = ("live", "bulk")
HANDFUL = 20
"""So many changes at once are still edits; more are an import."""


def lane_for(changes: int, asked: str = "auto") -> Lane:
    """Return the lane of so many changes sent at once. `asked`: auto (by the rule), live or bulk. UsageError for another word."""
    if asked == "auto":
        return "bulk" if changes > HANDFUL else "live"
    for lane in LANES:
        if asked == lane:
            return lane
    raise UsageError(f"--lane {asked}: use auto, live or bulk")


def topic_of(lane: Lane, names: TopicNames) -> str:
    """Return the topic that a lane's changes are sent to."""
    return names.bulk if lane == "bulk" else names.documents
