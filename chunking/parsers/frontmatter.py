"""Front matter: the metadata block at the head of a Markdown file, as it is written by site generators."""

from __future__ import annotations

import re

_BLOCK = re.compile(r"(?P<mark>---|\+\+\+)[ \t]*\n(?P<body>(?:[^\n]*\n)*?)(?:(?P=mark)|\.\.\.)[ \t]*(?:\n|\Z)")
_FIELD = re.compile(r"(?m)^(?P<key>[A-Za-z_][\w.-]{0,63})[ \t]*[:=](?:[ \t]+(?P<value>[^\n]*))?$")


def split_front_matter(text: str) -> tuple[dict[str, str], str]:
    """Return the simple top-level fields (one-line strings, unquoted) and the text behind the block.

    A rule at the head of a page is not front matter: the first line within must be a field or a comment.
    """
    if not text.startswith(("---", "+++")):
        return {}, text
    block = _BLOCK.match(text)
    if block is None:
        return {}, text
    body = block["body"]
    first = next((line for line in body.split("\n") if line.strip() and not line.startswith("#")), "")
    if first and not _FIELD.match(first) and not first.startswith("["):
        return {}, text
    if body.startswith("\n") and not first:
        return {}, text
    fields = {field["key"]: _unquoted(field["value"] or "") for field in _FIELD.finditer(body)}
    return fields, text[block.end() :]


def _unquoted(value: str) -> str:
    value = value.strip()
    if len(value) >= 2 and value[0] == value[-1] and value[0] in "\"'":
        return value[1:-1].strip()
    if value[:1] in ("|", ">", "[", "{", "&", "*", "!"):
        return ""
    return value.split(" #", 1)[0].rstrip()
