"""Which media type a file has by its name. Apart from the parsers, so that who only sends files needs none of them."""

from __future__ import annotations

SUFFIXES = {
    ".md": "text/markdown",
    ".markdown": "text/markdown",
    ".mdx": "text/markdown",
    ".html": "text/html",
    ".htm": "text/html",
    ".xhtml": "application/xhtml+xml",
    ".txt": "text/plain",
    ".text": "text/plain",
}
"""Suffix, lower case, to the media type of a parser in `chunking/parsers`."""
