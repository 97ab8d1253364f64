"""Fetches that don't keep records waiting at the broker. Wraps a private part of aiokafka 0.14.0 (versions.py).

aiokafka has one fetch at a time under way to a broker, for the partitions of which no records are in hand. The broker holds it
until something new comes, for up to the app's wait of a fetch (half a second). Where all its partitions are at their ends, it keeps
those from being fetched that were in hand when it went out: once their records are used up, the app stands still until it is
back. So a fetch that leaves out a partition, because its records are in hand and are being taken, is held for a shorter time.
"""

from __future__ import annotations

from typing import Any

BESIDE_RECORDS_MS = 50
"""How long the broker may hold a fetch that goes out while records of other partitions are in hand. Not 0: such fetches would
follow each other without a pause for as long as there are records."""


def fetch_promptly(fetcher: Any) -> None:
    """Make a consumer's fetcher ask so. Before it has partitions."""
    plan = fetcher._get_actions_per_node

    def promptly(assignment: Any) -> Any:
        actions = plan(assignment)
        if any(not assignment.state_value(partition).paused for partition in fetcher._records if partition in assignment.tps):
            for _, request in actions[0]:
                request._max_wait_ms = min(request._max_wait_ms, BESIDE_RECORDS_MS)
        return actions

    fetcher._get_actions_per_node = promptly
