"""Tally: tokens of any stretch of one text. `Synced` answers from one pass of the tokenizer over the whole text.

The pattern by which cl100k parts a text before it merges bytes reads from left to right and never looks back. So there are places
where every reading of the text, wherever it began, comes to a border: behind a letter or digit that a blank or a mark follows, and
at the start of a line that is not blank, since whatever takes in a line feed ends with it. From one such place to another a stretch
has the tokens it has in the whole text; only its ends beyond them, mostly a mark or two, are counted by themselves. Between a mark
and a letter, which the pattern takes together, there is such a place too where a token of the whole text ends: nothing was ever
merged over it, so each side was merged as it is alone.
"""

from __future__ import annotations

import itertools
import operator
import re
from collections.abc import Callable, Sequence
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

_LETTERS = "A-Za-z0-9\u00e0-\u00f6\u00f8-\u00ff\u0430-\u044f\u3041-\u3096\u30a1-\u30fa\u4e00-\u9fa5\uac00-\ud7a3"
"""Characters that are letters or digits in every version of Unicode."""
_OTHERS = (
    r" \t\n!-/:-@\[-`{-~\u00a0\u00b7\u2014\u2018\u2019\u201c\u201d\u2026"
    r"\u3000-\u3003\u3008-\u3011\uff01\uff08\uff09\uff0c\uff0e\uff1a\uff1b\uff1f"
)
"""Characters that are blanks or marks in every version of Unicode."""
_MARKS = (
    r"!\"#$%&()*+,\-./:;<=>?@\[\\\]^_`{|}~\u2014\u2018\u2019\u201c\u201d\u2026"
    r"\u3001\u3002\u3008-\u3011\uff01\uff08\uff09\uff0c\uff0e\uff1a\uff1b\uff1f"
)
"""Those of them that are marks, but for the apostrophe, with which a contraction begins."""
_BORDER = re.compile(rf"[{_LETTERS}](?=[{_OTHERS}])|\n(?=\S)")
_LAST_BORDER = re.compile(rf"(?s:.*)(?:[{_LETTERS}](?=[{_OTHERS}])|\n(?=\S))")
_AROUND = re.compile(rf"\n[^\S\n]*+\S|[{_LETTERS}][{_OTHERS}]|[{_MARKS}][{_LETTERS}]")


class Tally(Protocol):
    """Counts tokens within one text."""

    def counts(self, edges: Sequence[int]) -> list[int]:
        """Return what `count` says of each stretch from one of the ascending `edges` to the next."""
        ...

    def count(self, start: int, end: int) -> int:
        """Return the number of tokens of text[start:end], exactly what the counter says of that string alone."""
        ...

    def count_after(self, before: str, start: int, end: int) -> int:
        """Return the number of tokens of `before` and text[start:end] as one string, as exactly."""
        ...


class Characters:
    """A tally in code points."""

    def counts(self, edges: Sequence[int]) -> list[int]:
        return [end - start for start, end in itertools.pairwise(edges)]

    def count(self, start: int, end: int) -> int:
        return max(0, end - start)

    def count_after(self, before: str, start: int, end: int) -> int:
        return len(before) + self.count(start, end)


class Plain:
    """A tally that hands every stretch to the tokenizer."""

    def __init__(self, text: str, count: Callable[[str], int]) -> None:
        self._text = text
        self._count = count

    def counts(self, edges: Sequence[int]) -> list[int]:
        return [self.count(start, end) for start, end in itertools.pairwise(edges)]

    def count(self, start: int, end: int) -> int:
        return self._count(self._text[start:end])

    def count_after(self, before: str, start: int, end: int) -> int:
        return self._count(before + self._text[start:end])


class Synced:
    """A tally over a text that was encoded once, for cl100k and what parts text alike. Needs a text without CR and surrogates.

    tokens: of all of it. begun: for each token how many characters begin in it. is_inside: for each token of the vocabulary whether
    it begins inside a character. count: counts a string alone.
    """

    def __init__(
        self,
        text: str,
        tokens: NDArray[np.uint32],
        begun: NDArray[np.int32],
        is_inside: NDArray[np.bool_],
        count: Callable[[str], int],
    ) -> None:
        self._text = text
        self._count = count
        self._tokens, self._is_inside = tokens.data, is_inside.data
        ends = np.cumsum(begun, dtype=np.int32)
        self._all_before = np.cumsum(np.bincount(ends, minlength=len(text) + 1), dtype=np.int32)
        self._before = self._all_before.data  # for each place how many tokens end at or before it

    def counts(self, edges: Sequence[int]) -> list[int]:
        text, length = self._text, len(self._text)
        found: list[int] = np.diff(self._all_before[list(edges)]).tolist()
        sure = [at == 0 or at == length or (text[at - 1] == "\n" and not text[at].isspace()) or self._is_border(at) for at in edges]
        if not all(sure):
            for index, is_sure in enumerate(map(operator.and_, sure, sure[1:])):
                if not is_sure:
                    found[index] = self.count(edges[index], edges[index + 1])
        return found

    def count(self, start: int, end: int) -> int:
        text, head, tail = self._text, start, end
        if start and (text[start - 1] != "\n" or text[start : start + 1].isspace()) and not self._is_border(start):
            border = _BORDER.search(text, start, end)
            if border is None:
                return self._count(text[start:end])
            head = border.end()
        if end < len(text) and (text[end - 1] != "\n" or text[end].isspace()) and not self._is_border(end):
            last = _LAST_BORDER.match(text, head, end)
            if last is None:
                return self._count(text[start:end])
            tail = last.end()
        if tail <= head:
            return self._count(text[start:end])
        tokens: int = self._before[tail] - self._before[head]
        if start < head:
            tokens += self._count(text[start:head])
        if tail < end:
            tokens += self._count(text[tail:end])
        return tokens

    def _is_border(self, at: int) -> bool:
        """Return whether the place is a border in every reading of the text. `at` is above 0."""
        tokens = self._before[at]
        if tokens == self._before[at - 1] or (tokens < len(self._tokens) and self._is_inside[self._tokens[tokens]]):
            return False  # no token ends here, or only inside the character before
        return _AROUND.match(self._text, at - 1) is not None

    def count_after(self, before: str, start: int, end: int) -> int:
        if not before:
            return self.count(start, end)
        if before[-1] == "\n" and start < end and not self._text[start].isspace():
            return self._count(before) + self.count(start, end)
        return self._count(before + self._text[start:end])
