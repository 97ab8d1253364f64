"""A file named on the command line: its bytes, its media type, and what else is said of it. Needs no parser."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from streams.connectors.directory import media_type_of
from streams.errors import UsageError


@dataclass(frozen=True, slots=True)
class FileFacts:
    """What is said about a file on the command line. Empty: not said."""

    media_type: str = ""
    title: str = ""
    language: str = ""
    kind: str = ""
    labels: tuple[str, ...] = ()


def read_bytes(path: Path) -> bytes:
    """Return the bytes of a file. Raises UsageError naming it."""
    try:
        return path.read_bytes()
    except FileNotFoundError as error:
        raise UsageError(f"{path}: no such file") from error
    except OSError as error:
        raise UsageError(f"{path} can't be read: {error.strerror}") from error


def known_media_type(path: Path, given: str = "") -> str:
    """Return the media type of a file: the one given, or by its name. Raises UsageError where no parser reads it."""
    media_type = given or media_type_of(path)
    if not media_type:
        types = "text/markdown, text/html, text/plain"
        raise UsageError(f"{path}: no parser reads a file of this name; say what it is with --media-type ({types})")
    return media_type
