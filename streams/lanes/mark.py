"""The mark of the bulk lane: a Kafka header that the feeder sets and every record made of a marked one carries on.

``docdelta-lane: bulk/<feeder>/<number>``. A header and no field: it says how a record came, not what it says, so it is in no
fingerprint, garbage can have it too, and outcomes can be told apart without being read. It stays on records of [parsed], so a
record that a later batch builds from is still known as bulk.
"""

from __future__ import annotations

import re
from collections.abc import Mapping

HEADER = "docdelta-lane"
_MARK = re.compile(rb"bulk/([0-9a-f]{16})/(\d{1,15})")


def mark(feeder: str, number: int) -> bytes:
    """Return the header's value for the `number`-th change that a feeder (16 hex digits) passes on."""
    return f"bulk/{feeder}/{number}".encode()


def is_mark(value: object) -> bool:
    """Return whether a header's value is a mark as written here."""
    return isinstance(value, bytes) and _MARK.fullmatch(value) is not None


def number_of(headers: Mapping[str, bytes], feeder: str) -> int | None:
    """Return which of a feeder's changes a record was made of; None where it is not one of them."""
    found = _MARK.fullmatch(headers.get(HEADER, b""))
    return int(found[2]) if found is not None and found[1] == feeder.encode() else None
