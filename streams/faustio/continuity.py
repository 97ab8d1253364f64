"""Tripwire: on a topic that is neither compacted nor aged out, no offset is ever skipped."""

from __future__ import annotations

from streams.errors import InvariantBroken


class OffsetContinuity:
    """Watches the offsets that reach one agent. Faust has skipped records after a rebalance (faust-streaming issue 596);
    the overrides of recovery.py mend that, and this says so if they ever don't."""

    def __init__(self) -> None:
        self._last: dict[tuple[str, int], tuple[int, int]] = {}

    def check(self, topic: str, partition: int, generation: int, offset: int, begins: int) -> None:
        """Take the next offset of a partition. `generation` is the group's. `begins`: the offset committed, or where nothing is,
        the front of the partition, which is above 0 where it was trimmed.

        Within a generation an offset is at most its predecessor plus one; the first one is at most `begins`. InvariantBroken for a
        later one. An earlier one is a repeat, which the pipeline bears.
        """
        last = self._last.get((topic, partition))
        expected = last[1] + 1 if last is not None and last[0] == generation else begins
        if offset > expected:
            raise InvariantBroken(
                "offsets were skipped, records between them are not handled: restart the worker, and report this",
                topic=topic,
                partition=partition,
                expected=expected,
                came=offset,
                generation=generation,
            )
        self._last[topic, partition] = (generation, offset)
