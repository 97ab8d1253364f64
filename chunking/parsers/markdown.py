"""Markdown: the source kept as it was written, cut into blocks where CommonMark (with tables) says that blocks begin and end.

What readers never see is left out of the text: front matter, comments, scripts, rules, tags of HTML blocks, embedded images.
Only block structure is parsed, so a line of 200 kB costs no more than one pass. Reference definitions stay as paragraphs.
"""

from __future__ import annotations

from markdown_it import MarkdownIt
from markdown_it.token import Token

from chunking.parsers.base import Parsed, Parser, text_of
from chunking.parsers.frontmatter import split_front_matter
from chunking.parsers.inline import without_data_uris
from chunking.parsers.markdown_scan import scan
from chunking.parsers.markdown_walk import Walk

_DEEPEST = 40
_COMMONMARK = MarkdownIt("commonmark", {"maxNesting": _DEEPEST}).enable("table").disable("reference")


def block_tokens(source: str) -> list[Token]:
    """Return the block tokens of Markdown; their inline content is not parsed. Nesting above 40 is not followed."""
    tokens: list[Token] = []
    _COMMONMARK.block.parse(source, _COMMONMARK, {}, tokens)
    return tokens


def parse_slowly(data: bytes | str, declared_charset: str | None = None) -> Parsed:
    """Return what the full parser makes of the whole file: the reference for the line scan."""
    fields, text = _opened(data, declared_charset)
    walk = Walk(text.split("\n"))
    walk.walk(block_tokens(text), 0, len(walk.lines))
    return _closed(walk, fields)


def _parse(data: bytes | str, declared_charset: str | None = None) -> Parsed:
    fields, text = _opened(data, declared_charset)
    walk = Walk(text.split("\n"))
    scan(walk, walk.lines, block_tokens)
    return _closed(walk, fields)


def _opened(data: bytes | str, declared_charset: str | None) -> tuple[dict[str, str], str]:
    fields, text = split_front_matter(text_of(data, declared_charset))
    return fields, without_data_uris(text)


def _closed(walk: Walk, fields: dict[str, str]) -> Parsed:
    return walk.builder.parsed(fields.get("title", ""), fields.get("lang", fields.get("language", "")))


MARKDOWN = Parser("markdown", 1, _parse)
