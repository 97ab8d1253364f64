"""Words around a number, as people read it: one document, two documents."""

from __future__ import annotations


def counted(number: int, one: str, many: str = "") -> str:
    """Return a number with what it counts: ``1 document``, ``1,203 documents``. `many`: where it is more than `one` with an s."""
    return f"{number:,} {one if number == 1 else many or one + 's'}"
