"""The table of parsers: bytes of a media type to a Document. A file per media type, a row per media type."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import PurePath

from chunking.document import BlockKind, Document
from chunking.media_types import SUFFIXES
from chunking.parsers.base import Parsed, Parser, UnreadableMarkup, UnsupportedMediaType
from chunking.parsers.html import HTML
from chunking.parsers.markdown import MARKDOWN
from chunking.parsers.plain_text import PLAIN_TEXT

__all__ = [
    "PARSERS",
    "Parsed",
    "Parser",
    "UnreadableMarkup",
    "UnsupportedMediaType",
    "media_type_of",
    "parse_document",
    "parser_of",
]

PARSERS: dict[str, Parser] = {
    "text/markdown": MARKDOWN,
    "text/x-markdown": MARKDOWN,
    "text/html": HTML,
    "application/xhtml+xml": HTML,
    "text/plain": PLAIN_TEXT,
}


def parse_document(
    data: bytes | str,
    media_type: str,
    *,
    title: str = "",
    language: str = "",
    kind: str = "",
    labels: Iterable[str] = (),
) -> Document:
    """Return the document in a file. A given title or language goes before the file's own; without either, the first heading of
    level 1 is the title.

    Media type parameters are honoured (``text/html; charset=gbk``). Raises UnsupportedMediaType and UnreadableMarkup.
    """
    essence, parameters = _split_media_type(media_type)
    parser = parser_of(essence)
    parsed = parser.parse(data, parameters.get("charset"))
    return Document(
        text=parsed.text,
        blocks=parsed.blocks,
        title=title or parsed.title or _first_heading(parsed),
        media_type=essence,
        language=language or parsed.language,
        kind=kind,
        labels=frozenset(labels),
        parser=parser.versioned_name,
    )


def parser_of(media_type: str) -> Parser:
    """Return the parser of a media type, parameters ignored. Raises UnsupportedMediaType."""
    essence, _ = _split_media_type(media_type)
    parser = PARSERS.get(essence)
    if parser is None:
        raise UnsupportedMediaType(f"media type {essence or '(none)'!r} has no parser: send one of {', '.join(sorted(PARSERS))}")
    return parser


def media_type_of(path: str | PurePath) -> str:
    """Return the media type that a file's suffix stands for. Raises UnsupportedMediaType for others."""
    suffix = PurePath(path).suffix.lower()
    if suffix not in SUFFIXES:
        known = ", ".join(SUFFIXES)
        raise UnsupportedMediaType(f"file suffix {suffix or '(none)'!r} of {PurePath(path).name!r}: use one of {known}")
    return SUFFIXES[suffix]


def _split_media_type(media_type: str) -> tuple[str, dict[str, str]]:
    """Return ``type/subtype`` in lower case and the parameters with lower-case names, quotes taken off."""
    essence, *rest = media_type.split(";")
    parameters = {}
    for piece in rest:
        name, _, value = piece.partition("=")
        parameters[name.strip().lower()] = value.strip().strip('"')
    return essence.strip().lower(), parameters


def _first_heading(parsed: Parsed) -> str:
    return next((block.label for block in parsed.blocks if block.kind is BlockKind.HEADING and block.level == 1), "")
