"""Which records of a group are handled first: those that somebody waits for."""

from __future__ import annotations

from collections.abc import Sequence

from streams.lanes.mark import HEADER
from streams.ports import InRecord


def live_first(records: Sequence[InRecord]) -> list[list[InRecord]]:
    """Return a group in one or two: live records, then bulk. Records of one key stay together, in their order."""
    live_keys = {record.key for record in records if HEADER not in record.headers}
    live = [record for record in records if record.key in live_keys]
    bulk = [record for record in records if record.key not in live_keys]
    return [lane for lane in (live, bulk) if lane]
