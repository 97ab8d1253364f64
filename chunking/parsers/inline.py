"""Light work inside a line of Markdown: what a title or a cell says without its marks, and text without what readers never see."""

from __future__ import annotations

import html
import re

_LONGEST = 1_000
_SPECIAL = re.compile(r"[*_`\[<&\\{~!]")
_CODE = re.compile(r"(?<!`)(`{1,5})(?!`)(.{1,200}?)(?<!`)\1(?!`)")
_ESCAPE = re.compile(r"\\([!-/:-@\[-`{-~])")
_ANCHOR = re.compile(r"\s*\{\s{0,4}[#.:][^{}]{0,100}\}\s*$")
_LINK = re.compile(r"!?\[([^\[\]]{0,400})\](?:\([^()]{0,400}(?:\([^()]{0,200}\)[^()]{0,200})?\)|\[[^\[\]]{0,100}\])")
_AUTOLINK = re.compile(r"<((?:https?|mailto|ftp):[^\s<>]{1,400})>")
_TAG = re.compile(r"</?[A-Za-z][^<>]{0,400}>")
_STARS = re.compile(r"(\*{1,3}|~~)(?=\S)([^*~]{1,400}?)(?<=\S)\1")
_BARS = re.compile(r"(?<!\w)(_{1,3})(?=\S)(.{1,400}?)(?<=\S)\1(?!\w)")
_STASHED = re.compile("\x00(\\d{1,4})\x00")

_SPAN_OR_HIDDEN = re.compile(
    r"(?<!`)(?P<ticks>`{1,8})(?!`)"
    r"|<!--"
    r"|<(?P<tag>script|style|noscript|template)(?=[\s/>])",
    re.IGNORECASE,
)
_DATA_URI = re.compile(r"(?P<head>data:[\w.+-]{1,60}/[\w.+-]{1,60}(?:;[\w=.+-]{1,80}){0,4},)[^\s)\"'<>]*+", re.IGNORECASE)
_SHORT_DATA = 200


def plain_inline(text: str) -> str:
    """Return what a reader sees of a title or cell: no emphasis marks, link targets, tags, anchors; entities decoded; one line."""
    text = " ".join(text.split())
    if len(text) > _LONGEST or not _SPECIAL.search(text):
        return text
    stash: list[str] = []

    def keep(literal: str) -> str:
        stash.append(literal)
        return f"\x00{len(stash) - 1}\x00"

    if "`" in text:
        text = _CODE.sub(lambda code: keep(code[2].strip()), text)
    if "\\" in text:
        text = _ESCAPE.sub(lambda escape: keep(escape[1]), text)
    if "<" in text:
        text = _TAG.sub("", _AUTOLINK.sub(r"\1", text))
    if "{" in text:
        text = _ANCHOR.sub("", text)
    if "[" in text:
        text = _LINK.sub(r"\1", _LINK.sub(r"\1", text))
    if "*" in text or "~" in text:
        text = _STARS.sub(r"\2", _STARS.sub(r"\2", text))
    if "_" in text:
        text = _BARS.sub(r"\2", text)
    if "&" in text:
        text = html.unescape(text)
    if stash:
        text = _STASHED.sub(lambda mark: stash[int(mark[1])] if int(mark[1]) < len(stash) else "", text)
    return " ".join(text.split())


def without_hidden(text: str) -> str:
    """Return Markdown text without comments and script, style, noscript and template elements; code spans are left alone."""
    if "<" not in text:
        return text
    never: set[str] = set()
    pieces: list[str] = []
    position = copied = 0
    while (found := _SPAN_OR_HIDDEN.search(text, position)) is not None:
        opening, tag = found["ticks"], found["tag"]
        position = found.end()
        closer = opening or (f"</{tag.lower()}" if tag else "-->")
        if closer in never:
            continue
        end = _end_of(closer, text, position if opening or tag else position - 2)
        if end < 0:
            never.add(closer)
        elif opening:
            position = end
        else:
            pieces.append(text[copied : found.start()])
            position = copied = end
    if not copied:
        return text
    pieces.append(text[copied:])
    return "".join(pieces)


def _end_of(closer: str, text: str, position: int) -> int:
    """Return the offset behind the closing mark (a run of backticks, ``-->``, ``</tag``), or -1."""
    if closer == "-->":
        end = text.find(closer, position)
        return end + 3 if end >= 0 else -1
    pattern = f"(?<!`){closer}(?!`)" if closer[0] == "`" else re.escape(closer) + r"[^<>]{0,100}>"
    close = re.compile(pattern, re.IGNORECASE).search(text, position)
    return close.end() if close else -1


def without_data_uris(text: str) -> str:
    """Return the text with the content of `data:` addresses cut out of links and images, and everywhere if it is long."""
    if "data:" not in text and "DATA:" not in text:
        return text

    def cut(found: re.Match[str]) -> str:
        is_target = text[found.start() - 1 : found.start()] in ("(", "<", '"', "'")
        is_short = found.end() - found.end("head") < _SHORT_DATA
        return found.group() if is_short and not is_target else "data:"

    return _DATA_URI.sub(cut, text)
