"""Where sentences and their parts end, in Chinese, English and mixed text. Functions return end offsets that tile a range.

A mark stays with what it ends, and so do closing quotes and brackets and the blanks behind it (up to the last line feed, so
that indentation stays with its line). Time is linear in the text.
"""

from __future__ import annotations

import re
from collections.abc import Callable

Ends = Callable[[str, int, int], list[int]]
"""(text, start, end) to ascending end offsets, the last of which is `end`."""

_CLOSING = "”’」』）)】》〉］]｝}"
_TERMINATOR = re.compile(r"[。！？!?｡.…\n](?:(?<!\n)[。！？!?｡.…]+)?")
_CLOSERS = re.compile(f"[{re.escape(_CLOSING)}]*")
_BLANKS = re.compile(r"\s*")
_WIDE = re.compile("[\u2e80-\u9fff\uac00-\ud7af\uf900-\ufaff\uff00-\uffef”’」』]")
_ALWAYS = frozenset("。！？｡")
_TITLES = frozenset(
    ["mr", "mrs", "ms", "dr", "prof", "gen", "col", "capt", "lt", "sgt", "rev", "messrs", "vs", "cf", "e.g", "i.e", "viz"]
)
_NUMBERED = frozenset(["fig", "figs", "eq", "eqs", "no", "nos", "vol", "vols", "p", "pp", "ch", "sec", "art", "approx", "ca"])
_WORD_BEFORE = re.compile(r"[A-Za-z][A-Za-z.]*$")


def sentence_ends(text: str, start: int, end: int) -> list[int]:
    """Return the ends of the sentences in text[start:end]: 。！？.!? with their closing marks, and line ends.

    Not ends: dots in numbers, abbreviations and names; an ellipsis in mid-sentence; the line end of hard-wrapped Latin prose.
    """
    ends: list[int] = []
    begin = start
    position = start
    while match := _TERMINATOR.search(text, position, end):
        position = match.end()
        if match.group() == "\n":
            if _is_wrapped(text, match.start(), begin, end):
                continue
            stop = position
        else:
            stop = _sentence_stop(text, match.start(), match.end(), begin, end)
            if stop == 0:
                continue
        stop = _with_blanks(text, stop, end)
        if text[begin:stop].isspace() and ends:
            ends[-1] = stop
        else:
            ends.append(stop)
        begin = position = stop
    if begin < end or not ends:
        ends.append(end)
    return ends


def chinese_sentence_ends(text: str, start: int, end: int) -> list[int]:
    """Return the ends of the sentences in text[start:end] at 。！？ and …… alone; dots and line ends are none."""
    return _chinese_ends(text, start, end)


def _sentence_stop(text: str, start: int, stop: int, begin: int, end: int) -> int:
    """Return where the sentence ends whose marks are text[start:stop], or 0 when they end none."""
    marks = text[start:stop]
    closers = _CLOSERS.match(text, stop, end)
    after = closers.end() if closers else stop
    if after < end and text[after] in "\"'" and _closes(text, begin, after):
        after += 1
        closers = _CLOSERS.match(text, after, end)
        after = closers.end() if closers else after
    following = text[after] if after < end else "\n"
    if not _ALWAYS.isdisjoint(marks):
        return after
    if marks[-1] in "!?":
        return after if following.isspace() or _WIDE.match(following) else 0
    before = text[start - 1] if start > begin else " "
    if len(marks) > 1 or marks == "…":
        next_visible = _next_visible(text, after, end)
        return after if after > stop or next_visible == "\n" or (next_visible.isupper() and following.isspace()) else 0
    if _WIDE.match(before) and _WIDE.match(following):
        return after
    if not following.isspace():
        return 0
    return 0 if _is_short_form(text, start, begin, after, end) else after


def _closes(text: str, begin: int, quote: int) -> bool:
    """Return whether a straight quote closes one opened in this sentence, by a straight or (in sloppy text) a curly one."""
    odd = text.count(text[quote], begin, quote) % 2 == 1
    return odd or text.count("“", begin, quote) > text.count("”", begin, quote)


def _is_short_form(text: str, dot: int, begin: int, after: int, end: int) -> bool:
    """Return whether the dot belongs to an abbreviation, an initial or a list number rather than to a sentence end."""
    next_visible = _next_visible(text, after, end)
    if next_visible.islower():
        return True
    window = text[max(begin, dot - 12) : dot]
    match = _WORD_BEFORE.search(window)
    if match is None:
        # "1." that opens a line is a list number.
        line = text[max(begin, text.rfind("\n", max(begin, dot - 8), dot) + 1, dot - 8) : dot].strip()
        opens = dot - len(line)
        opens_line = opens <= begin or not text[max(begin, opens - 4) : opens].rpartition("\n")[2].strip()
        return line.isdigit() and opens_line and next_visible != "\n"
    word = match.group().lower()
    if word in _TITLES:
        return True
    if word in _NUMBERED:
        return next_visible.isdigit()
    return len(word) == 1 and match.group().isupper() and next_visible.isupper() and word != "i"


def _next_visible(text: str, position: int, end: int) -> str:
    """Return the next visible character on this line, or a line feed."""
    while position < end and text[position] in " \t\u3000\u00a0":
        position += 1
    return text[position] if position < end else "\n"


def _is_wrapped(text: str, line_feed: int, begin: int, end: int) -> bool:
    """Return whether a line end stands in mid-sentence of hard-wrapped Latin prose."""
    if line_feed <= begin or line_feed + 1 >= end:
        return False
    before, following = text[line_feed - 1], text[line_feed + 1]
    return (before.islower() or before in ",;") and following.islower()


def _with_blanks(text: str, stop: int, end: int) -> int:
    if stop >= end or not text[stop].isspace():
        return stop
    match = _BLANKS.match(text, stop, end)
    after = match.end() if match else stop
    line_feed = text.rfind("\n", max(0, stop - 1), after)
    return after if line_feed < 0 or after == end else line_feed + 1


def ends_at(pattern: str) -> Ends:
    """Return a splitter that cuts behind every match of `pattern`, with its closing marks and blanks."""
    compiled = re.compile(pattern)

    def ends(text: str, start: int, end: int) -> list[int]:
        found: list[int] = []
        begin = position = start
        while match := compiled.search(text, position, end):
            closers = _CLOSERS.match(text, match.end(), end)
            stop = _with_blanks(text, closers.end() if closers else match.end(), end)
            position = stop if stop > position else position + 1
            if stop <= begin or text[begin:stop].isspace():
                continue
            found.append(stop)
            begin = stop
        if begin < end or not found:
            if found and text[begin:end].isspace():
                found[-1] = end
            else:
                found.append(end)
        return found

    return ends


_chinese_ends = ends_at("[。！？｡]+…*|……+(?=[”’」』）])")
semicolon_ends = ends_at(r"；+|;(?=\s)|;(?=[\u2e80-\u9fff])|．+(?!\d)")
"""Ends of clauses at ； and ;, and at ．, the full stop of old typesetting that also stands in numbers and names."""
comma_ends = ends_at(r"[，、：]+|——+|[,:](?=\s)|[,:](?=[\u2e80-\u9fff])")
"""Ends of phrases at commas, colons and dashes; a comma or colon inside a number is none."""
paragraph_ends = ends_at(r"\n[^\S\n]*\n")
"""Ends of paragraphs: blank lines."""
line_ends = ends_at(r"\n")
"""Line ends."""
space_ends = ends_at(r"\s+")
"""Ends of words."""
cell_ends = ends_at(r"\|")
"""Ends of cells in a row of a pipe table."""
