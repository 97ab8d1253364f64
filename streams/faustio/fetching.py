"""Which records are fetched, and when. Wraps a private part of aiokafka 0.14.0 (versions.py).

**Only what is read.** Faust pauses a partition by not asking for its records; aiokafka does not know, and fetches it all the same.
So each rebalance fetched every changelog from its beginning, into memory, before Faust said where to begin, and each row that a
worker wrote came back to it. Changelogs are read in recovery alone, and fetched then.

**Promptly.** aiokafka has one fetch at a time under way to a broker, for the partitions of which no records are in hand. The broker
holds it until something new comes, for up to the app's wait of a fetch (half a second). Where all its partitions are at their ends,
it keeps those from being fetched that were in hand when it went out: once their records are used up, the app stands still until it
is back. So a fetch that leaves out a partition, because its records are in hand and are being taken, is held for a shorter time.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

BESIDE_RECORDS_MS = 50
"""How long the broker may hold a fetch that goes out while records of other partitions are in hand. Not 0: such fetches would
follow each other without a pause for as long as there are records."""


def fetch_what_is_read(fetcher: Any, is_read: Callable[[Any], bool]) -> None:
    """Make a consumer's fetcher leave out the partitions that nobody reads now, and hold nothing of them. Before it has any.

    `is_read` is asked in the consumer's thread. `look_again` tells the fetcher that its answer has changed.
    """
    plan = fetcher._get_actions_per_node

    def of_what_is_read(assignment: Any) -> Any:
        for partition in assignment.tps:
            state = assignment.state_value(partition)
            if is_read(partition):
                state.resume()
            else:
                state.pause()
                fetcher._records.pop(partition, None)  # may come again: its position stays where it was
        return plan(assignment)

    fetcher._get_actions_per_node = of_what_is_read


def look_again(fetcher: Any) -> None:
    """Have a fetcher look at once what it may fetch. In the consumer's thread."""
    fetcher._notify(fetcher._wait_consume_future)


def fetch_promptly(fetcher: Any) -> None:
    """Make a consumer's fetcher ask so. Before it has partitions, after `fetch_what_is_read`."""
    plan = fetcher._get_actions_per_node

    def promptly(assignment: Any) -> Any:
        actions = plan(assignment)
        if any(not assignment.state_value(partition).paused for partition in fetcher._records if partition in assignment.tps):
            for _, request in actions[0]:
                request._max_wait_ms = min(request._max_wait_ms, BESIDE_RECORDS_MS)
        return actions

    fetcher._get_actions_per_node = promptly
