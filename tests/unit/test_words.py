"""One document is no documents, and an error of the system is told in words."""

from __future__ import annotations

from pathlib import Path

import pytest

from streams.words import counted, unreadable


@pytest.mark.parametrize(
    ("number", "words", "told"),
    [
        (0, ("document",), "0 documents"),
        (1, ("document",), "1 document"),
        (1203, ("document",), "1,203 documents"),
        (1, ("event is", "events are"), "1 event is"),
        (2, ("event is", "events are"), "2 events are"),
    ],
)
def test_a_number_agrees_with_what_it_counts(number: int, words: tuple[str, ...], told: str) -> None:
    assert counted(number, *words) == told


def test_a_file_that_can_not_be_read_is_told_without_error_numbers(tmp_path: Path) -> None:
    binary = tmp_path / "binary"
    binary.write_bytes(b"ab\xff")
    told = []
    for path in (tmp_path / "none", tmp_path, binary):
        with pytest.raises((OSError, UnicodeDecodeError)) as raised:
            path.read_text(encoding="utf-8")
        told.append(unreadable(raised.value))
    assert told == ["no such file", "is a directory", "no UTF-8 text: byte 0xff at 2"]
