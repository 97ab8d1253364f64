"""Words for people: a number with what it counts, and why a file can't be read."""

from __future__ import annotations


def counted(number: int, one: str, many: str = "") -> str:
    """Return a number with what it counts: ``1 document``, ``1,203 documents``. `many`: where it is more than `one` with an s."""
    return f"{number:,} {one if number == 1 else many or one + 's'}"


def unreadable(error: OSError | UnicodeDecodeError) -> str:
    """Return why a file can't be read, without error numbers: ``no such file``, ``no UTF-8 text: byte 0xff at 12``."""
    if isinstance(error, UnicodeDecodeError):
        return f"no UTF-8 text: byte {error.object[error.start]:#04x} at {error.start}"
    if isinstance(error, FileNotFoundError):
        return "no such file"
    return (error.strerror or str(error) or type(error).__name__).lower()
