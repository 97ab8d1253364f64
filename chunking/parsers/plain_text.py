"""Plain text: paragraphs parted by blank lines, or begun by an ideographic indent. The outline pass finds chapters and clauses."""

from __future__ import annotations

import re

from chunking.document import Block, BlockKind, Span
from chunking.parsers.base import Parsed, Parser, text_of
from chunking.quick import quick

_PARAGRAPH = re.compile(r"\S[^\n]*(?:\n(?![^\S\n]*(?:\n|\Z)|[ \t]{0,8}\u3000)[^\n]*)*")
_block, _span = quick(Block), quick(Span)


def _parse(data: bytes | str, declared_charset: str | None = None) -> Parsed:
    text = text_of(data, declared_charset)
    blocks = []
    for found in _PARAGRAPH.finditer(text):
        start = found.start()
        blocks.append(_block(BlockKind.PARAGRAPH, _span(start, start + len(found.group().rstrip()))))
    return Parsed(text, tuple(blocks))


PLAIN_TEXT = Parser("plain_text", 1, _parse)
